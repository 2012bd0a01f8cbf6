//! What the first process asks of the kernel: file systems, the loopback interface, limits, and the end.
#![allow(unsafe_code, reason = "system calls that the standard library has not")]

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

/// Name of the file system, and where it is mounted.
const MOUNTS: [(&CStr, &CStr); 5] = [
    (c"proc", c"/proc"),
    (c"sysfs", c"/sys"),
    (c"devtmpfs", c"/dev"),
    (c"tmpfs", c"/tmp"),
    (c"tracefs", c"/sys/kernel/tracing"),
];

/// Mounts what programs expect, brings the loopback interface up, and raises limits.
pub(crate) fn set_up() {
    for (kind, place) in MOUNTS {
        let _exists = std::fs::create_dir_all(Path::new(&*place.to_string_lossy()));
        // SAFETY: strings that end in a zero byte; no data.
        let mounted = unsafe { libc::mount(kind.as_ptr(), place.as_ptr(), kind.as_ptr(), 0, ptr::null()) };
        if mounted != 0 {
            let error = io::Error::last_os_error();
            eprintln!("guest: mounting {}: {error}", place.to_string_lossy());
        }
    }
    for (link, target) in [("/dev/fd", "/proc/self/fd"), ("/dev/stdin", "/proc/self/fd/0")] {
        let _exists = std::os::unix::fs::symlink(target, link);
    }
    let _shared = std::fs::create_dir_all("/dev/shm");
    make_writable_for_all("/tmp");
    make_writable_for_all("/dev/shm");
    if let Err(error) = bring_loopback_up() {
        eprintln!("guest: bringing lo up: {error}");
    }
    limit(libc::RLIMIT_NOFILE, 1 << 19, 1 << 19)
        .unwrap_or_else(|error| eprintln!("guest: RLIMIT_NOFILE: {error}"));
    // Kernels before 5.16 give less than distributions set, and a user may not raise it.
    limit(libc::RLIMIT_MEMLOCK, libc::RLIM_INFINITY, libc::RLIM_INFINITY)
        .unwrap_or_else(|error| eprintln!("guest: RLIMIT_MEMLOCK: {error}"));
}

fn make_writable_for_all(place: &str) {
    let Ok(place) = CString::new(place) else { return };
    // SAFETY: a string that ends in a zero byte.
    unsafe { libc::chmod(place.as_ptr(), 0o1777) };
}

fn bring_loopback_up() -> io::Result<()> {
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was just made and is nobody else's.
    let _closes = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one `ifreq` (netdevice(7)).
    let result = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sets a limit of this process (setrlimit(2)).
pub(crate) fn limit(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> io::Result<()> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: one structure, which is read.
    if unsafe { libc::setrlimit(resource, &raw const limit) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Waits for one child, and meanwhile for every orphan that comes along.
pub(crate) fn wait_for(child: u32) {
    loop {
        // SAFETY: a status is not asked for.
        let ended = unsafe { libc::wait(ptr::null_mut()) };
        if ended < 0 || ended as u32 == child {
            return;
        }
    }
}

/// Ends every process but the first and this one.
pub(crate) fn end_all_others() {
    // SAFETY: no memory is passed. -1 spares the first process and the caller (kill(2)).
    unsafe { libc::kill(-1, libc::SIGKILL) };
}

/// Asks a child to end.
pub(crate) fn ask_to_end(child: u32) {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(child as libc::pid_t, libc::SIGTERM) };
}

/// Switches the machine off.
pub(crate) fn power_off() -> ! {
    // SAFETY: no memory is passed; only the first process comes here, of a machine that is ours.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    loop {
        std::thread::park();
    }
}
