//! The system calls of a sender that no library offers which it uses.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// Room for one control message that holds a `u16`, aligned as the kernel wants it.
const CONTROL_WORDS: usize = 4;

/// Sends `pieces` as datagrams of their own on a connected socket (sendmmsg(2)): how many were sent, at least one.
/// `scratch` is memory for the call, used again and again.
///
/// # Errors
/// Those of sendmmsg(2) for the first of them.
pub(super) fn send_many<'a>(
    socket: BorrowedFd<'_>,
    pieces: impl Iterator<Item = &'a [u8]>,
    scratch: &mut Scratch,
) -> io::Result<usize> {
    scratch.parts.clear();
    scratch.messages.clear();
    scratch.parts.extend(pieces.map(|piece| libc::iovec {
        iov_base: piece.as_ptr().cast_mut().cast(),
        iov_len: piece.len(),
    }));
    for part in &mut scratch.parts {
        // SAFETY: a msghdr is plain numbers and pointers, for which all zeroes is a valid value.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        message.msg_hdr.msg_iov = part;
        message.msg_hdr.msg_iovlen = 1;
        scratch.messages.push(message);
    }
    let count = libc::c_uint::try_from(scratch.messages.len()).expect("a batch is at most 1,024 datagrams");
    // SAFETY: the messages point to `scratch.parts`, which is not touched any more, and those to the pieces, which
    // outlive the call and are only read by it.
    let sent = unsafe { libc::sendmmsg(socket.as_raw_fd(), scratch.messages.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Memory for [`send_many`].
#[derive(Default)]
pub(super) struct Scratch {
    parts: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

/// Sends `buffer` on a connected socket as datagrams of `segment` bytes, the last one of what remains (UDP_SEGMENT,
/// udp(7)).
///
/// # Errors
/// Those of sendmsg(2); EIO if the device cannot, EINVAL if there are too many segments or they are larger than the
/// MTU.
pub(super) fn send_segments(socket: BorrowedFd<'_>, buffer: &[u8], segment: u16) -> io::Result<()> {
    let mut part = libc::iovec {
        iov_base: buffer.as_ptr().cast_mut().cast(),
        iov_len: buffer.len(),
    };
    let mut control = [0_u64; CONTROL_WORDS];
    // SAFETY: a msghdr is plain numbers and pointers, for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: both compute from a number.
    let (space, length) = unsafe { (libc::CMSG_SPACE(2), libc::CMSG_LEN(2)) };
    message.msg_controllen = space as _;
    assert!(
        space as usize <= size_of_val(&control),
        "the control message fits"
    );
    // SAFETY: the control memory holds one header and two bytes of data, aligned as a `u64`, so that the first header
    // and its data lie within it.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_UDP;
        (*header).cmsg_type = libc::UDP_SEGMENT;
        (*header).cmsg_len = length as _;
        libc::CMSG_DATA(header).cast::<u16>().write_unaligned(segment);
    }
    // SAFETY: the message points to memory that outlives the call and is only read by it.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &message, 0) };
    match usize::try_from(sent) {
        Ok(sent) if sent == buffer.len() => Ok(()),
        Ok(sent) => Err(io::Error::other(format!(
            "{sent} of {} bytes were sent",
            buffer.len()
        ))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Buffers into which many datagrams are received by one call.
pub(super) struct Inbox {
    memory: Vec<u8>,
    room: usize,
    lengths: Vec<usize>,
}

impl Inbox {
    /// For `count` datagrams of up to `room` bytes per call.
    pub(super) fn new(count: usize, room: usize) -> Self {
        Self {
            memory: vec![0; count * room],
            room,
            lengths: Vec::with_capacity(count),
        }
    }

    /// Receives what is there without waiting (recvmmsg(2)): how many, at least one.
    ///
    /// # Errors
    /// Those of recvmmsg(2); `WouldBlock` if nothing is there.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let mut parts = [MaybeUninit::<libc::iovec>::uninit(); Self::MOST];
        let mut messages = [const { MaybeUninit::<libc::mmsghdr>::zeroed() }; Self::MOST];
        let mut count: libc::c_uint = 0;
        for ((part, message), memory) in parts
            .iter_mut()
            .zip(&mut messages)
            .zip(self.memory.chunks_exact_mut(self.room))
        {
            let part = part.write(libc::iovec {
                iov_base: memory.as_mut_ptr().cast(),
                iov_len: memory.len(),
            });
            // SAFETY: an mmsghdr is plain numbers and pointers, for which all zeroes is a valid value.
            let message = unsafe { message.assume_init_mut() };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
            count += 1;
        }
        // SAFETY: `count` messages are initialized and point to as many initialized parts; those point to memory of
        // their own, which outlives the call.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr().cast(),
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        self.lengths.clear();
        self.lengths.extend(messages[..received].iter().map(|message| {
            // SAFETY: the first `received` messages were initialized above, and filled by the call.
            unsafe { message.assume_init_ref() }.msg_len as usize
        }));
        Ok(received)
    }

    /// What was received last.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.memory
            .chunks_exact(self.room)
            .zip(&self.lengths)
            .map(|(memory, &length)| &memory[..length])
    }

    /// Datagrams that one call can receive.
    pub(super) const MOST: usize = 32;
}

/// Waits until `socket` has something to read or an error, or the time is over (ppoll(2)).
///
/// # Errors
/// Those of ppoll(2); an interruption by a signal is none.
pub(super) fn wait_readable(socket: BorrowedFd<'_>, longest: Duration) -> io::Result<()> {
    let mut entry = libc::pollfd {
        fd: socket.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let time = libc::timespec {
        tv_sec: longest.as_secs() as _,
        tv_nsec: longest.subsec_nanos().into(),
    };
    // SAFETY: the entry and the time are valid and outlive the call; no signal mask is given.
    let result = unsafe { libc::ppoll(&mut entry, 1, &time, std::ptr::null()) };
    match io::Error::last_os_error() {
        error if result < 0 && error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Lets the calling thread's waits end when they are to (PR_SET_TIMERSLACK, prctl(2)): by default the kernel may
/// prolong them by 50 microseconds.
pub(super) fn be_punctual() {
    // SAFETY: the call takes numbers alone. It cannot fail for this option.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0) };
}
