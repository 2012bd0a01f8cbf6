//! Submission entries, one function for each kind. Fields and flags are those of `io_uring_enter(2)`.

use std::os::fd::RawFd;

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_op as Opcode;

use super::sys::{STREAM_GROUP, SubmissionEntry};
use super::user_data::UserData;
use crate::address::SocketAddress;

/// Every send: a host that is not Rust may die of SIGPIPE, and a short send would cost another turn.
const SEND_FLAGS: u32 = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
/// `MSG_DONTWAIT` makes the kernel return instead of waiting for room, and `MSG_WAITALL` makes anything short of
/// all a failure, which has a completion.
const ATTEMPT_FLAGS: u32 = (libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL) as u32;

/// A field that is a bit number in the kernel's headers.
const fn flag(bit: abi::io_uring_sqe_flags_bit) -> u8 {
    1 << bit as u8
}

pub(super) const BUFFER_SELECT: u8 = flag(abi::io_uring_sqe_flags_bit::IOSQE_BUFFER_SELECT_BIT);
pub(super) const SKIP_SUCCESS: u8 = flag(abi::io_uring_sqe_flags_bit::IOSQE_CQE_SKIP_SUCCESS_BIT);
const LINK: u8 = flag(abi::io_uring_sqe_flags_bit::IOSQE_IO_LINK_BIT);
/// All flags that an entry may have.
pub(super) const ENTRY_FLAGS: u8 = BUFFER_SELECT | SKIP_SUCCESS | LINK;

#[inline]
fn entry(opcode: Opcode, descriptor: RawFd, user_data: UserData) -> SubmissionEntry {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut entry: SubmissionEntry = unsafe { std::mem::zeroed() };
    entry.opcode = opcode as u8;
    entry.fd = descriptor;
    entry.user_data = user_data.to_bits();
    entry
}

#[inline]
fn set_address(entry: &mut SubmissionEntry, address: u64) {
    entry.__bindgen_anon_2.addr = address;
}

/// Accepts one connection, or as many as come.
pub(super) fn accept(listener: RawFd, multishot: bool, user_data: UserData) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_ACCEPT, listener, user_data);
    entry.__bindgen_anon_3.accept_flags = libc::SOCK_CLOEXEC as u32;
    if multishot {
        entry.ioprio = abi::IORING_ACCEPT_MULTISHOT as u16;
    }
    entry
}

/// Connects. The address must stay in place until the completion.
pub(super) fn connect(socket: RawFd, address: &SocketAddress, user_data: UserData) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_CONNECT, socket, user_data);
    let (address, length) = address.as_raw();
    set_address(&mut entry, address.expose_provenance() as u64);
    entry.__bindgen_anon_1.off = u64::from(length);
    entry
}

/// Receives into buffers of the stream group, many times; until about `budget` bytes have come unless it is 0.
#[inline]
pub(super) fn receive_multishot(socket: RawFd, budget: u32, user_data: UserData) -> SubmissionEntry {
    let mut entry = receive_selected(socket, 0, user_data);
    entry.ioprio = abi::IORING_RECV_MULTISHOT as u16;
    // The kernel counts down with signed arithmetic (`io_recv_finish`): from 2^31 on it would end at once.
    entry.__bindgen_anon_5.optlen = budget.min(i32::MAX as u32);
    entry
}

/// Receives once, at most `length` bytes, into a buffer of the stream group.
#[inline]
pub(super) fn receive_selected(socket: RawFd, length: u32, user_data: UserData) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_RECV, socket, user_data);
    entry.flags = BUFFER_SELECT;
    entry.len = length;
    entry.__bindgen_anon_4.buf_group = STREAM_GROUP;
    entry
}

/// Receives what is there, at most `length` bytes, to `address`. Does not wait.
pub(super) fn receive_now(
    socket: RawFd,
    address: *mut u8,
    length: u32,
    user_data: UserData,
) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_RECV, socket, user_data);
    set_address(&mut entry, address.expose_provenance() as u64);
    entry.len = length;
    entry.__bindgen_anon_3.msg_flags = libc::MSG_DONTWAIT as u32;
    entry
}

/// Receives at most `length` bytes to `address`, waiting for the first of them.
pub(super) fn receive(socket: RawFd, address: *mut u8, length: u32, user_data: UserData) -> SubmissionEntry {
    let mut entry = receive_now(socket, address, length, user_data);
    entry.__bindgen_anon_3.msg_flags = 0;
    entry
}

/// Receives datagrams into buffers of `group`, many times. The header says how much room each part of a buffer has.
pub(super) fn receive_datagrams(
    socket: RawFd,
    header: *const libc::msghdr,
    group: u16,
    user_data: UserData,
) -> SubmissionEntry {
    let mut entry = receive_datagram(socket, header, user_data);
    entry.ioprio = abi::IORING_RECV_MULTISHOT as u16;
    entry.flags = BUFFER_SELECT;
    entry.__bindgen_anon_4.buf_group = group;
    entry
}

/// Receives one datagram to where the header says, which with all that it names stays in place until the completion.
pub(super) fn receive_datagram(
    socket: RawFd,
    header: *const libc::msghdr,
    user_data: UserData,
) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_RECVMSG, socket, user_data);
    set_address(&mut entry, header.expose_provenance() as u64);
    entry.len = 1;
    entry
}

/// Sends one datagram, which with all that the header names stays in place until the completion.
pub(super) fn send_datagram(
    socket: RawFd,
    header: *const libc::msghdr,
    waits: bool,
    user_data: UserData,
) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_SENDMSG, socket, user_data);
    set_address(&mut entry, header.expose_provenance() as u64);
    entry.len = 1;
    let dont_wait = if waits { 0 } else { libc::MSG_DONTWAIT };
    entry.__bindgen_anon_3.msg_flags = (libc::MSG_NOSIGNAL | dont_wait) as u32;
    entry
}

/// Puts off the entry behind this one until this has succeeded, and cancels it if this fails.
pub(super) fn link_to_next(entry: &mut SubmissionEntry) {
    entry.flags |= LINK;
}

/// Waits once for one of `events` (`poll(2)`).
pub(super) fn poll(descriptor: RawFd, events: i16, user_data: UserData) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_POLL_ADD, descriptor, user_data);
    let events = u32::from(events as u16);
    // The kernel reads two 16-bit halves, the first of which holds the classic events.
    entry.__bindgen_anon_3.poll32_events = if cfg!(target_endian = "big") {
        events.rotate_left(16)
    } else {
        events
    };
    entry
}

/// Reports each time that one of `events` happens.
pub(super) fn poll_multishot(descriptor: RawFd, events: i16, user_data: UserData) -> SubmissionEntry {
    let mut entry = poll(descriptor, events, user_data);
    entry.len = abi::IORING_POLL_ADD_MULTI;
    entry
}

/// Reads an eventfd's counter to `counter`, and resets it.
pub(super) fn read_counter(eventfd: RawFd, counter: *mut u64, user_data: UserData) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_READ, eventfd, user_data);
    set_address(&mut entry, counter.expose_provenance() as u64);
    entry.len = size_of::<u64>() as u32;
    entry
}

/// Does nothing but complete.
pub(super) fn nothing(user_data: UserData) -> SubmissionEntry {
    entry(Opcode::IORING_OP_NOP, -1, user_data)
}

/// Sends one piece.
#[inline]
pub(super) fn send(socket: RawFd, address: u64, length: u32, user_data: UserData) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_SEND, socket, user_data);
    set_address(&mut entry, address);
    entry.len = length;
    entry.__bindgen_anon_3.msg_flags = SEND_FLAGS;
    entry
}

/// Sends the pieces of a header, which must stay in place until the entry is submitted, and the pieces' memory
/// until the completion.
#[inline]
pub(super) fn send_message(
    socket: RawFd,
    header: *const libc::msghdr,
    user_data: UserData,
) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_SENDMSG, socket, user_data);
    set_address(&mut entry, header.expose_provenance() as u64);
    entry.len = 1;
    entry.__bindgen_anon_3.msg_flags = SEND_FLAGS;
    entry
}

/// Has one of the two sends above end once the socket has taken a part of it.
#[inline]
pub(super) fn make_partial(entry: &mut SubmissionEntry) {
    entry.__bindgen_anon_3.msg_flags = libc::MSG_NOSIGNAL as u32;
}

/// Makes one of the two sends above an attempt: it ends while it is submitted, without a completion if the socket
/// takes all, otherwise with one that says how much, or `EAGAIN`.
#[inline]
pub(super) fn make_attempt(entry: &mut SubmissionEntry) {
    entry.__bindgen_anon_3.msg_flags = ATTEMPT_FLAGS;
    entry.flags |= SKIP_SUCCESS;
}

/// Makes one of the two sends above a zero-copy one, from registered memory if the piece lies there.
#[inline(always)]
pub(super) fn make_zero_copy(entry: &mut SubmissionEntry, registered: bool) {
    entry.opcode = if entry.opcode == Opcode::IORING_OP_SEND as u8 {
        Opcode::IORING_OP_SEND_ZC as u8
    } else {
        Opcode::IORING_OP_SENDMSG_ZC as u8
    };
    entry.ioprio = abi::IORING_SEND_ZC_REPORT_USAGE as u16;
    if registered {
        entry.ioprio |= abi::IORING_RECVSEND_FIXED_BUF as u16;
        entry.__bindgen_anon_4.buf_index = 0;
    }
}

/// Cancels what has the user data `target`; without a completion for success if `skip_success`.
pub(super) fn cancel(target: UserData, skip_success: bool) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_ASYNC_CANCEL, -1, target.cancellation());
    set_address(&mut entry, target.to_bits());
    skip(&mut entry, skip_success);
    entry
}

/// Closes a descriptor; without a completion for success if `skip_success`.
pub(super) fn close(descriptor: RawFd, skip_success: bool, user_data: UserData) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_CLOSE, descriptor, user_data);
    skip(&mut entry, skip_success);
    entry
}

fn skip(entry: &mut SubmissionEntry, skip_success: bool) {
    if skip_success {
        entry.flags |= SKIP_SUCCESS;
    }
}
