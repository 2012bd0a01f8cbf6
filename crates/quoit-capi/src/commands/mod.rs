//! C's commands, and those of the core.

use quoit::{Command, ConnectionId, DatagramSocketId, Token};

use crate::leases::Leases;
use crate::memory::Keep;
use crate::types::{
    self, QUOIT_COMMAND_CLOSE_DATAGRAM, QUOIT_COMMAND_OPEN_DATAGRAM, QUOIT_COMMAND_RETURN_LEASE,
};

mod datagrams;
mod streams;

pub(crate) use datagrams::peer;
pub(crate) use streams::{slices, take_descriptor};

/// The core's command for one of C's, which takes what that hands over; one that makes no sense becomes a refusal.
///
/// # Safety
/// What the command points at must be as `quoit.h` says, and with [`Keep::During`] `'a` must end with the call that
/// passed the command.
#[inline]
pub(crate) unsafe fn command<'a>(command: &types::Command, leases: &Leases, keep: Keep) -> Command<'a> {
    if is_of_datagrams(command.kind) {
        // SAFETY: promised by the caller.
        let made = unsafe { datagrams::command(command, leases, keep) };
        return made.unwrap_or_else(|refusal| Command::RefuseDatagram {
            socket: (command.target != 0).then_some(DatagramSocketId::from_bits(command.target)),
            token: Token(command.token),
            refusal,
        });
    }
    // SAFETY: promised by the caller.
    unsafe { streams::command(command, leases, keep) }.unwrap_or_else(|refusal| Command::Refuse {
        connection: (command.target != 0).then_some(ConnectionId::from_bits(command.target)),
        token: Token(command.token),
        refusal,
    })
}

/// Whether a command of this kind concerns a datagram socket.
const fn is_of_datagrams(kind: u16) -> bool {
    matches!(kind, QUOIT_COMMAND_OPEN_DATAGRAM..=QUOIT_COMMAND_CLOSE_DATAGRAM)
}

/// Carries out a command that gives a lease back and needs no loop for it; `false` for all others, and if it names none.
#[inline]
pub(crate) fn returned_lease(command: &types::Command, leases: &Leases) -> bool {
    command.kind == QUOIT_COMMAND_RETURN_LEASE
        && command.flags == 0
        && command.reserved == 0
        && leases.take(command.lease).is_some()
}
