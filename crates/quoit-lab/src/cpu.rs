//! What a process has used: CPU time, context switches, memory.

use std::fs;
use std::io;

use super::error::{LabError, Result};

/// Nanoseconds of CPU time that all threads of a process have used, those that have ended included.
///
/// Read from the process's CPU clock (clock_getcpuclockid(3)), which sums the scheduler's exact run times
/// in one call. `/proc/PID/task/*/schedstat` holds the same figures, but loses a thread when that ends and
/// is not read at one instant; the ticks of `/proc/PID/stat` are too coarse. io_uring's worker threads
/// belong to the process and are counted.
pub(crate) fn cpu_time_ns(process: u32) -> Result<u64> {
    let mut clock: libc::clockid_t = 0;
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: both pointers are valid for the writes.
    let error = unsafe {
        match libc::clock_getcpuclockid(process as libc::pid_t, &mut clock) {
            0 if libc::clock_gettime(clock, &mut time) == 0 => None,
            0 => Some(io::Error::last_os_error()),
            error => Some(io::Error::from_raw_os_error(error)),
        }
    };
    match error {
        None => Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64),
        Some(error) => Err(LabError::io(format!(
            "reading the CPU clock of process {process}"
        ))(error)),
    }
}

/// Voluntary and involuntary context switches of the threads that a process has now.
pub(crate) fn context_switches(process: u32) -> Result<u64> {
    let mut switches = 0;
    for thread in threads(process)? {
        // A thread may end between the listing and this.
        if let Ok(status) = fs::read_to_string(format!("/proc/{process}/task/{thread}/status")) {
            switches += switches_in(&status);
        }
    }
    Ok(switches)
}

/// Ids of the threads that a process has now.
pub(crate) fn threads(process: u32) -> Result<Vec<u32>> {
    let folder = format!("/proc/{process}/task");
    let listed = fs::read_dir(&folder).map_err(LabError::io(format!("listing {folder}")))?;
    Ok(listed
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

/// The most bytes of memory that a process ever had in RAM. What the kernel holds for its sockets is not in it.
pub(crate) fn peak_resident_bytes(process: u32) -> Result<u64> {
    let path = format!("/proc/{process}/status");
    let status = fs::read_to_string(&path).map_err(LabError::io(format!("reading {path}")))?;
    field(&status, "VmHWM:")
        .map(|kibibytes| kibibytes * 1024)
        .ok_or_else(|| LabError::new(format!("{path} has no VmHWM line: the process has ended")))
}

fn switches_in(status: &str) -> u64 {
    let of = |name| field(status, name).unwrap_or(0);
    of("voluntary_ctxt_switches:") + of("nonvoluntary_ctxt_switches:")
}

/// The number on the line of proc_pid_status(5) that starts with `name`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_lines_are_read() {
        let status = "Name:\tserver\nVmHWM:\t    1234 kB\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t35\n";
        assert_eq!(field(status, "VmHWM:"), Some(1234));
        assert_eq!(switches_in(status), 42);
        assert_eq!(field(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_has_used_something() {
        let process = std::process::id();
        let before = cpu_time_ns(process).expect("our own clock is readable");
        let mut sum = 0_u64;
        while cpu_time_ns(process).expect("our own clock is readable") == before {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        assert!(peak_resident_bytes(process).expect("our own status is readable") > 0);
        assert!(!threads(process).expect("our own threads are listed").is_empty());
    }

    #[test]
    fn threads_that_have_ended_are_counted() {
        fn own_time_ns() -> u64 {
            let mut time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            // SAFETY: the pointer is valid for the write.
            let result = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
            assert_eq!(result, 0);
            time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
        }
        let process = std::process::id();
        let before = cpu_time_ns(process).expect("our own clock is readable");
        let burn = || {
            while own_time_ns() < 20_000_000 {}
            own_time_ns()
        };
        let used = std::thread::spawn(burn).join().expect("it does not panic");
        let after = cpu_time_ns(process).expect("our own clock is readable");
        assert!(after - before >= used, "{after} - {before} < {used}");
    }

    #[test]
    fn an_absent_process_is_an_error() {
        // Above the kernel's PID_MAX_LIMIT, so that no process can have it.
        let absent = 1 << 23;
        for error in [
            cpu_time_ns(absent),
            context_switches(absent),
            peak_resident_bytes(absent),
        ] {
            assert!(
                error
                    .expect_err("there is no such process")
                    .to_string()
                    .contains(&absent.to_string())
            );
        }
    }
}
