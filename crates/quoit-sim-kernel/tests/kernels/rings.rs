//! Operations as the io_uring engine submits them.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_op as Opcode;
use quoit::address::SocketAddress;
use quoit::internals::engine::epoll::Epoll;
use quoit::internals::engine::epoll::sys::EpollSys;
use quoit::internals::engine::uring::sys::{
    CompletionEntry, ProvidedBuffer, RingParameters, STREAM_GROUP, SubmissionEntry, UringSys,
};
use quoit::internals::engine::uring::{Ring, probe};
use quoit::internals::sys::{Linux, SocketSys};
use quoit::{Address, Errno, FeatureSet};
use quoit_sim_kernel::faces::{SimEpoll, SimRing, SimSockets};

use super::sockets::Script;
use super::{Notes, compare};

const LONG: Option<Duration> = Some(Duration::from_secs(30));
pub(crate) const SELECTS: u8 = 1 << abi::io_uring_sqe_flags_bit::IOSQE_BUFFER_SELECT_BIT as u8;
const SKIPS: u8 = 1 << abi::io_uring_sqe_flags_bit::IOSQE_CQE_SKIP_SUCCESS_BIT as u8;
const WHOLE: u32 = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL) as u32;
const BUFFER: usize = 64;
const ENTRIES: u32 = 4;

/// One script's ring, sockets and notes.
pub(crate) struct RingScript<S, P, K> {
    pub(crate) sockets: Script<P, K>,
    pub(crate) ring: S,
    memory: Box<[u8]>,
}

pub(crate) fn entry(opcode: Opcode, descriptor: RawFd, data: u64) -> SubmissionEntry {
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut entry: SubmissionEntry = unsafe { std::mem::zeroed() };
    entry.opcode = opcode as u8;
    entry.fd = descriptor;
    entry.user_data = data;
    entry
}

fn receive_multishot(socket: &OwnedFd, budget: u32, data: u64) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_RECV, socket.as_raw_fd(), data);
    entry.flags = SELECTS;
    entry.ioprio = abi::IORING_RECV_MULTISHOT as u16;
    entry.__bindgen_anon_4.buf_group = STREAM_GROUP;
    entry.__bindgen_anon_5.optlen = budget;
    entry
}

fn send(opcode: Opcode, socket: &OwnedFd, bytes: &[u8], flags: u32, data: u64) -> SubmissionEntry {
    let mut entry = entry(opcode, socket.as_raw_fd(), data);
    entry.__bindgen_anon_2.addr = bytes.as_ptr().expose_provenance() as u64;
    entry.len = bytes.len() as u32;
    entry.__bindgen_anon_3.msg_flags = flags;
    entry
}

pub(crate) fn cancel(target: u64, data: u64) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_ASYNC_CANCEL, -1, data);
    entry.__bindgen_anon_2.addr = target;
    entry
}

fn poll(descriptor: RawFd, events: i16, data: u64) -> SubmissionEntry {
    let mut entry = entry(Opcode::IORING_OP_POLL_ADD, descriptor, data);
    entry.__bindgen_anon_3.poll32_events = u32::from(events as u16);
    entry
}

impl<S: UringSys, P: EpollSys, K: SocketSys> RingScript<S, P, K> {
    /// Two connected sockets in blocking mode, as the engine wants them.
    fn pair(&mut self) -> (OwnedFd, OwnedFd) {
        let (near, far) = self.sockets.pair();
        self.sockets.system.set_nonblocking(near.as_fd(), false).unwrap();
        (near, far)
    }

    fn provide(&mut self, ids: std::ops::Range<u16>) {
        for id in ids {
            let at = usize::from(id) * BUFFER;
            let buffer = ProvidedBuffer {
                address: self.memory[at..at + BUFFER].as_mut_ptr(),
                length: BUFFER as u32,
                id,
            };
            self.ring.provide_buffer(STREAM_GROUP, buffer);
        }
        self.ring.publish_buffers(STREAM_GROUP);
    }

    pub(crate) fn push(&mut self, entry: &SubmissionEntry) {
        assert!(
            self.ring.try_push(entry),
            "the script pushes no more than there is room"
        );
    }

    /// Submits what was pushed, without waiting.
    pub(crate) fn submit(&mut self) {
        while self.ring.unsubmitted() > 0 {
            match self.ring.enter(0, None, 0) {
                Ok(_) | Err(Errno::EINTR | Errno::EAGAIN | Errno::EBUSY) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next completion, as a note.
    fn next(&mut self) -> String {
        let entry = self.next_entry();
        describe(entry.user_data, entry.res, entry.flags)
    }

    pub(crate) fn next_entry(&mut self) -> CompletionEntry {
        loop {
            if let Some(entry) = self.ring.pop() {
                return entry;
            }
            match self.ring.enter(1, LONG, 0) {
                Ok(_) | Err(Errno::EINTR | Errno::EAGAIN | Errno::EBUSY) => {}
                Err(error) => panic!("{error} after {:?}", self.sockets.notes),
            }
        }
    }

    pub(crate) fn note_next(&mut self) {
        let next = self.next();
        self.sockets.notes.push(next);
    }

    /// Several whose order among each other is free.
    pub(crate) fn note_some(&mut self, count: usize) {
        let mut some: Vec<_> = (0..count).map(|_| self.next()).collect();
        some.sort_unstable();
        self.sockets.notes.extend(some);
    }

    /// That nothing more has completed.
    pub(crate) fn note_nothing(&mut self) {
        let _ = self.ring.enter(0, None, 0);
        let more = self.ring.pop();
        let more = more.map(|entry| describe(entry.user_data, entry.res, entry.flags));
        self.sockets.note("nothing more", format!("{more:?}"));
    }

    fn multishot(&mut self) {
        let (near, far) = self.pair();
        self.provide(0..4);
        self.push(&receive_multishot(&near, 0, 1));
        self.submit();
        self.sockets.send(&far, b"hello").unwrap();
        self.note_next();
        self.sockets.send(&far, &[7; 100]).unwrap();
        self.note_next();
        self.note_next();
        self.sockets.system.shutdown_send(far.as_fd()).unwrap();
        self.note_next();
        self.note_nothing();
    }

    fn no_buffers(&mut self) {
        let (near, far) = self.pair();
        self.push(&receive_multishot(&near, 0, 1));
        self.note_next();
        self.sockets.send(&far, &[7; 100]).unwrap();
        self.sockets.wait_for(&near, libc::EPOLLIN as u32, LONG);
        self.provide(0..1);
        self.push(&receive_multishot(&near, 0, 2));
        self.note_next();
        self.note_next();
        self.provide(1..2);
        self.push(&receive_multishot(&near, 0, 3));
        self.note_next();
        // Whether it goes on to look for a buffer although nothing is there is the kernel's affair.
        self.submit();
        self.push(&cancel(3, 4));
        self.note_some(2);
    }

    fn budget(&mut self) {
        let (near, far) = self.pair();
        self.provide(0..4);
        self.sockets.send(&far, &[7; 200]).unwrap();
        self.sockets.wait_for(&near, libc::EPOLLIN as u32, LONG);
        self.push(&receive_multishot(&near, 128, 1));
        self.note_next();
        self.note_next();
        self.note_nothing();
        self.push(&receive_multishot(&near, 1000, 2));
        self.note_next();
        self.note_next();
        self.push(&cancel(2, 3));
        self.note_some(2);
    }

    fn cancelling(&mut self) {
        let (near, far) = self.pair();
        self.provide(0..4);
        self.push(&receive_multishot(&near, 0, 1));
        self.submit();
        self.push(&cancel(1, 2));
        self.note_some(2);
        self.push(&cancel(1, 3));
        self.note_next();
        self.push(&poll(near.as_raw_fd(), libc::POLLIN, 4));
        self.push(&cancel(4, 5));
        self.note_some(2);
        self.sockets.send(&far, b"still there").unwrap();
        let received = self.sockets.receive(&near);
        self.sockets.note("received", received.unwrap());
    }

    fn send_that_waits(&mut self) {
        let (near, far) = self.pair();
        let bytes = vec![7; 8_000_000];
        self.push(&send(Opcode::IORING_OP_SEND, &near, &bytes, WHOLE, 1));
        self.submit();
        let mut received = 0;
        while received < bytes.len() {
            self.submit();
            let _ = self.ring.enter(0, None, 0);
            match self.sockets.receive_now(&far) {
                Ok(count) => received += count,
                Err(Errno::EAGAIN) => {
                    // Room is made use of when the ring's work runs.
                    let _ = self.ring.enter(1, Some(Duration::from_millis(1)), 0);
                }
                Err(error) => panic!("{error}"),
            }
        }
        self.note_next();
        self.sockets.note("received", received);
    }

    fn attempts(&mut self) {
        let (near, far) = self.pair();
        let flags = WHOLE | libc::MSG_DONTWAIT as u32;
        let mut attempt = send(Opcode::IORING_OP_SEND, &near, b"hello", flags, 1);
        attempt.flags = SKIPS;
        self.push(&attempt);
        self.submit();
        self.note_nothing();
        let received = self.sockets.receive(&far);
        self.sockets.note("received", received.unwrap());
        self.sockets.system.set_nonblocking(near.as_fd(), true).unwrap();
        while self.sockets.send(&near, &[7; 4096]).is_ok() {}
        self.sockets.system.set_nonblocking(near.as_fd(), false).unwrap();
        attempt.user_data = 2;
        self.push(&attempt);
        self.note_next();
    }

    fn errors_of_transfers(&mut self) {
        let (near, far) = self.pair();
        self.provide(0..4);
        self.push(&receive_multishot(&near, 0, 1));
        self.submit();
        self.sockets.system.reset(far.as_fd()).unwrap();
        self.note_next();
        self.push(&send(Opcode::IORING_OP_SEND, &near, b"hello", WHOLE, 2));
        self.note_next();
        let (near, _far) = self.pair();
        self.sockets.system.shutdown_send(near.as_fd()).unwrap();
        self.push(&send(Opcode::IORING_OP_SEND, &near, b"hello", WHOLE, 3));
        self.note_next();
    }

    fn accepting(&mut self) {
        let (listener, address) = self.sockets.listen();
        self.sockets
            .system
            .set_nonblocking(listener.as_fd(), false)
            .unwrap();
        let mut accept = entry(Opcode::IORING_OP_ACCEPT, listener.as_raw_fd(), 1);
        accept.ioprio = abi::IORING_ACCEPT_MULTISHOT as u16;
        accept.__bindgen_anon_3.accept_flags = libc::SOCK_CLOEXEC as u32;
        self.push(&accept);
        self.submit();
        for _ in 0..2 {
            let client = self.sockets.connect(&address);
            while !self.ring.has_completion() {
                let _ = self.ring.enter(1, LONG, 0);
            }
            let entry = self.ring.pop().unwrap();
            let more = entry.flags & abi::IORING_CQE_F_MORE != 0;
            self.sockets.note("accepted", entry.res >= 0);
            self.sockets.note("more", more);
            // SAFETY: the kernel has made it for this accept.
            let server = unsafe { OwnedFd::from_raw_fd(entry.res) };
            self.sockets.send(&client, b"hello").unwrap();
            let received = self.sockets.receive(&server);
            self.sockets.note("received", received.unwrap());
        }
        self.push(&cancel(1, 2));
        self.note_some(2);
    }

    fn connecting(&mut self) {
        if self.sockets.unix {
            // The engine connects Unix sockets by a call.
            return;
        }
        let (listener, address) = self.sockets.listen();
        self.note_connect(&address, 1);
        drop(self.sockets.accept(&listener));
        drop(listener);
        self.note_connect(&address, 2);
    }

    fn note_connect(&mut self, address: &Address, data: u64) {
        let socket = self.sockets.socket(address);
        self.sockets
            .system
            .set_nonblocking(socket.as_fd(), false)
            .unwrap();
        let to = SocketAddress::try_from(address).unwrap();
        let (raw, length) = to.as_raw();
        let mut connect = entry(Opcode::IORING_OP_CONNECT, socket.as_raw_fd(), data);
        connect.__bindgen_anon_2.addr = raw.expose_provenance() as u64;
        connect.__bindgen_anon_1.off = u64::from(length);
        self.push(&connect);
        self.note_next();
        let error = self.sockets.system.take_error(socket.as_raw_fd());
        self.sockets.note("error", format!("{error:?}"));
    }

    fn polling(&mut self) {
        let (near, far) = self.pair();
        self.push(&poll(near.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP, 1));
        self.push(&poll(near.as_raw_fd(), libc::POLLOUT, 2));
        self.note_next();
        self.sockets.send(&far, b"hello").unwrap();
        self.note_next();
        self.sockets.receive(&near).unwrap();
        self.push(&poll(near.as_raw_fd(), libc::POLLIN | libc::POLLRDHUP, 3));
        self.submit();
        self.sockets.system.shutdown_send(far.as_fd()).unwrap();
        self.note_next();
        self.note_nothing();
    }

    fn zero_copy(&mut self) {
        let (near, far) = self.pair();
        // No more than every socket has room for.
        let bytes = [7; 200];
        let mut zero_copy = send(Opcode::IORING_OP_SEND_ZC, &near, &bytes, WHOLE, 1);
        zero_copy.ioprio = abi::IORING_SEND_ZC_REPORT_USAGE as u16;
        self.push(&zero_copy);
        let first = self.next();
        let more = first.contains("more");
        self.sockets.notes.push(first);
        if !self.sockets.unix {
            // The memory is free when the peer has it.
            let mut received = 0;
            while received < bytes.len() {
                received += self.sockets.receive(&far).unwrap();
            }
        }
        if more {
            self.note_next();
        }
        self.note_nothing();
    }

    fn full_queues(&mut self) {
        for round in 0..2 {
            for place in 0..u64::from(ENTRIES) {
                self.push(&entry(Opcode::IORING_OP_NOP, -1, round * 10 + place));
            }
            let refused = !self.ring.try_push(&entry(Opcode::IORING_OP_NOP, -1, 99));
            self.sockets.note("full", refused);
            self.submit();
        }
        self.sockets.note("overflowed", self.ring.has_overflowed());
        let mut taken = 0;
        while self.ring.pop().is_some() {
            taken += 1;
        }
        self.sockets.note("taken", taken);
        let _ = self.ring.enter(0, None, 0);
        self.sockets.note("overflowed", self.ring.has_overflowed());
        while self.ring.pop().is_some() {
            taken += 1;
        }
        self.sockets.note("taken in all", taken);
        let result = self.ring.enter(1, Some(Duration::from_millis(1)), 0);
        self.sockets
            .note("waited", format!("{:?}", result.map_err(Errno::code)));
    }
}

/// A completion, as a note: descriptors and buffers' numbers are left out.
pub(crate) fn describe(data: u64, result: i32, flags: u32) -> String {
    let is_set = |bit: u32, name| if flags & bit != 0 { name } else { "" };
    let (more, buffer, notification) = (
        is_set(abi::IORING_CQE_F_MORE, " more"),
        is_set(abi::IORING_CQE_F_BUFFER, " buffer"),
        is_set(abi::IORING_CQE_F_NOTIF, " notification"),
    );
    // Whether the kernel copied is its own affair.
    let result = if notification.is_empty() { result } else { 0 };
    format!("{data}: {result}{more}{buffer}{notification}")
}

/// A ring with buffers to receive into, of which there are none yet.
pub(crate) fn set_up<S: UringSys, P: EpollSys, K: SocketSys>(system: K, unix: bool) -> RingScript<S, P, K> {
    let (mut ring, _) = S::setup(&RingParameters {
        least_wait_us: 0,
        submission_entries: ENTRIES,
        completion_entries: ENTRIES,
        flags: abi::IORING_SETUP_R_DISABLED
            | abi::IORING_SETUP_SUBMIT_ALL
            | abi::IORING_SETUP_SINGLE_ISSUER
            | abi::IORING_SETUP_DEFER_TASKRUN,
        poll_idle_ms: 0,
    })
    .unwrap();
    ring.register_buffer_ring(STREAM_GROUP, 8).unwrap();
    ring.enable().unwrap();
    RingScript {
        sockets: Script::new(system, unix),
        ring,
        memory: vec![0; 8 * BUFFER].into(),
    }
}

/// What the real kernel lacks that scripts need, which are skipped then.
pub(crate) fn lacking() -> Option<String> {
    let lacks = match probe::<Ring>(FeatureSet::EMPTY, false) {
        Ok(found) if found.missing.is_empty() => return None,
        Ok(found) => format!("it lacks {:?}", found.missing),
        Err(error) => error.to_string(),
    };
    println!("skipped, as there is no kernel here to compare with: {lacks}");
    Some(lacks)
}

fn run<S: UringSys, P: EpollSys, K: SocketSys>(
    system: K,
    unix: bool,
    body: fn(&mut RingScript<S, P, K>),
) -> Notes {
    let mut script = set_up(system, unix);
    body(&mut script);
    script.sockets.notes
}

/// A script, to be run on either kernel, where the real one has all that scripts need.
macro_rules! scripts {
    ($($name:ident)*) => { $(
        #[test]
        fn $name() {
            if lacking().is_some() {
                return;
            }
            for unix in [false, true] {
                let real = run::<Ring, Epoll, _>(Linux, unix, RingScript::$name);
                let name = format!("{} on {}", stringify!($name), if unix { "Unix" } else { "TCP" });
                compare(&name, &real, &|| {
                    run::<SimRing, SimEpoll, _>(SimSockets, unix, RingScript::$name)
                });
            }
        }
    )* };
}

scripts! {
    multishot no_buffers budget cancelling send_that_waits attempts errors_of_transfers accepting connecting polling
    zero_copy full_queues
}
