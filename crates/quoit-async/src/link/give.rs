//! Giving bytes to the loop: what there is room for, in the way that costs least.

use std::io::IoSlice;

use bytes::{Buf, Bytes};
use quoit::{ConnectionId, Payload, Refusal, Token};

use super::{KEPT, Piece, State};
use crate::any_loop::AnyLoop;

/// Bytes from which on each write is given to the kernel by itself. To copy fewer, and to send them with what else a task writes in
/// the same turn, costs less than a call does.
pub(super) const WORTH_A_CALL: usize = 8 * 1024;

/// Gives the loop one piece; what there is no room for comes back.
pub(super) fn give(
    event_loop: &mut AnyLoop,
    id: ConnectionId,
    piece: Piece,
    state: &mut State,
) -> Result<(), Piece> {
    let length = piece.len();
    match piece {
        Piece::Copied(mut bytes) => {
            let mut gone = 0;
            while gone < bytes.len() {
                match send_copied(event_loop, id, &[IoSlice::new(&bytes[gone..])]) {
                    Ok(0) => {
                        state.full = true;
                        bytes.drain(..gone);
                        state.left_bytes -= gone;
                        return Err(Piece::Copied(bytes));
                    }
                    Ok(taken) => gone += taken,
                    // What ended it is told by its last event.
                    Err(_) => break,
                }
            }
            state.left_bytes -= length;
            if bytes.capacity() <= KEPT {
                bytes.clear();
                state.spare = bytes;
            }
            Ok(())
        }
        Piece::Bytes(bytes) => {
            // A clone is a count, and what is refused is kept for later.
            let result = event_loop.send(id, Payload::Bytes(bytes.clone()), Token::NONE);
            if result == Err(Refusal::Full) {
                state.full = true;
                return Err(Piece::Bytes(bytes));
            }
            state.left_bytes -= length;
            Ok(())
        }
        // These would be gone with a refusal, and whoever waits for a mark would wait for ever. A queue that is full to the mark
        // refuses them, though nothing of it was refused yet.
        piece if event_loop.may_lend(id) == Err(Refusal::Full) => {
            state.full = true;
            Err(piece)
        }
        Piece::Lease(lease) => {
            let _ = event_loop.send(id, Payload::Lease(lease), Token::NONE);
            state.left_bytes -= length;
            Ok(())
        }
        Piece::File(range, token) => {
            let _ = event_loop.send_file(id, range, token);
            Ok(())
        }
        Piece::Mark(token) => {
            let _ = event_loop.send(id, Payload::Bytes(Bytes::new()), token);
            Ok(())
        }
    }
}

/// Gives copies to the kernel at once where that is better, and queues them otherwise. 0: there is no room.
pub(super) fn send_copied(
    event_loop: &mut AnyLoop,
    id: ConnectionId,
    pieces: &[IoSlice<'_>],
) -> Result<usize, Refusal> {
    let at_once = match pieces {
        [piece] => event_loop.try_send(id, piece)?,
        _ => event_loop.try_send_gathered(id, pieces)?,
    };
    if at_once > 0 {
        return Ok(at_once);
    }
    queue_copied(event_loop, id, pieces)
}

/// Queues copies of as much as there is room for, which leave in one call at the end of the turn. 0: there is no room.
pub(super) fn queue_copied(
    event_loop: &mut AnyLoop,
    id: ConnectionId,
    pieces: &[IoSlice<'_>],
) -> Result<usize, Refusal> {
    let mut taken = 0;
    for piece in pieces {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            let room = event_loop.config().high_water as usize;
            let room = room.saturating_sub(event_loop.queued(id)).min(rest.len());
            if room == 0 {
                // The loop tells when it is less full, as the mark was reached.
                return Ok(taken);
            }
            let sent = send_part(event_loop, id, &rest[..room])?;
            taken += sent;
            if sent == 0 {
                return Ok(taken);
            }
            rest.advance(sent);
        }
    }
    Ok(taken)
}

/// Queues a copy of `bytes`, or of a chunk of them where the loop's memory is short. 0: there is no room for that either.
fn send_part(event_loop: &mut AnyLoop, id: ConnectionId, bytes: &[u8]) -> Result<usize, Refusal> {
    match event_loop.send(id, Payload::Copy(bytes), Token::NONE) {
        Ok(()) => return Ok(bytes.len()),
        Err(Refusal::Full | Refusal::TooLarge) => {}
        Err(refusal) => return Err(refusal),
    }
    let chunk = event_loop.config().send_chunk_size as usize;
    if bytes.len() > chunk {
        match event_loop.send(id, Payload::Copy(&bytes[..chunk]), Token::NONE) {
            Ok(()) => return Ok(chunk),
            Err(Refusal::Full | Refusal::TooLarge) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(0)
}

/// Leaves copies of at most `room` bytes for the loop.
pub(super) fn leave_copied(state: &mut State, pieces: &[IoSlice<'_>], room: usize) -> usize {
    if !matches!(state.left.back(), Some(Piece::Copied(_))) {
        let spare = std::mem::take(&mut state.spare);
        state.left.push_back(Piece::Copied(spare));
    }
    let Some(Piece::Copied(into)) = state.left.back_mut() else {
        unreachable!("pushed if it was not there");
    };
    let mut taken = 0;
    for piece in pieces {
        let part = piece.len().min(room - taken);
        into.extend_from_slice(&piece[..part]);
        taken += part;
    }
    state.left_bytes += taken;
    taken
}
