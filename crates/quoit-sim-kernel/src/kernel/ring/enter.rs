//! Entering a ring: submitting, and waiting.

use linux_raw_sys::io_uring as abi;

use super::super::agenda::Step;
use super::super::{do_jobs, with};
use super::RingId;
use crate::faults::Fault;

/// `io_uring_enter(2)` with `GETEVENTS`. A wait may let other threads act, so it does not hold the kernel all along.
pub(crate) fn enter(id: RingId, wait_for: u32, timeout: Option<u64>, flags: u32) -> Result<u32, i32> {
    do_jobs();
    if with(|kernel| kernel.ring(id).thread.is_some()) {
        return enter_with_thread(id, wait_for, timeout, flags);
    }
    let begun = with(|kernel| {
        kernel.pass();
        if !kernel.ring(id).enabled {
            kernel.fail(|| "a ring is entered before it is enabled".to_owned());
            return Err(libc::EBADFD);
        }
        kernel.ring(id).count_enter();
        let (submitted, goes_on) = kernel.submit(id)?;
        if !goes_on {
            return Ok((submitted, None));
        }
        kernel.flush_overflow(id);
        if kernel.ring(id).has_overflowed() && kernel.strikes(Fault::EnterBusy) {
            return if submitted > 0 {
                Ok((submitted, None))
            } else {
                Err(libc::EBUSY)
            };
        }
        kernel.run_work(id);
        let end = timeout.map(|timeout| kernel.now() + timeout);
        Ok((submitted, Some(end)))
    });
    let (submitted, end) = match begun? {
        (submitted, Some(end)) if wait_for > 0 => (submitted, end),
        (submitted, _) => return Ok(submitted),
    };
    let waited = wait(id, wait_for, end);
    if submitted > 0 {
        Ok(submitted)
    } else {
        waited.map(|()| 0)
    }
}

/// The same for a ring whose submissions a thread of the kernel's takes: it is shown them, and woken if it sleeps.
/// Without anything to wait for there is no call at all while it is awake.
fn enter_with_thread(id: RingId, wait_for: u32, timeout: Option<u64>, flags: u32) -> Result<u32, i32> {
    let begun = with(|kernel| {
        let now = kernel.now;
        let ring = kernel.ring(id);
        let enabled = ring.enabled;
        let count = ring.submissions.len();
        let overflowed = ring.has_overflowed();
        let full = count >= ring.submission_entries as usize;
        let thread = ring.thread.as_mut().expect("the caller has looked");
        thread.shown = count;
        let asleep = now > thread.awake_until;
        let wakes_thread = asleep && count > 0;
        let waits_for_room = flags & abi::IORING_ENTER_SQ_WAIT != 0;
        if !enabled {
            kernel.fail(|| "a ring is entered before it is enabled".to_owned());
            return Err(libc::EBADFD);
        }
        if wait_for == 0 && !waits_for_room && !overflowed && !wakes_thread {
            kernel.interrupt(id);
            return Ok((count as u32, None));
        }
        kernel.pass();
        kernel.ring(id).count_enter();
        kernel.flush_overflow(id);
        if asleep {
            kernel.rouse_thread(id);
        }
        if waits_for_room && full {
            let most = kernel.random.between(1, count as u64) as usize;
            // However long it takes to be woken.
            kernel.rouse_thread(id);
            kernel.run_thread(id, most);
        }
        kernel.interrupt(id);
        let end = timeout.map(|timeout| kernel.now() + timeout);
        Ok((count as u32, Some(end)))
    });
    match begun? {
        (count, Some(end)) if wait_for > 0 => {
            let waited = wait(id, wait_for, end);
            if count > 0 { Ok(count) } else { waited.map(|()| 0) }
        }
        (count, _) => Ok(count),
    }
}

fn wait(id: RingId, wait_for: u32, end: Option<u64>) -> Result<(), i32> {
    // Until then for so many, if there is such a time, and for one from then on.
    let least_end = with(|kernel| {
        kernel.waits += 1;
        let least_wait = kernel.ring(id).least_wait;
        let least_end = kernel.now() + least_wait;
        (wait_for > 1 && least_wait > 0).then(|| end.map_or(least_end, |end| end.min(least_end)))
    });
    loop {
        let step = with(|kernel| {
            let now = kernel.now();
            let coalesces = least_end.filter(|&least_end| now < least_end);
            let end = coalesces.or(end);
            let wait_for = match least_end {
                Some(_) if coalesces.is_none() => 1,
                _ => wait_for.min(kernel.ring(id).completion_entries),
            };
            if kernel.ring(id).thread.is_some() {
                kernel.run_thread(id, usize::MAX);
            }
            kernel.flush_overflow(id);
            if kernel.ring(id).completions.len() >= wait_for as usize {
                return Ok(None);
            }
            if kernel.strikes(Fault::Interrupted) || kernel.strikes(Fault::SpuriousWake) {
                return Err(libc::EINTR);
            }
            if kernel.ring(id).has_work() {
                kernel.run_work(id);
                return Ok(Some(Step::Moved));
            }
            let step = match kernel.step(end) {
                Step::TimedOut if coalesces.is_some() => Step::Moved,
                step => step,
            };
            Ok(Some(step))
        })?;
        match step {
            None => return Ok(()),
            Some(Step::Moved) => {}
            Some(Step::Job(job)) => job(),
            Some(Step::TimedOut) => return Err(libc::ETIME),
            Some(Step::Never) => return Err(libc::EINTR),
        }
    }
}
