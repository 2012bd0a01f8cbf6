//! Message headers that point to buffers: what recvmsg(2) and its kin fill.

use std::mem::MaybeUninit;

/// Words of control memory per message: room for UDP_GRO's segment size.
const CONTROL_WORDS: usize = 4;

/// Headers, each with a buffer of its own. They may be sent to the kernel as often as wanted; the memory stays where it
/// is for as long as this lives.
pub struct Messages {
    headers: Box<[libc::mmsghdr]>,
    memory: Box<[u8]>,
    room: usize,
    // Only pointed to by the headers, and kept alive by being here.
    _parts: Box<[libc::iovec]>,
    control: Box<[[u64; CONTROL_WORDS]]>,
}

impl Messages {
    /// `count` messages of up to `room` bytes.
    #[must_use]
    pub fn new(count: usize, room: usize) -> Self {
        let mut memory = vec![0; count * room].into_boxed_slice();
        let mut parts: Box<[_]> = memory
            .chunks_exact_mut(room)
            .map(|buffer| libc::iovec {
                iov_base: buffer.as_mut_ptr().cast(),
                iov_len: buffer.len(),
            })
            .collect();
        let mut control = vec![[0; CONTROL_WORDS]; count].into_boxed_slice();
        let headers = parts
            .iter_mut()
            .zip(&mut control)
            .map(|(part, control)| {
                // SAFETY: an mmsghdr is plain numbers and pointers, for which all zeroes is a valid value.
                let mut header: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = control.as_mut_ptr().cast();
                header
            })
            .collect();
        let mut messages = Self {
            headers,
            memory,
            room,
            _parts: parts,
            control,
        };
        for index in 0..count {
            messages.reset(index);
        }
        messages
    }

    /// Lets a message be received into again: a receive has overwritten how much control memory there is.
    pub fn reset(&mut self, index: usize) {
        self.headers[index].msg_hdr.msg_controllen = size_of_val(&self.control[index]) as _;
    }

    /// All headers, for a system call.
    pub fn headers(&mut self) -> &mut [libc::mmsghdr] {
        &mut self.headers
    }

    /// A message of so many bytes that was received: its bytes, how long the datagrams in it are if GRO joined some,
    /// and whether its end is there.
    #[must_use]
    pub fn message(&self, index: usize, length: usize) -> (&[u8], Option<usize>, bool) {
        let header = &self.headers[index].msg_hdr;
        let whole = header.msg_flags & libc::MSG_TRUNC == 0;
        let start = index * self.room;
        (
            &self.memory[start..start + length.min(self.room)],
            segment(header),
            whole,
        )
    }

    /// Bytes that are received into.
    #[must_use]
    pub fn pool(&self) -> usize {
        self.memory.len()
    }
}

/// The size of the datagrams that GRO joined (UDP_GRO, udp(7)).
fn segment(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel has filled the control memory of `header`, and says how much of it.
    let mut control = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !control.is_null() {
        // SAFETY: the macros give only headers that lie wholly within the control memory.
        let (level, kind) = unsafe { ((*control).cmsg_level, (*control).cmsg_type) };
        if (level, kind) == (libc::SOL_UDP, libc::UDP_GRO) {
            // SAFETY: the data of this kind of message is an int, which need not be aligned.
            let size = unsafe { libc::CMSG_DATA(control).cast::<libc::c_int>().read_unaligned() };
            return usize::try_from(size).ok();
        }
        // SAFETY: `control` is a header within the control memory of `header`.
        control = unsafe { libc::CMSG_NXTHDR(header, control) };
    }
    None
}
