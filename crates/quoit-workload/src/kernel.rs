//! What the kernel knows of a socket and of this process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Places in the array of SO_MEMINFO (linux/sock_diag.h).
const ALLOCATED: usize = 0;
const RECEIVE_BUFFER: usize = 1;
const DROPS: usize = 8;
const PLACES: usize = 9;

/// The receive side of a socket, as SO_MEMINFO tells it (socket(7), Linux 4.12).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SocketMemory {
    /// Memory of what is queued, in bytes, with the kernel's overhead.
    pub allocated: u32,
    /// Its bound: SO_RCVBUF, which the kernel doubles.
    pub receive_buffer: u32,
    /// Packets dropped since the socket was made, for want of room above all. It wraps around.
    pub drops: u32,
}

impl SocketMemory {
    /// That of `socket`.
    ///
    /// # Errors
    /// Those of getsockopt(2): ENOPROTOOPT before Linux 4.12.
    pub fn of(socket: BorrowedFd<'_>) -> io::Result<Self> {
        let mut places = [0_u32; PLACES];
        let mut length = size_of_val(&places) as libc::socklen_t;
        // SAFETY: the call writes at most `length` bytes, the size of `places`.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_MEMINFO,
                places.as_mut_ptr().cast(),
                &mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            allocated: places[ALLOCATED],
            receive_buffer: places[RECEIVE_BUFFER],
            drops: places[DROPS],
        })
    }
}

/// Processor time of this process, all its threads together. The sum is exact; how it divides into user and kernel is
/// estimated by the kernel from its ticks, unless it was built to count exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessTimes {
    /// In user space.
    pub user: Duration,
    /// In the kernel, on its behalf.
    pub kernel: Duration,
}

impl ProcessTimes {
    /// Those used so far (RUSAGE_SELF, getrusage(2)).
    #[must_use]
    pub fn now() -> Self {
        // SAFETY: a rusage is plain numbers, for which all zeroes is a valid value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a valid rusage that the call fills.
        let result = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        assert_eq!(
            result, 0,
            "getrusage(2) cannot fail for RUSAGE_SELF and valid memory"
        );
        let duration = |time: libc::timeval| {
            Duration::new(
                time.tv_sec.unsigned_abs(),
                1_000 * time.tv_usec.unsigned_abs() as u32,
            )
        };
        Self {
            user: duration(usage.ru_utime),
            kernel: duration(usage.ru_stime),
        }
    }

    /// What was used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            kernel: self.kernel.saturating_sub(earlier.kernel),
        }
    }
}

/// Memory of this process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessMemory {
    /// The most that it has had resident (VmHWM, proc_pid_status(5)).
    pub peak_resident: u64,
    /// What is pinned for the kernel and cannot be moved (VmPin): buffers registered with io_uring, for instance.
    pub pinned: u64,
}

impl ProcessMemory {
    /// That of now.
    ///
    /// # Errors
    /// /proc cannot be read, or does not say.
    pub fn now() -> io::Result<Self> {
        let status = std::fs::read_to_string("/proc/self/status")?;
        let bytes = |name: &str| {
            let value = status.lines().find_map(|line| line.strip_prefix(name));
            value
                .and_then(|value| value.trim().strip_suffix("kB")?.trim().parse::<u64>().ok())
                .map(|kibibytes| kibibytes * 1024)
                .ok_or_else(|| io::Error::other(format!("/proc/self/status has no {name}")))
        };
        Ok(Self {
            peak_resident: bytes("VmHWM:")?,
            pinned: bytes("VmPin:")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_socket_that_overflows_says_so() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let before = SocketMemory::of(receiver.as_fd()).unwrap();
        assert_eq!((before.allocated, before.drops), (0, 0));
        // Each takes more than a byte of the buffer.
        let address = receiver.local_addr().unwrap();
        let count = before.receive_buffer / 1000;
        for _ in 0..count {
            sender.send_to(&[0; 1000], address).unwrap();
        }
        let full = SocketMemory::of(receiver.as_fd()).unwrap();
        assert!(full.allocated > 0 && full.drops > 0, "{full:?}");
        receiver.set_nonblocking(true).unwrap();
        let mut buffer = [0; 1000];
        let received = std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).count();
        assert_eq!(received + full.drops as usize, count as usize);
    }

    #[test]
    fn this_process_has_used_time_and_memory() {
        let earlier = ProcessTimes::now();
        let later = ProcessTimes::now();
        assert!(later.user + later.kernel >= earlier.user + earlier.kernel);
        assert!(ProcessMemory::now().unwrap().peak_resident > 100_000);
    }
}
