//! Datagram sockets: what calls on Linux's UDP and Unix ones return.
//!
//! The rules are those of `udp_sendmsg`, `udp_recvmsg`, `__udp_enqueue_schedule_skb`, `unix_dgram_sendmsg` and their
//! like. A socket has a bounded queue of what it has received; [`network`] carries datagrams between sockets.

mod control;
pub(super) mod groups;
mod network;
mod sending;
mod sharing;

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use bytes::Bytes;
use quoit::Address;
use quoit::internals::sys::{DatagramFamily, DatagramOption, SocketOption};

use super::Kernel;
use super::object::{Kind, ObjectId, events};
use crate::faults::Fault;
use crate::memory;

pub use control::{Facts, Wishes};
pub use network::DatagramPeerPlan;
pub use sending::NARROW_NETWORK;

pub(super) use network::Network;

use control::Requested;

/// What a queued datagram costs besides its bytes.
const OVERHEAD: usize = 256;
/// Datagrams that the queue of a Unix socket has room for (`net.unix.max_dgram_qlen`), and one more.
const UNIX_QUEUE: usize = 10;
/// What an entry of the error queue takes of the memory for receiving.
const ERROR_COST: usize = 1024;
/// The largest payloads that IPv4 and IPv6 carry.
pub const LARGEST_V4: usize = 65_507;
const LARGEST_V6: usize = 65_527;
/// The most segments of one send.
const MOST_SEGMENTS: usize = 64;

/// A datagram in a socket's queue, or several that were joined.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) from: Address,
    pub(super) bytes: Bytes,
    pub(super) facts: Facts,
}

/// A datagram as it was handed to the program.
#[derive(Clone, Debug)]
pub struct Handed {
    /// Who sent it.
    pub from: Address,
    /// Its bytes, of which the first `length` were handed over.
    pub bytes: Bytes,
    /// See `bytes`.
    pub length: usize,
    /// What else is known of it.
    pub facts: Facts,
    /// Its control messages did not fit.
    pub control_cut: bool,
}

/// A message that the program's socket has sent.
#[derive(Clone, Debug)]
pub struct Departed {
    /// Where to.
    pub to: Address,
    /// Its bytes.
    pub bytes: Bytes,
    /// What the program said of it.
    pub wishes: Wishes,
    /// Segments were refused on its way before, or so often that the device must be taken for the reason: the program may
    /// have cut by itself.
    pub may_be_uncut: bool,
}

/// What passed through a socket since it was looked at, for whoever checks that.
#[derive(Default, Debug)]
pub struct Passed {
    /// Handed to the program, in order.
    pub handed: VecDeque<Handed>,
    /// Sent by it, in order.
    pub departed: Vec<Departed>,
    /// Read by it from the error queue, in order: to whom a datagram did not arrive, and why.
    pub errors_read: VecDeque<(SocketAddr, i32)>,
    /// Errors from the network (ICMP) for which the error queue had no room.
    pub errors_lost: u64,
}

/// What a receive brought.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) name: Vec<u8>,
    pub(crate) control: Vec<u8>,
    pub(crate) bytes: Bytes,
    /// Those of `bytes` that there was room for.
    pub(crate) length: usize,
    pub(crate) flags: i32,
}

/// One datagram socket.
#[derive(Debug)]
pub(crate) struct DatagramSocket {
    pub(crate) family: DatagramFamily,
    pub(crate) local: Option<Address>,
    pub(crate) peer: Option<Address>,
    queue: VecDeque<Arrived>,
    /// Bytes of the queue, with what they cost besides.
    queued: usize,
    receive_capacity: usize,
    drops: u32,
    error: Option<i32>,
    /// It queues errors from the network (`IP_RECVERR`). These were not read yet.
    queues_errors: bool,
    error_queue: VecDeque<(SocketAddr, i32)>,
    /// The multicast groups that it is a member of.
    groups: Vec<IpAddr>,
    /// `SO_REUSEPORT`.
    shares_port: bool,
    requested: Requested,
    /// To where segments were refused, and to where segments of any size.
    refused: HashSet<IpAddr>,
    refused_any: HashSet<IpAddr>,
    /// Bytes that are being sent and have not left.
    sending: usize,
    send_capacity: usize,
    /// Connected Unix sockets that found the queue full.
    senders: Vec<ObjectId>,
    /// Requests that have not ended.
    pub(super) requests: u32,
    /// Receives that have not.
    pub(super) receives: u32,
    /// The number under which is kept what passes, if anybody looks.
    watch: Option<usize>,
}

impl DatagramSocket {
    fn is_unix(&self) -> bool {
        self.family == DatagramFamily::Unix
    }

    /// Whether it has room to send (`sock_writeable`).
    fn has_space(&self) -> bool {
        self.sending < self.send_capacity / 2
    }
}

impl Kernel {
    /// `socket(2)` with `SOCK_DGRAM`.
    pub(crate) fn datagram_socket(&mut self, family: DatagramFamily) -> Result<i32, i32> {
        if let Some(error) = self.descriptor_fault() {
            return Err(error);
        }
        let object = self.add_object(Kind::Datagram(Box::new(DatagramSocket {
            family,
            local: None,
            peer: None,
            queue: VecDeque::new(),
            queued: 0,
            receive_capacity: 200 * 1024,
            drops: 0,
            error: None,
            queues_errors: false,
            error_queue: VecDeque::new(),
            groups: Vec::new(),
            shares_port: false,
            requested: Requested::default(),
            refused: HashSet::new(),
            refused_any: HashSet::new(),
            sending: 0,
            send_capacity: 200 * 1024,
            senders: Vec::new(),
            requests: 0,
            receives: 0,
            watch: None,
        })));
        self.open(object)
    }

    pub(crate) fn datagram(&mut self, id: ObjectId) -> Option<&mut DatagramSocket> {
        match &mut self.objects[id].kind {
            Kind::Datagram(socket) => Some(socket),
            _ => None,
        }
    }

    fn datagram_at(&self, id: ObjectId) -> Option<&DatagramSocket> {
        match &self.objects[id].kind {
            Kind::Datagram(socket) => Some(socket),
            _ => None,
        }
    }

    /// From now on what passes through the socket is kept, and as if so many datagrams had been dropped before.
    /// Returns the number under which it is kept.
    pub fn watch_datagrams(&mut self, descriptor: i32, drops: u32) -> usize {
        self.passed.push(Passed::default());
        let number = self.passed.len() - 1;
        if let Some(id) = self.table.get(descriptor)
            && let Some(socket) = self.datagram(id)
        {
            socket.watch = Some(number);
            socket.drops = drops;
        }
        number
    }

    /// What passed through a watched socket since the last call.
    pub fn take_passed(&mut self, number: usize) -> Option<Passed> {
        let passed = &mut self.passed[number];
        let any = !passed.handed.is_empty()
            || !passed.departed.is_empty()
            || !passed.errors_read.is_empty()
            || passed.errors_lost > 0;
        any.then(|| std::mem::take(passed))
    }

    /// Datagrams and errors that are queued in a socket, and its drops so far.
    #[must_use]
    pub fn datagram_state(&self, descriptor: i32) -> Option<(usize, u32)> {
        let socket = self.datagram_at(self.table.get(descriptor)?)?;
        Some((socket.queue.len() + socket.error_queue.len(), socket.drops))
    }

    /// `SO_MEMINFO`.
    pub(crate) fn datagram_drops(&self, id: ObjectId) -> Result<u32, i32> {
        self.datagram_at(id)
            .map(|socket| socket.drops)
            .ok_or(libc::ENOTSOCK)
    }

    /// `setsockopt(2)`, the options of datagram sockets.
    pub(crate) fn set_datagram_option(&mut self, id: ObjectId, option: DatagramOption) -> Result<(), i32> {
        let socket = self.datagram(id).ok_or(libc::ENOTSOCK)?;
        let unix = socket.is_unix();
        match option {
            DatagramOption::CountDrops => socket.requested.drops = true,
            DatagramOption::Timestamps => socket.requested.timestamps = true,
            DatagramOption::ForceReceiveBuffer(bytes) => socket.receive_capacity = 2 * bytes as usize,
            DatagramOption::Broadcast => {}
            _ if unix => return Err(libc::EOPNOTSUPP),
            DatagramOption::Errors { .. } => socket.queues_errors = true,
            DatagramOption::Gro => socket.requested.joins = true,
            DatagramOption::Ecn { .. } => socket.requested.ecn = true,
            DatagramOption::LocalAddress { .. } => socket.requested.local_address = true,
            DatagramOption::MulticastLoop { .. } | DatagramOption::MulticastHops { .. } => {}
            DatagramOption::Membership {
                group,
                interface: _,
                member,
            } => return socket.set_membership(group, member),
            DatagramOption::SteerByCpu { sockets } => return self.steer_by_processor(id, sockets),
        }
        Ok(())
    }

    /// `setsockopt(2)`, the options that all sockets have.
    pub(crate) fn set_option_of_datagrams(&mut self, id: ObjectId, option: SocketOption) {
        let Some(socket) = self.datagram(id) else { return };
        match option {
            SocketOption::ReceiveBuffer(bytes) => socket.receive_capacity = (2 * bytes as usize).max(2304),
            SocketOption::SendBuffer(bytes) => socket.send_capacity = (2 * bytes as usize).max(4608),
            SocketOption::ReusePort(on) => socket.shares_port = on,
            _ => {}
        }
    }

    /// `bind(2)`.
    pub(super) fn bind_datagram(&mut self, id: ObjectId, address: Address) -> Result<(), i32> {
        let socket = self.datagram(id).ok_or(libc::ENOTSOCK)?;
        if socket.local.is_some() {
            return Err(libc::EINVAL);
        }
        socket.local = Some(address.clone());
        if socket.shares_port && !socket.is_unix() {
            self.join_port(id, &address);
        }
        self.bound.push((address, id));
        Ok(())
    }

    /// Gives a socket that is not bound a port, as sending and connecting do. Unix sockets stay without a name.
    fn bind_somewhere(&mut self, id: ObjectId) {
        let Some(socket) = self.datagram(id) else { return };
        let ip = match socket.family {
            _ if socket.local.is_some() => return,
            DatagramFamily::V4 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            DatagramFamily::V6 => IpAddr::V6(std::net::Ipv6Addr::LOCALHOST),
            DatagramFamily::Unix => return,
        };
        self.next_port = self.next_port.wrapping_add(1).max(40_000);
        let address = Address::Tcp(SocketAddr::new(ip, self.next_port));
        let _ = self.bind_datagram(id, address);
    }

    /// `connect(2)`.
    pub(crate) fn connect_datagram(&mut self, id: ObjectId, to: &Address) -> Result<(), i32> {
        self.check_family(id, to)?;
        if to.is_unix() && !self.network.has_peer(to) {
            let found = self.bound_to(to).ok_or(libc::ECONNREFUSED)?;
            let other = self.datagram_at(found).ok_or(libc::EPROTOTYPE)?;
            if other.peer.is_some() && other.peer != self.datagram_at(id).and_then(|own| own.local.clone()) {
                return Err(libc::EPERM);
            }
        }
        self.bind_somewhere(id);
        if let Some(socket) = self.datagram(id) {
            socket.peer = Some(to.clone());
        }
        Ok(())
    }

    fn check_family(&self, id: ObjectId, to: &Address) -> Result<(), i32> {
        let family = self.datagram_at(id).ok_or(libc::ENOTSOCK)?.family;
        match (to, family) {
            (Address::Tcp(SocketAddr::V4(_)), DatagramFamily::V4)
            | (Address::Tcp(SocketAddr::V6(_)), DatagramFamily::V6) => Ok(()),
            (Address::Tcp(_), DatagramFamily::Unix) => Err(libc::EINVAL),
            (Address::Tcp(_), _) => Err(libc::EAFNOSUPPORT),
            (_, DatagramFamily::Unix) => Ok(()),
            _ => Err(libc::EAFNOSUPPORT),
        }
    }

    pub(super) fn datagram_mask(&self, socket: &DatagramSocket) -> u32 {
        let mut mask = 0;
        if !socket.queue.is_empty() {
            mask |= events::IN;
        }
        if socket.error.is_some() || !socket.error_queue.is_empty() {
            mask |= events::ERR;
        }
        let blocked = socket.is_unix()
            && socket.peer.as_ref().is_some_and(|peer| {
                let other = self.bound_to(peer).and_then(|other| self.datagram_at(other));
                other.is_some_and(|other| other.queue.len() > UNIX_QUEUE && other.peer != socket.local)
            });
        if socket.has_space() && !blocked {
            mask |= events::OUT;
        }
        mask
    }

    /// `recvmsg(2)` without waiting, with so much room for the payload and for control messages.
    pub(crate) fn receive_datagram(
        &mut self,
        id: ObjectId,
        room: usize,
        control_room: usize,
    ) -> Result<Received, i32> {
        if self.datagram_at(id).is_none() {
            return Err(libc::ENOTSOCK);
        }
        let arrived = loop {
            let damaged = self.strikes(Fault::DatagramDamaged);
            let Some(socket) = self.datagram(id) else {
                return Err(libc::ENOTSOCK);
            };
            if let Some(error) = socket.error.take() {
                return Err(error);
            }
            let arrived = socket.queue.pop_front().ok_or(libc::EAGAIN)?;
            socket.queued -= arrived.bytes.len() + OVERHEAD;
            if damaged && !socket.is_unix() {
                socket.drops = socket.drops.wrapping_add(1);
                self.counts.incidents.datagrams_dropped += 1;
                continue;
            }
            break arrived;
        };
        self.note(|| format!("datagram to object {id} of {} bytes", arrived.bytes.len()));
        let Some(socket) = self.datagram(id) else {
            return Err(libc::ENOTSOCK);
        };
        let length = room.min(arrived.bytes.len());
        let (control, control_cut) =
            control::write(socket.requested, &arrived.facts, socket.family, control_room);
        let truncated = length < arrived.bytes.len();
        let received = Received {
            name: memory::address_bytes(&arrived.from),
            control,
            bytes: arrived.bytes.clone(),
            length,
            flags: if truncated { libc::MSG_TRUNC } else { 0 }
                | if control_cut { libc::MSG_CTRUNC } else { 0 },
        };
        let mut senders = std::mem::take(&mut socket.senders);
        let local = socket.local.clone().filter(Address::is_unix);
        if let Some(watch) = socket.watch {
            self.passed[watch].handed.push_back(Handed {
                from: arrived.from,
                bytes: arrived.bytes,
                length,
                facts: arrived.facts,
                control_cut,
            });
        }
        self.counts.incidents.datagrams_received += 1;
        self.counts.incidents.datagrams_truncated += u64::from(truncated);
        self.datagrams_moved += 1;
        if let Some(local) = local {
            self.find_connected(&local, &mut senders);
        }
        for sender in senders {
            self.wake(sender, events::OUT);
        }
        Ok(received)
    }

    /// `recvmsg(2)` without waiting, into what a header at `address` names. Returns the bytes received.
    pub(crate) fn receive_message(&mut self, id: ObjectId, address: usize) -> Result<usize, i32> {
        let header = memory::header(address);
        let pieces = memory::pieces(address);
        let room = pieces.iter().map(|&(_, length)| length).sum();
        let received = self.receive_datagram(id, room, header.control.1)?;
        if received.length > 0 && pieces.iter().any(|&(at, length)| at == 0 && length > 0) {
            // What cannot be written down is lost (`udp_recvmsg`, `unix_dgram_recvmsg`). No engine has this happen.
            if let Some(socket) = self.datagram(id).filter(|socket| !socket.is_unix()) {
                socket.drops = socket.drops.wrapping_add(1);
            }
            return Err(libc::EFAULT);
        }
        let name = &received.name[..received.name.len().min(header.name.1)];
        memory::write(header.name.0, name);
        memory::write(header.control.0, &received.control);
        let mut rest = &received.bytes[..received.length];
        for (at, length) in pieces {
            let (now, later) = rest.split_at(length.min(rest.len()));
            memory::write(at, now);
            rest = later;
        }
        memory::write_header(
            address,
            received.name.len(),
            received.control.len(),
            received.flags,
        );
        Ok(received.length)
    }

    /// Adds the sockets that are connected to a Unix address: they are told that it has room, whether they have found it
    /// full by a send or by a poll (`unix_dgram_peer_wake_me`).
    fn find_connected(&self, to: &Address, found: &mut Vec<ObjectId>) {
        for &(_, id) in &self.bound {
            let socket = self.datagram_at(id);
            if socket.is_some_and(|socket| socket.peer.as_ref() == Some(to)) && !found.contains(&id) {
                found.push(id);
            }
        }
    }

    /// Whether there is no memory for a receive: for its call, that is. Receiving a datagram takes none, and so none of
    /// a call (`recvmmsg`) fails for that behind others. It may not: an error that is kept for the next call is told by
    /// no edge, unless it is the network's.
    pub(crate) fn fails_to_receive(&mut self, id: ObjectId) -> bool {
        matches!(self.objects[id].kind, Kind::Datagram(_)) && self.strikes(Fault::TransferFails)
    }

    /// An error from the network arrives between two datagrams of one call. It is drawn from random numbers of its own, so
    /// that older seeds do what they did.
    pub(crate) fn receive_error_meanwhile(&mut self, id: ObjectId) {
        let chance = self.profile.chance(Fault::DatagramRefused);
        let peer = self
            .datagram_at(id)
            .filter(|socket| !socket.is_unix())
            .and_then(|socket| socket.peer.clone());
        if let Some(peer) = peer
            && !self.fair
            && self.late_random.chance(chance)
        {
            self.counts.count(Fault::DatagramRefused);
            self.report_network_error(id, &peer, libc::ECONNREFUSED);
        }
    }

    /// `SO_ERROR`.
    pub(super) fn take_datagram_error(&mut self, id: ObjectId) -> Option<i32> {
        self.datagram(id)?.error.take()
    }

    /// An error that came behind others is told by the next call.
    pub(crate) fn keep_datagram_error(&mut self, id: ObjectId, error: i32) {
        if let Some(socket) = self.datagram(id) {
            socket.error = Some(error);
        }
    }

    /// A datagram reaches a socket.
    fn enqueue(&mut self, id: ObjectId, mut arrived: Arrived) {
        let Some(socket) = self.datagram(id) else { return };
        if socket.peer.as_ref().is_some_and(|peer| *peer != arrived.from) {
            return;
        }
        if !socket.is_unix() && socket.queued > socket.receive_capacity {
            socket.drops = socket.drops.wrapping_add(1);
            self.counts.incidents.datagrams_dropped += 1;
            return;
        }
        arrived.facts.drops = socket.drops;
        socket.queued += arrived.bytes.len() + OVERHEAD;
        socket.queue.push_back(arrived);
        self.wake(id, events::IN);
    }

    /// An error from the network reaches a socket, about a datagram to `to` (`__udp4_lib_err`).
    fn report_network_error(&mut self, id: ObjectId, to: &Address, error: i32) {
        let Some(socket) = self.datagram(id) else { return };
        if let Address::Tcp(to) = to
            && socket.queues_errors
        {
            // Without room it is not kept, and told all the same (`sock_queue_err_skb`).
            if socket.queued + ERROR_COST < socket.receive_capacity {
                socket.queued += ERROR_COST;
                socket.error_queue.push_back((*to, error));
            } else if let Some(watch) = socket.watch {
                self.passed[watch].errors_lost += 1;
            }
        } else if socket.peer.is_none() {
            return;
        }
        if let Some(socket) = self.datagram(id) {
            socket.error = Some(error);
        }
        self.wake(id, events::ERR);
    }

    /// `recvmsg(2)` with `MSG_ERRQUEUE`: to whom a datagram did not arrive, and why. Behind the last one the socket has no
    /// error any more, and before others theirs, which is told (`sock_dequeue_err_skb`).
    pub(crate) fn take_queued_error(&mut self, id: ObjectId) -> Result<(SocketAddr, i32), i32> {
        let socket = self.datagram(id).ok_or(libc::ENOTSOCK)?;
        let queued = socket.error_queue.pop_front().ok_or(libc::EAGAIN)?;
        socket.queued -= ERROR_COST;
        let next = socket.error_queue.front().map(|&(_, error)| error);
        socket.error = next;
        if let Some(watch) = socket.watch {
            self.passed[watch].errors_read.push_back(queued);
        }
        self.datagrams_moved += 1;
        if next.is_some() {
            self.wake(id, events::ERR);
        }
        Ok(queued)
    }

    /// The last reference is gone (`close(2)`).
    pub(super) fn end_datagram(&mut self, id: ObjectId, socket: DatagramSocket) {
        self.bound.retain(|&(_, bound)| bound != id);
        if socket.shares_port {
            self.leave_port(id);
        }
        let mut senders = socket.senders;
        if let Some(local) = socket.local.filter(Address::is_unix) {
            self.find_connected(&local, &mut senders);
        }
        for sender in senders {
            self.wake(sender, events::OUT);
        }
    }
}
