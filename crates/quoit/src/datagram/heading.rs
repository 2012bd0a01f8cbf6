//! What the kernel is told of a datagram that is sent, beside its bytes.

use std::net::Ipv4Addr;

use super::{Control, DatagramSend, is_v6, set_destination};
use crate::address::SocketAddress;
use crate::errno::Errno;
use crate::event::Refusal;
use crate::sys::DatagramFamily;

/// Where a send goes, and the control messages that go with it.
#[derive(Debug)]
pub(crate) struct Heading {
    /// Empty: to the peer that the socket is connected to.
    pub(crate) to: SocketAddress,
    pub(crate) control: Control,
}

impl Heading {
    pub(crate) const fn empty() -> Self {
        Self {
            to: SocketAddress::empty(),
            control: Control::NONE,
        }
    }

    /// Has a header point here, which stays where it is while that is used. `segmented`: the segment size is told, too.
    #[inline]
    pub(crate) fn fill(&mut self, header: &mut libc::msghdr, segmented: bool) {
        if !self.to.is_empty() {
            let (address, length) = self.to.as_raw();
            header.msg_name = address.cast_mut().cast();
            header.msg_namelen = length;
        }
        let (control, length) = self.control.as_raw(segmented);
        header.msg_control = control;
        header.msg_controllen = length as _;
    }
}

/// What of a socket decides how its sends are headed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) family: DatagramFamily,
    /// Whether it has a peer, and whether packets to that are of IPv6.
    pub(crate) connected: bool,
    pub(crate) peer_v6: bool,
}

impl Way {
    /// Writes what the kernel is to be told of a send, whatever was there before.
    #[inline]
    pub(crate) fn write(self, heading: &mut Heading, datagram: &DatagramSend<'_>) -> Result<(), Refusal> {
        if datagram.segment_size == Some(0) {
            return Err(Errno::EINVAL.into());
        }
        match &datagram.to {
            Some(to) => set_destination(&mut heading.to, self.family, to).map_err(|_| Errno::EINVAL)?,
            None if self.connected => heading.to.clear(),
            None => return Err(Errno::new(libc::EDESTADDRREQ).into()),
        }
        let control = &mut heading.control;
        control.clear();
        if self.family != DatagramFamily::Unix {
            let v6 = self.family == DatagramFamily::V6;
            // Mapped addresses are IPv4's.
            let goes_v6 = || v6 && datagram.to.as_ref().map_or(self.peer_v6, is_v6);
            if datagram.source.is_some() || datagram.interface.is_some() {
                let any = || (v6 && !goes_v6()).then_some(Ipv4Addr::UNSPECIFIED.into());
                let source = datagram.source.or_else(any);
                control.set_source(v6, source, datagram.interface.unwrap_or_default());
            }
            if let Some(ecn) = datagram.ecn {
                control.set_ecn(goes_v6(), ecn);
            }
            if let Some(size) = datagram.segment_size {
                control.set_segment_size(size);
            }
        }
        Ok(())
    }
}
