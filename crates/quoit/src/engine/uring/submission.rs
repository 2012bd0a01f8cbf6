//! Putting entries into the submission queue, and entering the ring: nothing is refused and order is kept, whatever
//! room the queue has and whatever the kernel takes.

use std::os::fd::IntoRawFd;
use std::time::Duration;

use super::sys::{SubmissionEntry, UringSys};
use super::{Engine, UringEngine, sleep_to_coalesce};
use crate::errno::Errno;
use crate::pool::Pool;
use crate::sys::SocketSys;

impl<S: UringSys, K: SocketSys> UringEngine<S, K> {
    /// Puts an entry into the submission queue.
    #[inline(always)]
    pub(super) fn push(&mut self, entry: SubmissionEntry, pool: &mut Pool) {
        self.counters.in_flight.add(1);
        self.push_uncounted(entry, pool);
    }

    /// The same of one whose success is silent, where the kernel can be silent.
    pub(super) fn push_silent(&mut self, entry: SubmissionEntry, pool: &mut Pool) {
        if self.skips_success {
            self.push_uncounted(entry, pool);
        } else {
            self.push(entry, pool);
        }
    }

    #[inline(always)]
    fn push_uncounted(&mut self, entry: SubmissionEntry, pool: &mut Pool) {
        self.counters.submissions.add(1);
        if !self.spilled.is_empty() || !self.sys.try_push(&entry) {
            // A copy, so that the entry itself need not be in memory: it is written to the queue field by field.
            let kept = entry;
            self.push_to_full(kept, pool);
        }
    }

    /// Flushes the queue to make room. Where the kernel takes nothing now, because it is out of memory or
    /// because completions must be taken first, the entry waits: order is kept and nothing is refused.
    #[cold]
    fn push_to_full(&mut self, entry: SubmissionEntry, pool: &mut Pool) {
        if self.spilled.is_empty() {
            self.counters.submission_queue_full.add(1);
            self.flush(pool);
            if self.sys.try_push(&entry) {
                return;
            }
        }
        self.spilled.push_back(entry);
    }

    /// Submits without waiting. Errors are left to the next wait, which meets them again.
    #[cold]
    pub(super) fn flush(&mut self, pool: &mut Pool) {
        self.provide_buffers(pool);
        if let Err(errno) = self.enter(0, None, self.flush_flags)
            && !is_passing(errno)
        {
            self.failure = Some(errno);
        }
    }

    pub(super) fn enter(
        &mut self,
        wait_for: u32,
        timeout: Option<Duration>,
        flags: u32,
    ) -> Result<u32, Errno> {
        let (before, offered) = (self.sys.enters(), self.sys.unsubmitted());
        let result = self.sys.enter(wait_for, timeout, flags);
        // None where the kernel's thread polls and needs no call.
        let enters = self.sys.enters() - before;
        if enters > 0 {
            self.counters.enters.add(enters);
            self.counters.system_calls.add(enters);
            let submitted = u64::from(offered.saturating_sub(self.sys.unsubmitted()));
            self.enter_sizes.count(&self.counters, submitted);
        }
        if !self.closing.is_empty() {
            self.hand_over_closed();
        }
        result
    }

    /// The first part of a wait that coalesces events, where the kernel cannot do it; what was submitted is with the kernel by
    /// then. Returns what is left of the wait.
    pub(super) fn sleep_first(&mut self, wait: Option<Duration>) -> Option<Duration> {
        if !self.waits.coalesces || self.waits.sleep_before.is_zero() {
            return wait;
        }
        if self.sys.unsubmitted() > 0 {
            // What fails is told by the enter that follows.
            let _ = self.enter(0, None, 0);
        }
        if !self.may_sleep() {
            return wait;
        }
        sleep_to_coalesce(
            &self.system,
            self.waits.sleep_before,
            wait,
            &self.counters.system_calls,
        )
    }

    /// Forgets the descriptors whose closes the kernel has taken.
    fn hand_over_closed(&mut self) {
        let taken = self.taken();
        let count = self.closing.partition_point(|&(number, _)| number < taken);
        for (_, descriptor) in self.closing.drain(..count) {
            let _ = descriptor.into_raw_fd();
        }
    }

    /// Submissions that the kernel has taken, of all that were pushed.
    pub(super) fn taken(&self) -> u64 {
        self.counters.submissions.get() - u64::from(self.sys.unsubmitted()) - self.spilled.len() as u64
    }

    /// Moves what was spilled into the submission queue, as far as the kernel makes room.
    #[cold]
    pub(super) fn unspill(&mut self, pool: &mut Pool) {
        let mut flushed = false;
        while let Some(entry) = self.spilled.pop_front() {
            if self.sys.try_push(&entry) {
                flushed = false;
                continue;
            }
            self.spilled.push_front(entry);
            if flushed {
                break;
            }
            self.flush(pool);
            flushed = true;
        }
    }

    pub(super) fn note_overflow(&mut self) {
        let overflowed = self.sys.has_overflowed();
        if overflowed && !self.overflowed {
            self.counters.completion_queue_overflows.add(1);
        }
        self.overflowed = overflowed;
    }
}

/// Whether an error of an enter passes by itself: the wait was interrupted or its time is over, completions must
/// be taken first, or the kernel had no memory for requests.
pub(super) fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::EINTR | Errno::ETIME | Errno::EBUSY | Errno::EAGAIN)
}
