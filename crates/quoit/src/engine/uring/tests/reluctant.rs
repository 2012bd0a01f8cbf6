//! The real kernel, but for enters that fail in ways in which a healthy machine's do not, and notifications that
//! come late.

use std::os::unix::net::UnixDatagram;

use super::send::single;
use super::*;
use crate::engine::SendMode;
use crate::engine::uring::sys::{
    CompletionEntry, ProbeSockets, ProvidedBuffer, Restrictions, RingProperties,
};

/// A real ring whose next enters fail without doing anything.
pub(super) struct Reluctant {
    ring: Ring,
    /// Enters that do what they should before that.
    passes: u32,
    failures: VecDeque<Errno>,
    /// Whether notifications of zero-copy sends are kept back, and those that are.
    withholds: bool,
    withheld: VecDeque<CompletionEntry>,
}

impl UringSys for Reluctant {
    fn setup(parameters: &RingParameters) -> Result<(Self, RingProperties), Errno> {
        let (ring, properties) = Ring::setup(parameters)?;
        let reluctant = Self {
            ring,
            passes: 0,
            failures: VecDeque::new(),
            withholds: false,
            withheld: VecDeque::new(),
        };
        Ok((reluctant, properties))
    }

    fn probe_sockets() -> Result<ProbeSockets, Errno> {
        Ring::probe_sockets()
    }

    fn restrict(&mut self, restrictions: &Restrictions) -> Result<(), Errno> {
        self.ring.restrict(restrictions)
    }

    fn enable(&mut self) -> Result<(), Errno> {
        self.ring.enable()
    }

    fn register_ring_descriptor(&mut self) -> Result<(), Errno> {
        self.ring.register_ring_descriptor()
    }

    fn notify(&mut self, eventfd: RawFd) -> Result<(), Errno> {
        telling::notify(&mut self.ring, eventfd)
    }

    fn notifier(&self) -> Option<RawFd> {
        self.ring.notifier()
    }

    fn disarm_notifier(&mut self) {
        self.ring.disarm_notifier();
    }

    fn arm_notifier(&mut self, trigger: Trigger) {
        self.ring.arm_notifier(trigger);
    }

    fn try_telling(features: FeatureSet, telling: Telling) -> Result<(), Errno> {
        telling::told(features, telling)
    }

    fn supported_operations(&self) -> Result<u128, Errno> {
        self.ring.supported_operations()
    }

    fn register_buffer_ring(&mut self, group: u16, entries: u16) -> Result<(), Errno> {
        self.ring.register_buffer_ring(group, entries)
    }

    fn unregister_buffer_ring(&mut self, group: u16) -> Result<(), Errno> {
        self.ring.unregister_buffer_ring(group)
    }

    fn provide_buffer(&mut self, group: u16, buffer: ProvidedBuffer) {
        self.ring.provide_buffer(group, buffer);
    }

    fn publish_buffers(&mut self, group: u16) {
        self.ring.publish_buffers(group);
    }

    fn register_memory(&mut self, address: *mut u8, length: usize) -> Result<(), Errno> {
        self.ring.register_memory(address, length)
    }

    fn try_push(&mut self, entry: &SubmissionEntry) -> bool {
        self.ring.try_push(entry)
    }

    fn unsubmitted(&self) -> u32 {
        self.ring.unsubmitted()
    }

    fn enter(&mut self, wait_for: u32, timeout: Option<Duration>, flags: u32) -> Result<u32, Errno> {
        if self.passes > 0 {
            self.passes -= 1;
        } else if let Some(errno) = self.failures.pop_front() {
            return Err(errno);
        }
        self.ring.enter(wait_for, timeout, flags)
    }

    fn has_completion(&self) -> bool {
        self.ring.has_completion() || (!self.withholds && !self.withheld.is_empty())
    }

    fn buffers_in_completions(&self) -> u32 {
        // What is withheld are notifications.
        self.ring.buffers_in_completions()
    }

    fn pop(&mut self) -> Option<CompletionEntry> {
        if !self.withholds
            && let Some(late) = self.withheld.pop_front()
        {
            return Some(late);
        }
        loop {
            let entry = self.ring.pop()?;
            if !self.withholds || entry.flags & abi::IORING_CQE_F_NOTIF == 0 {
                return Some(entry);
            }
            self.withheld.push_back(entry);
        }
    }

    fn has_overflowed(&self) -> bool {
        self.ring.has_overflowed()
    }

    fn has_deferred_work(&self) -> bool {
        self.ring.has_deferred_work()
    }

    fn enters(&self) -> u64 {
        self.ring.enters()
    }
}

#[test]
fn what_the_kernel_does_not_take_now_it_takes_later_and_in_order() {
    for without in levels() {
        let settings = UringSettings {
            submission_entries: 8,
            completion_entries: 16,
            ..SETTINGS
        };
        let fixture = &mut Fixture::<Reluctant>::on(&settings, 8, without);
        let pairs: Vec<_> = (0..100).map(|_| UnixStream::pair().unwrap()).collect();
        let passing = [Errno::EAGAIN, Errno::EBUSY, Errno::EINTR];
        fixture.engine.sys.failures = passing.into_iter().cycle().take(30).collect();
        for (slot, (near, _)) in pairs.iter().enumerate() {
            fixture.receive(slot as u32, near, BUDGET);
            // Reaches the kernel behind its target, or finds nothing and is lost.
            fixture.cancel(slot as u32, Kind::Receive);
        }
        assert!(!fixture.engine.may_sleep(), "entries wait for room");
        let mut stopped = vec![false; pairs.len()];
        for _ in &pairs {
            let (connection, received, more) = fixture.next_received();
            assert!(!more);
            assert!(
                matches!(received, Received::Stopped | Received::NoBuffers),
                "{received:?}"
            );
            assert!(!std::mem::replace(&mut stopped[connection.index()], true));
        }
        assert!(fixture.engine.sys.failures.is_empty());
        fixture.finish();
    }
}

#[test]
fn a_close_that_found_no_room_is_made_later() {
    for without in levels() {
        let settings = UringSettings {
            submission_entries: 2,
            completion_entries: 4,
            ..SETTINGS
        };
        let fixture = &mut Fixture::<Reluctant>::on(&settings, 8, without);
        fixture.engine.sys.failures = vec![Errno::EAGAIN; 20].into();
        let mut ends = Vec::new();
        for slot in 0..10 {
            let (near, far) = UnixStream::pair().unwrap();
            fixture.submit(Operation::Close {
                handle: Handle::Connection(Slot::new(slot)),
                descriptor: near.into(),
            });
            ends.push(far);
        }
        while !fixture.engine.closing.is_empty() {
            fixture.poll();
        }
        for mut far in ends {
            assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
        fixture.finish();
    }
}

/// A batch of two, of one byte each.
fn two_datagrams() -> Box<DatagramBatch> {
    let mut batch = Box::<DatagramBatch>::default();
    for bytes in [b"1", b"2"] {
        batch.payloads.push(libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: 1,
        });
    }
    for payload in &mut batch.payloads {
        // SAFETY: a structure of integers and pointers, for which all zeroes is a valid value.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        message.msg_hdr.msg_iov = payload;
        message.msg_hdr.msg_iovlen = 1;
        batch.messages.push(message);
    }
    batch
}

/// A link ends with the submission that it is in. So those that must not overtake one another are linked only if they leave
/// with the same, and entries that wait for room are before them.
#[test]
fn datagrams_behind_entries_that_wait_for_room_keep_their_order() {
    let settings = UringSettings {
        submission_entries: 2,
        completion_entries: 16,
        ..SETTINGS
    };
    for without in levels() {
        let fixture = &mut Fixture::<Reluctant>::on(&settings, 8, without);
        let (near, far) = UnixDatagram::pair().unwrap();
        let (mut bytes, socket) = ([0; 8], Slot::new(0));
        near.set_nonblocking(true).unwrap();
        while near.send(b"full").is_ok() {}
        near.set_nonblocking(false).unwrap();
        far.set_nonblocking(true).unwrap();
        fixture
            .engine
            .open_datagrams(socket, near.as_raw_fd(), 64, 1)
            .unwrap();
        fixture.poll();
        let pairs = [(); 3].map(|()| UnixStream::pair().unwrap());
        fixture.engine.sys.failures = [Errno::EAGAIN].into();
        for (slot, (near, _)) in (0..).zip(&pairs) {
            fixture.receive(slot, near, BUDGET);
        }
        assert_eq!(fixture.engine.spilled.len(), 1);
        let batch = two_datagrams();
        let left = fixture
            .engine
            .send_datagrams(socket, batch, SendManner::InOrder, &mut fixture.pool);
        assert!(left.is_none(), "the receiver is full");
        (fixture.engine.sys.passes, fixture.engine.sys.failures) = (1, [Errno::EAGAIN].into());
        fixture.poll();
        // There is room for one, when the first has found none.
        assert_eq!(far.recv(&mut bytes).unwrap(), 4);
        let mut came = Vec::new();
        let ended = |fixture: &Fixture<Reluctant>| {
            let ended = |completion: &Completion| matches!(completion, Completion::DatagramsSent { .. });
            fixture.pending.iter().any(ended)
        };
        for _ in 0..TURNS {
            fixture.poll();
            while let Ok(length) = far.recv(&mut bytes) {
                came.extend((length == 1).then_some(bytes[0]));
            }
            if ended(fixture) && came.len() == 2 {
                break;
            }
        }
        assert_eq!(came, b"12", "without {without}");
        fixture.finish();
    }
}

/// Nobody waits for a quiet send when it is submitted. If the kernel takes it only later, somebody may: what was
/// queued behind it meanwhile. Its success is silent, so the enter that submits it must not be one that sleeps.
#[test]
fn a_quiet_send_that_was_left_behind_ends_without_anything_else() {
    for without in levels() {
        for errno in [Errno::EAGAIN, Errno::EBUSY, Errno::EINTR] {
            let fixture = &mut Fixture::<Reluctant>::on(&SETTINGS, 8, without);
            let (near, mut far) = UnixStream::pair().unwrap();
            fixture.engine.sys.failures = [errno].into();
            fixture.send_as(0, &near, single(b"quiet"), SendMode::Quiet);
            fixture.poll();
            assert!(fixture.engine.sys.failures.is_empty());
            if fixture.features.contains(Feature::AttemptedSend) {
                assert!(!fixture.engine.may_sleep(), "nothing would end the sleep");
            }
            assert_eq!(fixture.next_sent().0, Ok(5));
            let mut bytes = [0; 5];
            far.read_exact(&mut bytes).unwrap();
            assert_eq!(&bytes, b"quiet");
            fixture.finish();
        }
    }
}

/// Such a send may be submitted between two waits: a cancelled accept does not leave its cancellation to the next one.
/// Then nothing is left behind, and a loop that went on without sleeping would do so until it submits something.
#[test]
fn a_quiet_send_that_was_submitted_between_two_waits_keeps_nobody_awake() {
    for without in levels() {
        let fixture = &mut Fixture::<Reluctant>::on(&SETTINGS, 8, without);
        let (near, _far) = UnixStream::pair().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        fixture.accept(&listener, 1);
        fixture.poll();
        fixture.engine.sys.failures = [Errno::EAGAIN].into();
        fixture.send_as(0, &near, single(b"quiet"), SendMode::Quiet);
        fixture.poll();
        assert!(fixture.engine.sys.failures.is_empty());
        fixture.cancel(1, Kind::Accept);
        assert_eq!(fixture.engine.sys.unsubmitted(), 0);
        for _ in 0..10 {
            fixture.poll();
        }
        assert!(fixture.engine.may_sleep(), "nothing is left to do");
        let mut ended = fixture.pending.drain(..);
        assert!(ended.any(|completion| matches!(completion, Completion::Sent { result: Ok(5), .. })));
        drop(ended);
        fixture.finish();
    }
}

/// A refused zero-copy send waits for its notification. Cancelling it finds nothing, and each further cancellation would
/// do so too, without an end.
#[test]
fn a_refused_zero_copy_send_is_cancelled_once() {
    for without in levels() {
        let fixture = &mut Fixture::<Reluctant>::on(&SETTINGS, 8, without);
        for refused in [true, false] {
            let (near, _far) = UnixStream::pair().unwrap();
            let slot = u32::from(refused);
            fixture.engine.sys.withholds = true;
            fixture.send(slot, &near, single(b"x"), true);
            if refused {
                fixture.poll();
            }
            fixture.cancel(slot, Kind::Send);
            for _ in 0..3 {
                fixture.poll();
            }
            if fixture.engine.sys.withheld.is_empty() {
                // It was an ordinary send at this level, or one whose refusal came without a notification.
                let _ = fixture.next_sent();
                continue;
            }
            let submissions = fixture.engine.counters().snapshot().submissions;
            for _ in 0..10 {
                fixture.poll();
            }
            assert_eq!(
                fixture.engine.counters().snapshot().submissions,
                submissions,
                "it spins"
            );
            assert!(fixture.engine.may_sleep() && fixture.pending.is_empty());
            fixture.engine.sys.withholds = false;
            assert_eq!(fixture.next_sent().0, Err(Errno::ECANCELED));
        }
        fixture.finish();
    }
}

#[test]
fn an_error_that_nothing_can_mend_is_told_by_the_wait() {
    for without in levels() {
        let settings = UringSettings {
            submission_entries: 2,
            completion_entries: 4,
            ..SETTINGS
        };
        let fixture = &mut Fixture::<Reluctant>::on(&settings, 8, without);
        let (near, _far) = UnixStream::pair().unwrap();
        fixture.engine.sys.failures = vec![Errno::EBADF; 100].into();
        for slot in 0..10 {
            fixture.send(slot, &near, single(b"x"), false);
        }
        let result = fixture.engine.wait(Some(Duration::ZERO), &mut fixture.pool);
        assert_eq!(result, Err(Errno::EBADF));
        let quiet = fixture
            .engine
            .quiesce(&mut fixture.pool, Duration::ZERO, &|| Linux.now());
        assert!(!quiet, "nobody knows what the kernel still has");
    }
}
