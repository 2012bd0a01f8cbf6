//! Waiting outside of ring and instance, as a program does in the poller of another library.

use std::os::fd::RawFd;

use quoit::internals::engine::Trigger;

use super::agenda::Step;
use super::object::{Kind, ObjectId};
use super::ring::RingId;
use super::{Kernel, do_jobs, with};
use crate::faults::Fault;

/// What a loop is waited for by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outside {
    /// The notifier of a ring, by its descriptor.
    Notifier(RawFd),
    /// The same, each write of which is reported once (`EPOLLET`).
    Writes(RawFd),
    /// An epoll instance, by its number.
    Instance(usize),
    /// The same, of which what happens is reported once (`EPOLLET`).
    Edges(usize),
}

impl Kernel {
    /// `IORING_REGISTER_EVENTFD`.
    pub(crate) fn register_notifier(&mut self, id: RingId, eventfd: RawFd) -> Result<(), i32> {
        let notifier = self.table.get(eventfd).ok_or(libc::EBADF)?;
        let outstanding = self.ring(id).outstanding();
        if self.registering_waits && !outstanding.is_empty() {
            self.fail(|| {
                format!(
                    "an eventfd is registered with a ring, for which this kernel waits until no request is in flight, \
                     perhaps for ever: {outstanding:?}"
                )
            });
        }
        self.ring(id).notifier = Some(notifier);
        Ok(())
    }

    /// Has a ring's notifier written from now on, until its owner mutes it.
    pub(crate) fn arm_notifier(&mut self, id: RingId, trigger: Trigger) {
        // Something may come before it is asked for, and between that and the read.
        self.interrupt(id);
        let ring = self.ring(id);
        (ring.muted, ring.reported) = (false, false);
        self.pass();
        if trigger == Trigger::Level
            && let Some(notifier) = self.ring(id).notifier
        {
            self.forget_writes(notifier);
        }
    }

    /// A notifier was read, or what was written to it was reported to who is told of each write.
    fn forget_writes(&mut self, notifier: ObjectId) {
        if let Some(ring) = self.ring_of(notifier) {
            self.ring(ring).signalled = false;
        }
        if let Kind::Counter(count) = &mut self.object(notifier).kind {
            *count = 0;
        }
    }

    fn ring_of(&self, notifier: ObjectId) -> Option<RingId> {
        let is_its =
            |ring: &Option<super::Ring>| ring.as_ref().is_some_and(|ring| ring.notifier == Some(notifier));
        self.rings.iter().position(is_its)
    }

    fn is_readable(&mut self, outside: Outside) -> bool {
        match outside {
            Outside::Instance(poll) => self.has_events(poll),
            Outside::Edges(poll) => self.has_new_events(poll),
            Outside::Notifier(descriptor) | Outside::Writes(descriptor) => {
                let Some(notifier) = self.table.get(descriptor) else {
                    self.fail(|| "a poller waits for a descriptor that is not open".to_owned());
                    return true;
                };
                let written = matches!(self.object(notifier).kind, Kind::Counter(count) if count > 0);
                let ring = self.ring_of(notifier);
                let is_readable = written || ring.is_some_and(|ring| self.ring(ring).signalled);
                if is_readable && matches!(outside, Outside::Writes(_)) {
                    self.forget_writes(notifier);
                    if let Some(ring) = ring {
                        self.ring(ring).reported = true;
                    }
                }
                is_readable
            }
        }
    }

    /// A poller that has waited in vain must not have missed anything.
    fn check_notified(&mut self, outside: Outside) {
        let (Outside::Notifier(descriptor) | Outside::Writes(descriptor)) = outside else {
            return;
        };
        let ring = self
            .table
            .get(descriptor)
            .and_then(|notifier| self.ring_of(notifier));
        if ring.is_some_and(|ring| self.ring(ring).has_news() && !self.ring(ring).reported) {
            self.fail(|| {
                "something has completed in the ring of a parked loop, and its poller was not told".to_owned()
            });
        }
    }
}

/// `poll(2)` for one descriptor, for so many nanoseconds (`None`: for ever). It may end early, and does when another thread has
/// done what makes `interrupted` true. Returns whether it is readable.
pub fn wait_outside(outside: Outside, timeout: Option<u64>, interrupted: impl Fn() -> bool) -> bool {
    do_jobs();
    let end = with(|kernel| {
        kernel.pass();
        kernel.waits += 1;
        timeout.map(|timeout| kernel.now().saturating_add(timeout))
    });
    loop {
        let step = with(|kernel| {
            // The thread sleeps in the kernel, and is interrupted for work that does not wait for an enter; the kernel's
            // own threads go on.
            kernel.cross();
            kernel.run_threads();
            let readable = kernel.is_readable(outside);
            if readable || kernel.strikes(Fault::Interrupted) {
                return Err(readable);
            }
            let step = kernel.step(end);
            match step {
                Step::TimedOut | Step::Never => kernel.check_notified(outside),
                Step::Moved | Step::Job(_) => {}
            }
            Ok(step)
        });
        match step {
            Ok(Step::Moved) => {}
            Ok(Step::Job(job)) => {
                job();
                if interrupted() {
                    return false;
                }
            }
            Ok(Step::TimedOut | Step::Never) => return false,
            Err(readable) => return readable,
        }
    }
}
