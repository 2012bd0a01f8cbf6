//! The minimal profile of the program: what it was seen to call, and what it may call elsewhere.

use std::collections::BTreeSet;

use crate::profile::Profile;

/// Calls that no trace of one machine shows: what other processors, C libraries and kernels have in place of those that it
/// shows, and what the kernel and runtimes call in the program's name.
const ELSEWHERE: [&str; 41] = [
    // Other processors and the static program on musl.
    "access",
    "arch_prctl",
    "clone",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "fstat",
    "getdents64",
    "lseek",
    "membarrier",
    "newfstatat",
    "nanosleep",
    "open",
    "openat",
    "pipe2",
    "poll",
    "ppoll",
    "pread64",
    "readlink",
    "readlinkat",
    "readv",
    "riscv_hwprobe",
    "set_robust_list",
    "stat",
    "statx",
    "tgkill",
    "tkill",
    "unlinkat",
    "writev",
    // Options that the suites do not give: --pin, --batch, and waits that never sleep.
    "sched_setaffinity",
    "sched_setattr",
    "sched_setscheduler",
    "sched_yield",
    // After a stop, a signal and a panic.
    "gettid",
    "getpid",
    "restart_syscall",
    "rt_sigreturn",
    // What runc calls between its filter and the program, with no-new-privileges; openat2 is of newer ones.
    "close_range",
    "fstatfs",
    "openat2",
    "prctl",
];

/// The profile of a program that was seen to make these calls.
#[must_use]
pub fn profile(seen: &BTreeSet<String>) -> Profile {
    let names = seen.iter().cloned().chain(ELSEWHERE.map(str::to_owned));
    Profile::of(
        names,
        "quoit serve, load and doctor, as traced from the suites of the program; made by `quoit-deploy trace`",
    )
}
