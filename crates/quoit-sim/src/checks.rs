//! What the loops of a run check of their connections: leases that are kept, the end of a stream, and what must still
//! happen when nothing is in the way.

use quoit::{ConnectionId, Errno, Lease};
use quoit_sim_kernel::faults::Fault;
use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::pattern;

use crate::reference::{Connection, Reference};

/// A lease that the handler keeps.
pub(crate) struct Kept {
    pub(crate) connection: ConnectionId,
    pub(crate) peer: usize,
    pub(crate) offset: u64,
    pub(crate) data: Lease,
}

impl Kept {
    /// That nobody wrote to it while it was held.
    pub(crate) fn check(&self) {
        if let Some(at) = pattern::first_difference(self.peer as u64, self.offset, &self.data) {
            panic!(
                "leased bytes of {:?} changed while they were held, at offset {at}",
                self.connection
            );
        }
    }
}

/// That the end of a stream comes behind all that was sent.
pub(crate) fn check_end_of_stream(reference: &mut Reference, id: ConnectionId) {
    let state = reference.find(id).expect("checked just now");
    let Some(peer) = state.notes.peer else { return };
    let received = state.notes.received;
    with(|kernel| {
        let peer = &kernel.peers[peer];
        assert!(
            peer.sent == received || peer.broke_off,
            "{id:?} was told the end after {received} bytes, of {} that were sent",
            peer.sent
        );
    });
}

/// That the error for which a connection takes no more is one that a peer's end or the network makes, or want of memory.
pub(crate) fn check_send_error(id: ConnectionId, errno: Errno) {
    let is_fair = match errno {
        Errno::EPIPE | Errno::ECONNRESET | Errno::ETIMEDOUT => true,
        Errno::ENOBUFS | Errno::ENOMEM => transfers_lack_memory(),
        other => matches!(other.code(), libc::EHOSTUNREACH | libc::ENODATA | libc::EIO),
    };
    assert!(is_fair, "sends on {id:?} are refused: {errno}");
}

/// Whether this run lets sends and receives fail for want of memory.
pub(crate) fn transfers_lack_memory() -> bool {
    let lacks = |fault| with(|kernel| kernel.profile().chance(fault)) > 0;
    lacks(Fault::TransferFails) || lacks(Fault::NoMemory)
}

/// Whether all that concerns a connection has arrived, or cannot any more.
fn is_complete(state: &Connection, peer: usize) -> bool {
    if !state.established || state.closing || state.notes.may_be_closing {
        return true;
    }
    with(|kernel| {
        let peer = &kernel.peers[peer];
        let lost = peer.gone || peer.broke_off || peer.saw_error.is_some();
        let all_sent = peer.sent == peer.plan.total || peer.ended;
        let all_received = peer.received == peer.expected.len() as u64;
        lost || (all_sent
            && all_received
            && state.notes.received == peer.sent
            && state.awaited() == 0
            && state.notes.files_short.is_empty()
            && !state.writable_owed)
    })
}

/// A connection, and its peer, of which something must happen yet when nothing is in the way.
pub(crate) fn first_pending(reference: &mut Reference) -> Option<(ConnectionId, usize)> {
    let mut open = 0..reference.open().len();
    open.find_map(|index| if_pending(reference, reference.open()[index]))
}

/// As [`first_pending`], but the one that was found last comes first: mostly it is pending still.
pub(crate) fn any_pending(reference: &mut Reference) -> Option<(ConnectionId, usize)> {
    let again = reference.last_pending.and_then(|id| if_pending(reference, id));
    let found = again.or_else(|| first_pending(reference));
    reference.last_pending = found.map(|(id, _)| id);
    found
}

/// The connection and its peer, if something must happen to it yet.
fn if_pending(reference: &mut Reference, id: ConnectionId) -> Option<(ConnectionId, usize)> {
    let state = reference.find(id)?;
    let peer = state.notes.peer.filter(|&peer| !is_complete(state, peer))?;
    Some((id, peer))
}
