//! The calls of io_uring.

use std::os::fd::RawFd;
use std::rc::Rc;
use std::time::Duration;

use linux_raw_sys::io_uring as abi;
use linux_raw_sys::io_uring::io_uring_register_op as Registration;
use quoit::internals::engine::uring::sys::{
    CompletionEntry, ProbeSockets, ProvidedBuffer, Restrictions, RingParameters, RingProperties,
    SubmissionEntry, Telling, Trigger, UringSys,
};
use quoit::{Errno, Feature, FeatureSet};

use super::{errno, owned};
use crate::faults::count_error;
use crate::kernel::{OPERATIONS, RingId, Shown, enter, with};

/// One simulated ring.
#[derive(Debug)]
pub struct SimRing {
    ring: RingId,
    shown: Rc<Shown>,
    notifier: Option<RawFd>,
}

/// The set-up flags that the simulated kernel knows.
const KNOWN_FLAGS: u32 = abi::IORING_SETUP_R_DISABLED
    | abi::IORING_SETUP_SUBMIT_ALL
    | abi::IORING_SETUP_SINGLE_ISSUER
    | abi::IORING_SETUP_NO_SQARRAY
    | abi::IORING_SETUP_DEFER_TASKRUN
    | abi::IORING_SETUP_COOP_TASKRUN
    | abi::IORING_SETUP_TASKRUN_FLAG
    | abi::IORING_SETUP_SQPOLL;

/// What it says of itself.
const FEATURES: u32 = abi::IORING_FEAT_SINGLE_MMAP
    | abi::IORING_FEAT_NODROP
    | abi::IORING_FEAT_SUBMIT_STABLE
    | abi::IORING_FEAT_EXT_ARG
    | abi::IORING_FEAT_FAST_POLL
    | abi::IORING_FEAT_CQE_SKIP
    | abi::IORING_FEAT_NO_IOWAIT;

impl UringSys for SimRing {
    // In proportion to what the simulated connections send.
    const LONG_SEND: usize = 256;
    const LONG_OFFER: usize = 64;

    fn setup(parameters: &RingParameters) -> Result<(Self, RingProperties), Errno> {
        if parameters.flags & !KNOWN_FLAGS != 0 {
            return Err(Errno::EINVAL);
        }
        let (submissions, completions) = (parameters.submission_entries, parameters.completion_entries);
        let (ring, shown, features) = with(|kernel| {
            let ring = kernel.add_ring(
                parameters.flags,
                submissions,
                completions,
                parameters.poll_idle_ms,
            );
            let waits_for_several = kernel.waits_for_several;
            if waits_for_several {
                kernel.ring(ring).least_wait = u64::from(parameters.least_wait_us) * 1000;
            }
            let features = if waits_for_several {
                FEATURES | abi::IORING_FEAT_MIN_TIMEOUT
            } else {
                FEATURES
            };
            (ring, kernel.ring(ring).shown(), features)
        });
        let properties = RingProperties {
            features,
            submission_entries: submissions,
            completion_entries: completions,
        };
        let ring = Self {
            ring,
            shown,
            notifier: None,
        };
        Ok((ring, properties))
    }

    fn probe_sockets() -> Result<ProbeSockets, Errno> {
        with(|kernel| {
            let [one, other] = kernel.socket_pair()?;
            let listener = kernel.lonely_listener()?;
            Ok(ProbeSockets {
                listener: owned(listener),
                pair: [owned(one), owned(other)],
            })
        })
        .map_err(errno)
    }

    fn restrict(&mut self, restrictions: &Restrictions) -> Result<(), Errno> {
        with(|kernel| kernel.ring(self.ring).restrict(*restrictions));
        Ok(())
    }

    fn enable(&mut self) -> Result<(), Errno> {
        with(|kernel| kernel.ring(self.ring).enabled = true);
        Ok(())
    }

    fn register_ring_descriptor(&mut self) -> Result<(), Errno> {
        with(|kernel| {
            kernel
                .ring(self.ring)
                .check_registration(Registration::IORING_REGISTER_RING_FDS);
        });
        Ok(())
    }

    fn notify(&mut self, eventfd: RawFd) -> Result<(), Errno> {
        with(|kernel| kernel.register_notifier(self.ring, eventfd)).map_err(errno)?;
        self.notifier = Some(eventfd);
        Ok(())
    }

    fn notifier(&self) -> Option<RawFd> {
        self.notifier
    }

    fn disarm_notifier(&mut self) {
        with(|kernel| kernel.ring(self.ring).muted = true);
    }

    fn arm_notifier(&mut self, trigger: Trigger) {
        with(|kernel| kernel.arm_notifier(self.ring, trigger));
    }

    /// As `Ring::notifier` says.
    fn try_telling(features: FeatureSet, telling: Telling) -> Result<(), Errno> {
        match telling {
            Telling::Completions if features.contains(Feature::DeferTaskrun) => Err(Errno::ETIME),
            Telling::Completions | Telling::Wakes => Ok(()),
        }
    }

    fn supported_operations(&self) -> Result<u128, Errno> {
        Ok(OPERATIONS
            .iter()
            .fold(0, |set, &operation| set | 1 << operation as u32))
    }

    fn register_buffer_ring(&mut self, group: u16, entries: u16) -> Result<(), Errno> {
        if !entries.is_power_of_two() {
            return Err(Errno::EINVAL);
        }
        with(|kernel| {
            kernel
                .ring(self.ring)
                .check_registration(Registration::IORING_REGISTER_PBUF_RING);
            kernel.register_buffers(self.ring, group, entries)
        })
        .map_err(errno)
    }

    fn unregister_buffer_ring(&mut self, group: u16) -> Result<(), Errno> {
        with(|kernel| {
            kernel
                .ring(self.ring)
                .check_registration(Registration::IORING_UNREGISTER_PBUF_RING);
            kernel.unregister_buffers(self.ring, group)
        })
        .map_err(errno)
    }

    fn provide_buffer(&mut self, group: u16, buffer: ProvidedBuffer) {
        with(|kernel| kernel.ring(self.ring).stage_buffer(group, buffer));
    }

    fn publish_buffers(&mut self, group: u16) {
        with(|kernel| kernel.publish_buffers(self.ring, group));
    }

    fn register_memory(&mut self, _address: *mut u8, _length: usize) -> Result<(), Errno> {
        Ok(())
    }

    fn try_push(&mut self, entry: &SubmissionEntry) -> bool {
        with(|kernel| {
            kernel.interrupt(self.ring);
            kernel.ring(self.ring).try_push(entry)
        })
    }

    fn unsubmitted(&self) -> u32 {
        with(|kernel| {
            kernel.interrupt(self.ring);
            kernel.ring(self.ring).unsubmitted()
        })
    }

    fn enter(&mut self, wait_for: u32, timeout: Option<Duration>, flags: u32) -> Result<u32, Errno> {
        let timeout = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX / 2));
        enter(self.ring, wait_for, timeout, flags).map_err(errno)
    }

    fn has_completion(&self) -> bool {
        self.shown.completions.get() > 0
    }

    fn buffers_in_completions(&self) -> u32 {
        with(|kernel| kernel.ring(self.ring).buffers_in_completions())
    }

    fn pop(&mut self) -> Option<CompletionEntry> {
        let completion = with(|kernel| {
            kernel.interrupt(self.ring);
            let completion = kernel.pop(self.ring);
            kernel.note(|| format!("completion {completion:x?}"));
            completion
        })?;
        // SAFETY: a structure of integers, for which all zeroes is a valid value.
        let mut entry: CompletionEntry = unsafe { std::mem::zeroed() };
        if completion.result < 0 && completion.flags & abi::IORING_CQE_F_NOTIF == 0 {
            count_error(-completion.result);
        }
        entry.user_data = completion.user_data;
        entry.res = completion.result;
        entry.flags = completion.flags;
        Some(entry)
    }

    fn has_overflowed(&self) -> bool {
        self.shown.overflowed.get()
    }

    fn has_deferred_work(&self) -> bool {
        with(|kernel| kernel.ring(self.ring).shows_deferred_work())
    }

    fn enters(&self) -> u64 {
        self.shown.enters.get()
    }
}

impl Drop for SimRing {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            with(|kernel| kernel.remove_ring(self.ring));
        }
    }
}
