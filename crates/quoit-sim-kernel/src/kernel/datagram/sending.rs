//! Sending: what `sendmsg(2)` on a datagram socket returns.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use quoit::Address;
use quoit::internals::sys::DatagramFamily;

use super::super::Kernel;
use super::super::object::ObjectId;
use super::network::ip;
use super::{
    Arrived, DatagramSocket, Departed, Facts, LARGEST_V4, LARGEST_V6, MOST_SEGMENTS, UNIX_QUEUE, Wishes,
    control,
};
use crate::faults::Fault;
use crate::memory;

/// Of so many receivers it may be told that no segments are sent to them, and the others still get some.
const DEVICE: usize = 16;
/// The IPv4 network whose hosts are behind a path with a small MTU: the first two octets of their addresses.
pub const NARROW_NETWORK: [u8; 2] = [127, 77];
/// The longest segment that gets through to those behind a narrow path.
const NARROW: usize = 8;

/// Whether a receiver is behind a path with a small MTU, where the kernel refuses longer segments.
fn is_narrow(to: &Address) -> bool {
    matches!(ip(to), IpAddr::V4(ip) if ip.octets()[..2] == NARROW_NETWORK)
}

impl Kernel {
    /// `sendmsg(2)` without waiting, of what a header at `address` names. Returns the bytes that were taken: all.
    ///
    /// Of a message that is `spent` nothing is left but an empty one. It is spent when it finds a Unix receiver full:
    /// `unix_dgram_sendmsg` has taken the bytes in by then. A call that is over does not mind; io_uring tries the same
    /// message again when there is room (seen on Linux 6.18).
    pub(crate) fn send_message(
        &mut self,
        id: ObjectId,
        address: usize,
        spent: &mut bool,
    ) -> Result<usize, i32> {
        let header = memory::header(address);
        let to = match header.name {
            (_, 0) => None,
            (at, length) => {
                Some(Address::try_from(&memory::socket_address(at, length)).map_err(|_| libc::EINVAL)?)
            }
        };
        let control = match header.control {
            (_, 0) => &[][..],
            (at, length) => memory::read(at, length),
        };
        let pieces = if *spent {
            Vec::new()
        } else {
            memory::pieces(address)
        };
        let pieces = pieces.iter().filter(|&&(_, length)| length > 0);
        let addressed = to.is_some();
        let result = self.send_datagram(
            id,
            to,
            control,
            pieces.map(|&(at, length)| memory::read(at, length)),
        );
        let finds_own_room = |socket: &DatagramSocket| socket.sending < socket.send_capacity;
        *spent |= result == Err(libc::EAGAIN)
            && self.spends_messages
            && self.datagram_at(id).is_some_and(finds_own_room);
        // One that fails has moved on as well, and so has one to another than the peer that finds no room: it is lost.
        self.datagrams_moved += u64::from(addressed || result != Err(libc::EAGAIN));
        self.note(|| format!("datagram from object {id}: {result:?}"));
        result
    }

    /// Takes one datagram. Returns the bytes that were taken: all.
    pub(crate) fn send_datagram<'a>(
        &mut self,
        id: ObjectId,
        to: Option<Address>,
        control: &[u8],
        pieces: impl Iterator<Item = &'a [u8]>,
    ) -> Result<usize, i32> {
        let to = match to {
            Some(to) => {
                self.check_family(id, &to)?;
                Some(to)
            }
            None => self.datagram_at(id).ok_or(libc::ENOTSOCK)?.peer.clone(),
        };
        let unix = self.datagram_at(id).is_some_and(DatagramSocket::is_unix);
        let nowhere = if unix { libc::ENOTCONN } else { libc::EDESTADDRREQ };
        let to = to.ok_or(nowhere)?;
        let wishes = if unix {
            Wishes::default()
        } else {
            control::read(control)?
        };
        let mut bytes = Vec::new();
        pieces.for_each(|piece| bytes.extend_from_slice(piece));
        let length = bytes.len();
        if self.strikes(Fault::TransferFails) {
            return Err(libc::ENOBUFS);
        }
        self.bind_somewhere(id);
        if unix {
            self.send_unix(id, &to, bytes.into())?;
        } else {
            self.send_udp(id, &to, bytes.into(), wishes)?;
        }
        self.counts.incidents.datagrams_sent += 1;
        Ok(length)
    }

    fn log_departed(&mut self, id: ObjectId, to: &Address, bytes: &Bytes, wishes: Wishes) {
        let Some(socket) = self.datagram(id) else {
            return;
        };
        let may_be_uncut = socket.refused.contains(&ip(to)) || socket.refused_any.len() > DEVICE;
        if let Some(watch) = socket.watch {
            self.passed[watch].departed.push(Departed {
                to: to.clone(),
                bytes: bytes.clone(),
                wishes,
                may_be_uncut,
            });
        }
    }

    /// Whether the socket is full, really or by a fault.
    fn is_full(&mut self, id: ObjectId) -> bool {
        let full = self.strikes(Fault::FullSend);
        let Some(socket) = self.datagram(id) else {
            return false;
        };
        if full {
            // Something else fills it for a while.
            let size = socket.send_capacity;
            socket.sending += size;
            self.plan_room(id, size);
        }
        let is_full = self
            .datagram_at(id)
            .is_some_and(|socket| socket.sending >= socket.send_capacity);
        self.counts.incidents.full_sockets += u64::from(is_full);
        is_full
    }

    fn send_udp(&mut self, id: ObjectId, to: &Address, bytes: Bytes, wishes: Wishes) -> Result<(), i32> {
        let result = self.try_send_udp(id, to, bytes, wishes);
        // Nor can the network's error for another one be distinguished from a refusal.
        if let (Err(error @ (libc::EIO | libc::EINVAL | libc::EMSGSIZE)), 1..) = (result, wishes.segment_size)
            && let Some(socket) = self.datagram(id)
        {
            socket.refused.insert(ip(to));
            if error == libc::EIO {
                socket.refused_any.insert(ip(to));
            }
        }
        result
    }

    fn try_send_udp(&mut self, id: ObjectId, to: &Address, bytes: Bytes, wishes: Wishes) -> Result<(), i32> {
        let refused = self.strikes(Fault::SegmentsRefused);
        let socket = self.datagram(id).ok_or(libc::ENOTSOCK)?;
        let largest = match socket.family {
            DatagramFamily::V4 => LARGEST_V4,
            _ => LARGEST_V6,
        };
        if bytes.len() > largest {
            return Err(libc::EMSGSIZE);
        }
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        if self.is_full(id) {
            return Err(libc::EAGAIN);
        }
        let step = usize::from(wishes.segment_size);
        if step > 0 && bytes.len() > step {
            if bytes.len().div_ceil(step) > MOST_SEGMENTS {
                return Err(libc::EINVAL);
            }
            let error = if refused {
                Some(*self.random.choose(&[libc::EIO, libc::EINVAL, libc::EMSGSIZE]))
            } else if is_narrow(to) && step > NARROW {
                Some(*self.random.choose(&[libc::EINVAL, libc::EMSGSIZE]))
            } else {
                None
            };
            if let Some(error) = error {
                return Err(error);
            }
        }
        self.log_departed(id, to, &bytes, wishes);
        self.transmit(id, to, bytes, wishes);
        Ok(())
    }

    fn send_unix(&mut self, id: ObjectId, to: &Address, bytes: Bytes) -> Result<(), i32> {
        let socket = self.datagram(id).ok_or(libc::ENOTSOCK)?;
        if bytes.len() + 32 > socket.send_capacity {
            return Err(libc::EMSGSIZE);
        }
        if let Some(error) = socket.error.take() {
            return Err(error);
        }
        let connected = socket.peer.as_ref() == Some(to);
        let from = socket.local.clone();
        if self.is_full(id) {
            return Err(libc::EAGAIN);
        }
        if self.network.has_peer(to) {
            self.log_departed(id, to, &bytes, Wishes::default());
            self.reach_peer(to, from.unwrap_or(Address::UnixUnnamed), bytes.len());
            return Ok(());
        }
        let found = self
            .bound_to(to)
            .filter(|&found| self.datagram_at(found).is_some());
        let Some(found) = found else {
            if connected && let Some(socket) = self.datagram(id) {
                // The connection ends with the peer, and what came over it is dropped (`unix_dgram_disconnected`).
                socket.peer = None;
                socket.queue.clear();
                socket.queued = 0;
            }
            return Err(libc::ECONNREFUSED);
        };
        let other = self.datagram(found).ok_or(libc::ECONNREFUSED)?;
        if other.peer.is_some() && other.peer != from {
            return Err(libc::EPERM);
        }
        if other.queue.len() > UNIX_QUEUE && other.peer.is_none() {
            if connected && !other.senders.contains(&id) {
                other.senders.push(id);
            }
            self.counts.incidents.full_sockets += 1;
            return Err(libc::EAGAIN);
        }
        self.log_departed(id, to, &bytes, Wishes::default());
        let facts = Facts {
            to: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            ecn: 0,
            time: self.now,
            segment_size: 0,
            drops: 0,
            steered: None,
        };
        let from = from.unwrap_or(Address::UnixUnnamed);
        self.enqueue(found, Arrived { from, bytes, facts });
        Ok(())
    }
}
