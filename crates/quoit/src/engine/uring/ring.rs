//! The real ring: system calls, mapped queues, and the orderings that the kernel's side of them asks for
//! (`io_uring(7)`, "barriers"; liburing's `barrier.h` states the same rules).
//!
//! The tail of a queue is stored with release by whoever fills it, so that the other side, loading it with
//! acquire, sees the entries before it; the head likewise by whoever empties it.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use linux_raw_sys::io_uring as abi;

use super::buffer_ring::{BufferRing, Reserve, removal};
use super::mapping::Mapping;
use super::sys::{
    CompletionEntry, ProbeSockets, ProvidedBuffer, Restrictions, RingParameters, RingProperties,
    SubmissionEntry, Telling, Trigger, UringSys,
};
use super::telling;
use crate::errno::Errno;
use crate::features::FeatureSet;
use crate::thread::ThreadNumber;

/// The submission queue. The kernel moves the head, this side the tail.
struct SubmissionQueue {
    head: NonNull<AtomicU32>,
    tail: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<SubmissionEntry>,
    length: u32,
    /// The tail as it will be: entries up to here are written, and not shown to the kernel yet.
    written: u32,
    /// The tail that the kernel was shown.
    shown: u32,
}

impl SubmissionQueue {
    #[inline]
    fn head(&self) -> u32 {
        // SAFETY: the ring's mapping outlives its queues. Acquire: the kernel is done with what it consumed.
        unsafe { self.head.as_ref() }.load(Ordering::Acquire)
    }

    #[inline]
    fn flags(&self) -> u32 {
        // SAFETY: the ring's mapping outlives its queues.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed)
    }

    #[inline]
    fn pending(&self) -> u32 {
        self.written.wrapping_sub(self.head())
    }

    #[inline]
    fn try_push(&mut self, entry: &SubmissionEntry) -> bool {
        if self.pending() >= self.length {
            return false;
        }
        let index = self.written & (self.length - 1);
        // SAFETY: the index is below the length, and between head and head + length the kernel does not read
        // before the tail is moved past it, so this place is ours.
        unsafe { ptr::copy_nonoverlapping(entry, self.entries.add(index as usize).as_ptr(), 1) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Shows the kernel what was written.
    #[inline]
    fn show(&mut self) {
        if self.shown != self.written {
            self.shown = self.written;
            // SAFETY: the ring's mapping outlives its queues. Release: the entries are visible before the tail.
            unsafe { self.tail.as_ref() }.store(self.shown, Ordering::Release);
        }
    }
}

/// The completion queue. The kernel moves the tail, this side the head.
struct CompletionQueue {
    head: NonNull<AtomicU32>,
    tail: NonNull<AtomicU32>,
    /// Of this side, for the kernel.
    flags: NonNull<AtomicU32>,
    entries: NonNull<CompletionEntry>,
    mask: u32,
    /// The head; only this side changes it.
    taken: u32,
}

impl CompletionQueue {
    #[inline]
    fn is_empty(&self) -> bool {
        // SAFETY: the ring's mapping outlives its queues. Acquire: entries before the tail are visible.
        unsafe { self.tail.as_ref() }.load(Ordering::Acquire) == self.taken
    }

    /// Tells the kernel `IORING_CQ_*`.
    #[inline]
    fn set_flags(&mut self, flags: u32) {
        // SAFETY: the ring's mapping outlives its queues.
        unsafe { self.flags.as_ref() }.store(flags, Ordering::Relaxed);
    }

    /// How many entries name a buffer.
    fn buffers(&self) -> u32 {
        // SAFETY: the ring's mapping outlives its queues. Acquire: entries before the tail are visible.
        let tail = unsafe { self.tail.as_ref() }.load(Ordering::Acquire);
        let ready = tail.wrapping_sub(self.taken);
        let named = (0..ready).filter(|&behind| {
            let index = (self.taken.wrapping_add(behind) & self.mask) as usize;
            // SAFETY: the index is within the queue, and between head and tail the kernel does not write.
            let entry = unsafe { self.entries.add(index).read() };
            entry.flags & abi::IORING_CQE_F_BUFFER != 0
        });
        named.count() as u32
    }

    #[inline]
    fn pop(&mut self) -> Option<CompletionEntry> {
        if self.is_empty() {
            return None;
        }
        let index = (self.taken & self.mask) as usize;
        // SAFETY: the index is within the queue, and between head and tail the kernel does not write.
        let entry = unsafe { self.entries.add(index).read() };
        self.taken = self.taken.wrapping_add(1);
        // SAFETY: the ring's mapping outlives its queues. Release: the entry was read before its place is free.
        unsafe { self.head.as_ref() }.store(self.taken, Ordering::Release);
        Some(entry)
    }
}

/// The ring's own descriptor, registered with one thread.
struct RegisteredDescriptor {
    index: u32,
    thread: ThreadNumber,
}

/// One io_uring.
///
/// Dropped on its owner's thread it is gone for good; dropped elsewhere, the registration of its descriptor
/// keeps it until the owner's thread ends.
pub struct Ring {
    submission: SubmissionQueue,
    completion: CompletionQueue,
    buffer_rings: Vec<Option<BufferRing>>,
    buffer_reserve: Reserve,
    registered: Option<RegisteredDescriptor>,
    /// Whether a thread of the kernel's takes the submissions (`IORING_SETUP_SQPOLL`).
    kernel_polls: bool,
    least_wait_us: u32,
    /// How much later than asked for a wait of the owner's may end, as its waits in epoll do: timers that are close
    /// together are one wake then.
    timer_slack_ns: u32,
    enters: u64,
    /// The eventfd that the kernel writes with completions, if somebody asked for it.
    notifier: Option<RawFd>,
    /// Whether it does.
    notifies: bool,
    descriptor: OwnedFd,
    /// The queues' memory, which the pointers above point into.
    _queues: Mapping,
    _entries: Mapping,
}

// SAFETY: the pointers lead into mappings that the ring owns, and nothing of it is bound to a thread in a way
// that would make memory unsafe: the kernel refuses what only the owner may do.
unsafe impl Send for Ring {}

impl Ring {
    fn register<T>(
        &self,
        operation: abi::io_uring_register_op,
        argument: *mut T,
        count: u32,
    ) -> Result<u32, Errno> {
        let register = || {
            // SAFETY: the callers below pass what `io_uring_register(2)` wants for each operation, alive during the
            // call; memory that stays registered is pinned by the kernel.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_io_uring_register,
                    self.descriptor.as_raw_fd(),
                    operation as u32,
                    argument,
                    count,
                )
            };
            u32::try_from(result).map_err(|_| Errno::last())
        };
        match register() {
            Err(Errno::EINTR) => without_signals(register),
            result => result,
        }
    }

    /// The least time of a wait for so many completions, in microseconds, and its limit; `None`: neither.
    fn limits(&self, wait_for: u32, timeout: Option<Duration>) -> Option<(u32, abi::__kernel_timespec)> {
        let least_wait_us = if wait_for > 1 {
            // Not beyond the limit, which the kernel would look at only then.
            timeout.map_or(self.least_wait_us, |timeout| {
                u128::from(self.least_wait_us).min(timeout.as_micros()) as u32
            })
        } else {
            0
        };
        let slack = Duration::from_nanos(self.timer_slack_ns.into());
        let latest = match timeout {
            Some(timeout) => timeout.saturating_add(slack),
            // Without a limit the kernel ends the wait at its least time, although nothing has come
            // (`io_cqring_min_timer_wakeup`; seen on 6.18): an idle loop would go round once in each such time.
            None if least_wait_us > 0 => Duration::MAX,
            None => return None,
        };
        let limit = abi::__kernel_timespec {
            // The kernel adds this to its clock; what is as good as for ever must not overflow there.
            tv_sec: latest.as_secs().min(u64::from(u32::MAX)) as i64,
            tv_nsec: i64::from(latest.subsec_nanos()),
        };
        Some((least_wait_us, limit))
    }

    fn buffer_ring(&mut self, group: u16) -> &mut BufferRing {
        self.buffer_rings
            .get_mut(usize::from(group))
            .and_then(Option::as_mut)
            .expect("buffers are provided to registered groups only")
    }
}

/// Makes a call that a signal has ended again, with this thread's signals held back: before Linux 5.18 enabling a ring waits,
/// for some milliseconds even if nothing is in flight, and whoever gets signals more often than that would never be done. A
/// call that was ended so has done nothing.
fn without_signals<T>(call: impl FnOnce() -> T) -> T {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set, before anything reads it, and pthread_sigmask the other one; they fail only for
    // bad arguments.
    let before = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        before.assume_init()
    };
    let result = call();
    // SAFETY: pthread_sigmask filled the set, and a null pointer says that no set is wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    result
}

/// The calling thread's timer slack (`PR_GET_TIMERSLACK`, prctl(2)): by how much the kernel may put its sleeps off, 50 µs
/// unless it was set. `io_uring_enter(2)` alone ends its waits at the time. None where it is not told.
fn timer_slack_ns() -> u32 {
    // SAFETY: no memory is passed.
    let nanoseconds = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    u32::try_from(nanoseconds).unwrap_or(0)
}

impl UringSys for Ring {
    fn setup(parameters: &RingParameters) -> Result<(Self, RingProperties), Errno> {
        // SAFETY: a structure of integers, for which all zeroes is a valid value.
        let mut returned: abi::io_uring_params = unsafe { std::mem::zeroed() };
        returned.flags = parameters.flags | abi::IORING_SETUP_CQSIZE | abi::IORING_SETUP_CLAMP;
        returned.cq_entries = parameters.completion_entries;
        returned.sq_thread_idle = parameters.poll_idle_ms;
        // SAFETY: the parameters are alive and writable during the call.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_setup,
                parameters.submission_entries,
                &raw mut returned,
            )
        };
        let descriptor = i32::try_from(result).map_err(|_| Errno::EBADF)?;
        Errno::check(descriptor)?;
        // SAFETY: the call has just made this descriptor (CLOEXEC), and nothing else knows of it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        if returned.features & abi::IORING_FEAT_SINGLE_MMAP == 0 {
            return Err(Errno::EOPNOTSUPP);
        }

        let has_array = returned.flags & abi::IORING_SETUP_NO_SQARRAY == 0;
        let completions_end =
            returned.cq_off.cqes as usize + returned.cq_entries as usize * size_of::<CompletionEntry>();
        let array_end = if has_array {
            returned.sq_off.array as usize + returned.sq_entries as usize * size_of::<u32>()
        } else {
            0
        };
        let queues = Mapping::of_ring(
            descriptor.as_fd(),
            abi::IORING_OFF_SQ_RING,
            completions_end.max(array_end),
        )?;
        let entries = Mapping::of_ring(
            descriptor.as_fd(),
            abi::IORING_OFF_SQES,
            returned.sq_entries as usize * size_of::<SubmissionEntry>(),
        )?;
        if has_array {
            let array: NonNull<u32> = queues.pointer(returned.sq_off.array, returned.sq_entries as usize);
            for index in 0..returned.sq_entries {
                // SAFETY: within the array, which the kernel reads only for entries that were submitted.
                unsafe { array.add(index as usize).write(index) };
            }
        }
        assert!(returned.sq_entries.is_power_of_two() && returned.cq_entries.is_power_of_two());
        let ring = Self {
            submission: SubmissionQueue {
                head: queues.pointer(returned.sq_off.head, 1),
                tail: queues.pointer(returned.sq_off.tail, 1),
                flags: queues.pointer(returned.sq_off.flags, 1),
                entries: entries.pointer(0, returned.sq_entries as usize),
                length: returned.sq_entries,
                written: 0,
                shown: 0,
            },
            completion: CompletionQueue {
                head: queues.pointer(returned.cq_off.head, 1),
                tail: queues.pointer(returned.cq_off.tail, 1),
                flags: queues.pointer(returned.cq_off.flags, 1),
                entries: queues.pointer(returned.cq_off.cqes, returned.cq_entries as usize),
                mask: returned.cq_entries - 1,
                taken: 0,
            },
            buffer_rings: Vec::new(),
            buffer_reserve: Reserve::Zero,
            registered: None,
            kernel_polls: returned.flags & abi::IORING_SETUP_SQPOLL != 0,
            least_wait_us: parameters.least_wait_us,
            timer_slack_ns: 0,
            enters: 0,
            notifier: None,
            notifies: false,
            descriptor,
            _queues: queues,
            _entries: entries,
        };
        let properties = RingProperties {
            features: returned.features,
            submission_entries: returned.sq_entries,
            completion_entries: returned.cq_entries,
        };
        Ok((ring, properties))
    }

    fn probe_sockets() -> Result<ProbeSockets, Errno> {
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        let mut pair = [-1; 2];
        // SAFETY: room for two descriptors.
        Errno::check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) })?;
        // SAFETY: the call has just made these descriptors, and nothing else knows of them.
        let pair = pair.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) });
        // SAFETY: socket(2) takes no pointers.
        let listener = Errno::check(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
        // SAFETY: as for the pair.
        let listener = unsafe { OwnedFd::from_raw_fd(listener) };
        let family = libc::AF_UNIX as libc::sa_family_t;
        // An address of nothing but the family asks for an unused abstract name (`unix(7)`, autobind).
        // SAFETY: the address is alive and as long as stated.
        Errno::check(unsafe {
            libc::bind(
                listener.as_raw_fd(),
                (&raw const family).cast(),
                size_of_val(&family) as libc::socklen_t,
            )
        })?;
        // SAFETY: listen(2) takes no pointers.
        Errno::check(unsafe { libc::listen(listener.as_raw_fd(), 1) })?;
        Ok(ProbeSockets { listener, pair })
    }

    fn restrict(&mut self, restrictions: &Restrictions) -> Result<(), Errno> {
        let mut list = restrictions.list();
        let operation = abi::io_uring_register_op::IORING_REGISTER_RESTRICTIONS;
        self.register(operation, list.as_mut_ptr(), list.len() as u32)
            .map(|_| ())
    }

    fn enable(&mut self) -> Result<(), Errno> {
        let operation = abi::io_uring_register_op::IORING_REGISTER_ENABLE_RINGS;
        self.timer_slack_ns = timer_slack_ns();
        self.register(operation, ptr::null_mut::<u8>(), 0).map(|_| ())
    }

    fn register_ring_descriptor(&mut self) -> Result<(), Errno> {
        let mut update = abi::io_uring_rsrc_update {
            // The kernel chooses the index, and writes it here.
            offset: u32::MAX,
            resv: 0,
            data: self.descriptor.as_raw_fd() as u64,
        };
        let operation = abi::io_uring_register_op::IORING_REGISTER_RING_FDS;
        self.register(operation, &raw mut update, 1)?;
        self.registered = Some(RegisteredDescriptor {
            index: update.offset,
            thread: ThreadNumber::current(),
        });
        Ok(())
    }

    fn notify(&mut self, eventfd: RawFd) -> Result<(), Errno> {
        let mut argument = eventfd;
        let operation = abi::io_uring_register_op::IORING_REGISTER_EVENTFD;
        self.register(operation, &raw mut argument, 1)?;
        self.notifier = Some(eventfd);
        self.notifies = true;
        Ok(())
    }

    fn notifier(&self) -> Option<RawFd> {
        self.notifier
    }

    #[inline]
    fn disarm_notifier(&mut self) {
        if std::mem::take(&mut self.notifies) {
            self.completion.set_flags(abi::IORING_CQ_EVENTFD_DISABLED);
        }
    }

    fn arm_notifier(&mut self, trigger: Trigger) {
        let Some(notifier) = self.notifier else { return };
        if !std::mem::replace(&mut self.notifies, true) {
            self.completion.set_flags(0);
        }
        // The kernel moves the tail, has a full barrier (`io_cqring_wake`), and then looks whether it shall write. The fence
        // keeps the caller's look at the tail behind the store above: without it both could miss each other.
        fence(Ordering::SeqCst);
        if trigger == Trigger::Level {
            let mut count = [0u8; 8];
            // SAFETY: room for the counter's eight bytes. With none to read the call fails, which is as good.
            let _ = unsafe { libc::read(notifier, count.as_mut_ptr().cast(), count.len()) };
        }
    }

    fn try_telling(features: FeatureSet, telling: Telling) -> Result<(), Errno> {
        telling::try_telling::<Self>(features, telling)
    }

    fn supported_operations(&self) -> Result<u128, Errno> {
        const COUNT: usize = 128;
        #[repr(C)]
        struct Probe {
            header: abi::io_uring_probe,
            operations: [abi::io_uring_probe_op; COUNT],
        }
        // SAFETY: a structure of integers, for which all zeroes is a valid value.
        let mut probe: Probe = unsafe { std::mem::zeroed() };
        let operation = abi::io_uring_register_op::IORING_REGISTER_PROBE;
        self.register(operation, &raw mut probe, COUNT as u32)?;
        let known = usize::from(probe.header.ops_len).min(COUNT);
        Ok(probe.operations[..known]
            .iter()
            .filter(|operation| u32::from(operation.flags) & abi::IO_URING_OP_SUPPORTED != 0)
            .fold(0, |set, operation| set | 1 << operation.op))
    }

    fn register_buffer_ring(&mut self, group: u16, entries: u16) -> Result<(), Errno> {
        let ring = BufferRing::new(entries)?;
        let operation = abi::io_uring_register_op::IORING_REGISTER_PBUF_RING;
        self.buffer_reserve = self
            .buffer_reserve
            .register(ring.registration(group), |registration| {
                self.register(operation, ptr::from_mut(registration), 1)
                    .map(|_| ())
            })?;
        let index = usize::from(group);
        if self.buffer_rings.len() <= index {
            self.buffer_rings.resize_with(index + 1, || None);
        }
        self.buffer_rings[index] = Some(ring);
        Ok(())
    }

    fn unregister_buffer_ring(&mut self, group: u16) -> Result<(), Errno> {
        let operation = abi::io_uring_register_op::IORING_UNREGISTER_PBUF_RING;
        self.buffer_reserve.register(removal(group), |registration| {
            self.register(operation, ptr::from_mut(registration), 1)
                .map(|_| ())
        })?;
        // Only now is the memory of the kernel's no longer.
        self.buffer_rings[usize::from(group)] = None;
        Ok(())
    }

    #[inline]
    fn provide_buffer(&mut self, group: u16, buffer: ProvidedBuffer) {
        self.buffer_ring(group).provide(buffer);
    }

    #[inline]
    fn publish_buffers(&mut self, group: u16) {
        self.buffer_ring(group).publish();
    }

    fn register_memory(&mut self, address: *mut u8, length: usize) -> Result<(), Errno> {
        let mut range = libc::iovec {
            iov_base: address.cast(),
            iov_len: length,
        };
        let operation = abi::io_uring_register_op::IORING_REGISTER_BUFFERS;
        self.register(operation, &raw mut range, 1).map(|_| ())
    }

    #[inline]
    fn try_push(&mut self, entry: &SubmissionEntry) -> bool {
        self.submission.try_push(entry)
    }

    #[inline]
    fn unsubmitted(&self) -> u32 {
        self.submission.pending()
    }

    // Inlined where each turn enters, which is one place.
    #[inline(always)]
    fn enter(&mut self, wait_for: u32, timeout: Option<Duration>, flags: u32) -> Result<u32, Errno> {
        let mut flags = flags | abi::IORING_ENTER_GETEVENTS;
        let count = self.submission.pending();
        self.submission.show();
        if self.kernel_polls {
            // The kernel's thread sets the flag before it looks at the tail a last time; the fence keeps this
            // load behind the store of the tail. Without it both could miss each other.
            fence(Ordering::SeqCst);
            let ring_flags = self.submission.flags();
            if count > 0 && ring_flags & abi::IORING_SQ_NEED_WAKEUP != 0 {
                flags |= abi::IORING_ENTER_SQ_WAKEUP;
            } else if wait_for == 0
                && flags & abi::IORING_ENTER_SQ_WAIT == 0
                && ring_flags & abi::IORING_SQ_CQ_OVERFLOW == 0
            {
                return Ok(count);
            }
        }
        let descriptor = if let Some(registered) = &self.registered {
            flags |= abi::IORING_ENTER_REGISTERED_RING;
            registered.index
        } else {
            self.descriptor.as_raw_fd() as u32
        };
        let limits = if wait_for > 1 || wait_for == 1 && timeout.is_some() {
            self.limits(wait_for, timeout)
        } else {
            None
        };
        let argument = limits
            .as_ref()
            .map(|(least_wait_us, limit)| abi::io_uring_getevents_arg {
                sigmask: 0,
                sigmask_sz: 0,
                min_wait_usec: *least_wait_us,
                ts: ptr::from_ref(limit).expose_provenance() as u64,
            });
        let (argument, size) = match &argument {
            Some(argument) => {
                flags |= abi::IORING_ENTER_EXT_ARG;
                (ptr::from_ref(argument), size_of_val(argument))
            }
            None => (ptr::null(), 0),
        };
        self.enters += 1;
        // SAFETY: the argument and the time that it points to are alive during the call. The entries submitted
        // name memory for whose validity those who pushed them returned.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                descriptor,
                count,
                wait_for,
                flags,
                argument,
                size,
            )
        };
        u32::try_from(result).map_err(|_| Errno::last())
    }

    #[inline]
    fn has_completion(&self) -> bool {
        !self.completion.is_empty()
    }

    fn buffers_in_completions(&self) -> u32 {
        self.completion.buffers()
    }

    #[inline]
    fn pop(&mut self) -> Option<CompletionEntry> {
        self.completion.pop()
    }

    #[inline]
    fn has_overflowed(&self) -> bool {
        self.submission.flags() & abi::IORING_SQ_CQ_OVERFLOW != 0
    }

    #[inline]
    fn has_deferred_work(&self) -> bool {
        self.submission.flags() & abi::IORING_SQ_TASKRUN != 0
    }

    fn enters(&self) -> u64 {
        self.enters
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(registered) = &self.registered {
            // A registration belongs to its thread: from another one the index would name something else. That
            // thread's end removes it.
            if registered.thread == ThreadNumber::current() {
                let mut update = abi::io_uring_rsrc_update {
                    offset: registered.index,
                    resv: 0,
                    data: 0,
                };
                let operation = abi::io_uring_register_op::IORING_UNREGISTER_RING_FDS;
                let result = self.register(operation, &raw mut update, 1);
                debug_assert!(result.is_ok(), "a registered descriptor can be unregistered");
            }
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Ring({} entries, descriptor {})",
            self.submission.length,
            self.descriptor.as_raw_fd()
        )
    }
}
