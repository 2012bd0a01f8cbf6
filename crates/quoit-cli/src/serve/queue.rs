//! Sending what a connection's logic has produced.

use quoit::{ConnectionId, Loop, Refusal, Token};

/// Sends at once or queues as much of `bytes` as there is room for, and answers how much that is. If it is not all,
/// [`quoit::Handler::on_writable`] follows.
pub(super) fn queue(quoit: &mut Loop, connection: ConnectionId, bytes: &[u8]) -> Result<usize, Refusal> {
    let high_water = quoit.config().high_water as usize;
    let mut queued = quoit.try_send(connection, bytes)?;
    while queued < bytes.len() {
        let room = high_water.saturating_sub(quoit.queued(connection));
        let piece = &bytes[queued..(queued + room).min(bytes.len())];
        if piece.is_empty() {
            break;
        }
        match quoit.send(connection, piece, Token::NONE) {
            Ok(()) => queued += piece.len(),
            Err(Refusal::Full) => break,
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(queued)
}
