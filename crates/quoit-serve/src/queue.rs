//! Sending what a connection's logic has produced.

use std::mem;

use bytes::Bytes;
use quoit::{ConnectionId, Loop, Refusal, Token};

/// So much is lent and not copied: then an allocation costs less than a copy.
const LENT: usize = 32 * 1024;

/// Bytes that may be produced for a connection: none once its queue is full by what is left of the loop's memory, where
/// many others have queued much too. With none, [`quoit::Handler::on_writable`] follows.
pub(super) fn room(event_loop: &Loop, connection: ConnectionId) -> usize {
    if event_loop.is_full(connection) {
        return 0;
    }
    let high_water = event_loop.config().high_water as usize;
    high_water.saturating_sub(event_loop.queued(connection))
}

/// Sends at once or queues as much of `output` as there is room for; the memory of what is long and cannot leave at once
/// is lent. What there was no room for is left in `output`; [`quoit::Handler::on_writable`] follows then.
pub(super) fn queue(
    event_loop: &mut Loop,
    connection: ConnectionId,
    output: &mut Vec<u8>,
) -> Result<(), Refusal> {
    let sent = event_loop.try_send(connection, output)?;
    if sent > 0 || output.len() < LENT {
        let queued = copy(event_loop, connection, &output[sent..])?;
        output.drain(..sent + queued);
        return Ok(());
    }
    let spare = Vec::with_capacity(output.capacity());
    let lent = Bytes::from(mem::replace(output, spare));
    match event_loop.send(connection, lent.clone(), Token::NONE) {
        Err(Refusal::Full) => output.extend_from_slice(&lent),
        result => result?,
    }
    Ok(())
}

/// Queues copies of as much of `bytes` as there is room for, and returns how much that is.
fn copy(event_loop: &mut Loop, connection: ConnectionId, bytes: &[u8]) -> Result<usize, Refusal> {
    let high_water = event_loop.config().high_water as usize;
    let mut queued = 0;
    while queued < bytes.len() {
        let room = high_water.saturating_sub(event_loop.queued(connection));
        let piece = &bytes[queued..(queued + room).min(bytes.len())];
        if piece.is_empty() {
            break;
        }
        match event_loop.send(connection, piece, Token::NONE) {
            Ok(()) => queued += piece.len(),
            Err(Refusal::Full) => break,
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(queued)
}
