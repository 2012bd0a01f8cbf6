//! Counting the system calls of a server.
//!
//! The count comes from the tracepoint raw_syscalls:sys_enter, which the kernel passes at the entry of
//! every system call (perf_event_open(2)). An armed tracepoint makes every system call dearer, and so favours the
//! side that makes fewer: counting and timing must never happen in the same run.

use std::fs;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

use super::cpu;

/// Where the kernel states a tracepoint's number: tracefs, by itself or inside debugfs.
const TRACEPOINT_FILES: [&str; 2] = [
    "/sys/kernel/tracing/events/raw_syscalls/sys_enter/id",
    "/sys/kernel/debug/tracing/events/raw_syscalls/sys_enter/id",
];

/// `PERF_TYPE_TRACEPOINT` of linux/perf_event.h.
const TYPE_TRACEPOINT: u32 = 2;
/// The bit `inherit` of `perf_event_attr`: threads and children that start later are counted too.
const INHERIT: u64 = 1 << 1;
/// `PERF_FLAG_FD_CLOEXEC` of linux/perf_event.h.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// The first version of `struct perf_event_attr`, `PERF_ATTR_SIZE_VER0`, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    event_type: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
}

const _: () = assert!(size_of::<Attributes>() == 64);

/// Counts the system calls of all threads of one process, from its creation on.
pub(crate) struct SystemCallCounter {
    /// One event a thread that existed at the start; its later threads are inside.
    events: Vec<fs::File>,
}

impl SystemCallCounter {
    /// Starts to count.
    ///
    /// # Errors
    /// Why this machine does not permit it, and what would, as a sentence for the user.
    pub(crate) fn start(process: u32) -> Result<Self, String> {
        let tracepoint = tracepoint()?;
        let threads = cpu::threads(process).map_err(|error| error.to_string())?;
        Self::of_threads(tracepoint, threads).map_err(|error| {
            let remedy = match error.raw_os_error() {
                Some(libc::EACCES | libc::EPERM) => {
                    "; run as root or with CAP_PERFMON, or set kernel.perf_event_paranoid to -1; in a \
                     container the seccomp profile has to allow perf_event_open"
                }
                Some(libc::ENOSYS) => "; the kernel was built without perf events",
                _ => "",
            };
            format!("perf_event_open on raw_syscalls:sys_enter failed: {error}{remedy}")
        })
    }

    /// Of those threads that have not ended meanwhile, as io_uring's workers do when they are idle.
    fn of_threads(tracepoint: u64, threads: impl IntoIterator<Item = u32>) -> io::Result<Self> {
        let opened = threads.into_iter().map(|thread| open_event(tracepoint, thread));
        let has_ended = |error: &io::Error| error.raw_os_error() == Some(libc::ESRCH);
        let events = opened
            .filter(|event| !event.as_ref().is_err_and(has_ended))
            .collect::<io::Result<Vec<_>>>()?;
        if events.is_empty() {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        Ok(Self { events })
    }

    /// System calls since the start.
    pub(crate) fn read(&mut self) -> io::Result<u64> {
        let mut calls = 0;
        for event in &mut self.events {
            let mut value = [0; size_of::<u64>()];
            event.read_exact(&mut value)?;
            calls += u64::from_ne_bytes(value);
        }
        Ok(calls)
    }
}

fn tracepoint() -> Result<u64, String> {
    let mut reason = String::new();
    for path in TRACEPOINT_FILES {
        match fs::read_to_string(path) {
            Ok(text) => {
                return text
                    .trim()
                    .parse()
                    .map_err(|_| format!("{path} holds no number: {}", text.trim()));
            }
            Err(error) if reason.is_empty() => reason = format!("reading {path}: {error}"),
            Err(_) => {}
        }
    }
    Err(format!(
        "{reason}; it needs root and tracefs (mount -t tracefs tracefs /sys/kernel/tracing)"
    ))
}

fn open_event(tracepoint: u64, thread: u32) -> io::Result<fs::File> {
    let attributes = Attributes {
        event_type: TYPE_TRACEPOINT,
        size: size_of::<Attributes>() as u32,
        config: tracepoint,
        flags: INHERIT,
        ..Attributes::default()
    };
    let (any_core, no_group): (libc::c_int, libc::c_int) = (-1, -1);
    // SAFETY: the attributes have the size that they state and are only read.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread as libc::pid_t,
            any_core,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor has just been created and is ours alone.
    Ok(unsafe { fs::File::from_raw_fd(descriptor as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where counting is not permitted, this checks that it says so.
    #[test]
    fn system_calls_of_all_threads_are_counted_or_the_reason_is_named() {
        let mut counter = match SystemCallCounter::start(std::process::id()) {
            Ok(counter) => counter,
            Err(reason) => {
                assert!(reason.contains("raw_syscalls"), "{reason}");
                return;
            }
        };
        let call = || (0..1000).for_each(|_| drop(fs::metadata("/")));
        call();
        std::thread::spawn(call).join().expect("the thread ends");
        assert!(counter.read().expect("the events are readable") >= 2000);
    }

    #[test]
    fn a_thread_that_has_ended_keeps_no_other_from_being_counted() {
        let Ok(tracepoint) = tracepoint() else { return };
        // No thread has such a number (PID_MAX_LIMIT of the kernel is 2^22).
        let ended = 1 << 23;
        let gone = SystemCallCounter::of_threads(tracepoint, [ended]).map(drop);
        if gone
            .as_ref()
            .is_err_and(|error| error.raw_os_error() != Some(libc::ESRCH))
        {
            return;
        }
        assert!(gone.is_err(), "there is nothing to count");
        let counted = SystemCallCounter::of_threads(tracepoint, [ended, std::process::id()]);
        assert!(counted.is_ok());
    }
}
