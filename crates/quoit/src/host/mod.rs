//! What this host allows: the facts that decide whether io_uring can be used and how far a server gets, and
//! what a refusal of io_uring means in their light.

use std::fmt;
use std::fs;

mod explain;

pub use explain::{Diagnosis, explain};

/// The capability that lifts the limit on locked memory (`capabilities(7)`).
const CAP_IPC_LOCK: u32 = 14;
/// The capability that `kernel.io_uring_disabled=1` asks for (`capabilities(7)`).
const CAP_SYS_ADMIN: u32 = 21;

/// What the kernel says under `/proc` about itself and this process. `None` is what it does not say: the file is
/// hidden, as in some containers, or the kernel is too old to have it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct HostFacts {
    /// The kernel's release, such as `6.12.9` (`/proc/sys/kernel/osrelease`).
    pub kernel_release: Option<String>,
    /// `kernel.io_uring_disabled`: 0 for nobody, 1 for the unprivileged, 2 for all. Since Linux 6.6.
    pub io_uring_disabled: Option<u32>,
    /// `kernel.io_uring_group`: the group whose members may use io_uring where it is disabled for the
    /// unprivileged; -1 for none. Since Linux 6.6.
    pub io_uring_group: Option<i64>,
    /// How system calls of the calling thread are filtered (`seccomp(2)`).
    pub seccomp: Option<SeccompMode>,
    /// The effective group of the calling thread and its supplementary ones.
    pub groups: Vec<u32>,
    /// The effective capabilities of the calling thread, as a bit set (`capabilities(7)`). In a user namespace
    /// they are worth less than they seem: io_uring asks for those of the initial one.
    pub effective_capabilities: Option<u64>,
    /// `RLIMIT_MEMLOCK` in bytes, counted over all processes of a user; rings are charged to it.
    pub memlock: Option<ResourceLimit>,
    /// `RLIMIT_AS` in bytes: address space of this process.
    pub address_space: Option<ResourceLimit>,
    /// `RLIMIT_NOFILE`: descriptors of this process.
    pub descriptors: Option<ResourceLimit>,
    /// `net.core.somaxconn`: what the backlog of a listening socket is capped at.
    pub max_backlog: Option<u32>,
    /// `net.ipv4.tcp_congestion_control`: how new TCP connections pace themselves.
    pub congestion_control: Option<String>,
}

/// How system calls are filtered (`seccomp(2)`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SeccompMode {
    /// Not at all.
    Disabled,
    /// Four calls are left.
    Strict,
    /// By one or more filters, as container runtimes and systemd install them.
    Filter,
}

impl fmt::Display for SeccompMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "disabled",
            Self::Strict => "strict",
            Self::Filter => "filter",
        })
    }
}

/// A resource limit (`getrlimit(2)`); `None` is unlimited.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct ResourceLimit {
    /// What is in force.
    pub soft: Option<u64>,
    /// How far the process may raise it by itself.
    pub hard: Option<u64>,
}

impl HostFacts {
    /// The facts of now, for the calling thread.
    #[must_use]
    pub fn read() -> Self {
        Self::from_files(|path| fs::read_to_string(path).ok())
    }

    /// The facts in files, of which `file` returns the content.
    fn from_files(file: impl Fn(&str) -> Option<String>) -> Self {
        let line = |path| file(path).map(|text| text.trim().to_owned());
        let status = file("/proc/thread-self/status").unwrap_or_default();
        let limits = file("/proc/self/limits").unwrap_or_default();
        Self {
            kernel_release: line("/proc/sys/kernel/osrelease"),
            io_uring_disabled: line("/proc/sys/kernel/io_uring_disabled").and_then(|text| text.parse().ok()),
            io_uring_group: line("/proc/sys/kernel/io_uring_group").and_then(|text| text.parse().ok()),
            seccomp: field(&status, "Seccomp:").and_then(|mode| match mode {
                "0" => Some(SeccompMode::Disabled),
                "1" => Some(SeccompMode::Strict),
                "2" => Some(SeccompMode::Filter),
                _ => None,
            }),
            groups: groups(&status),
            effective_capabilities: field(&status, "CapEff:")
                .and_then(|set| u64::from_str_radix(set, 16).ok()),
            memlock: limit(&limits, "Max locked memory"),
            address_space: limit(&limits, "Max address space"),
            descriptors: limit(&limits, "Max open files"),
            max_backlog: line("/proc/sys/net/core/somaxconn").and_then(|text| text.parse().ok()),
            congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        }
    }

    /// Whether `CAP_SYS_ADMIN` is effective; `None` if unknown.
    #[must_use]
    pub fn has_sys_admin(&self) -> Option<bool> {
        self.has_capability(CAP_SYS_ADMIN)
    }

    /// Whether `CAP_IPC_LOCK` is effective, which lifts the limit on locked memory; `None` if unknown.
    #[must_use]
    pub fn has_ipc_lock(&self) -> Option<bool> {
        self.has_capability(CAP_IPC_LOCK)
    }

    fn has_capability(&self, number: u32) -> Option<bool> {
        Some(self.effective_capabilities? & (1 << number) != 0)
    }

    /// Whether the calling thread is in the group that may use io_uring; false if there is none.
    #[must_use]
    pub fn in_io_uring_group(&self) -> bool {
        self.io_uring_group
            .and_then(|group| u32::try_from(group).ok())
            .is_some_and(|group| self.groups.contains(&group))
    }

    /// The kernel's version and major revision, such as (6, 12).
    #[must_use]
    pub fn kernel_version(&self) -> Option<(u32, u32)> {
        let mut numbers = self
            .kernel_release
            .as_deref()?
            .split(|character: char| !character.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

/// What follows `name` on its line of `/proc/.../status`.
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(rest.trim())
}

fn groups(status: &str) -> Vec<u32> {
    // Real, effective, saved and file system group.
    let effective = field(status, "Gid:").and_then(|ids| ids.split_whitespace().nth(1));
    let supplementary = field(status, "Groups:").unwrap_or_default().split_whitespace();
    effective
        .into_iter()
        .chain(supplementary)
        .filter_map(|group| group.parse().ok())
        .collect()
}

/// The limit called `name` in `/proc/.../limits`.
fn limit(limits: &str, name: &str) -> Option<ResourceLimit> {
    let rest = limits.lines().find_map(|line| line.strip_prefix(name))?;
    let mut values = rest.split_whitespace().map(|value| match value {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    });
    Some(ResourceLimit {
        soft: values.next()??,
        hard: values.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_understood() {
        let facts = HostFacts::from_files(|path| {
            let text = match path {
                "/proc/sys/kernel/osrelease" => "6.1.0-18-amd64\n",
                "/proc/sys/kernel/io_uring_disabled" => "1\n",
                "/proc/sys/kernel/io_uring_group" => "-1\n",
                "/proc/sys/net/core/somaxconn" => "4096\n",
                "/proc/sys/net/ipv4/tcp_congestion_control" => "bbr\n",
                "/proc/thread-self/status" => {
                    "Name:\tserver\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1001\t1002\t1003\n\
                     Groups:\t4 27 \nCapInh:\t0000000000000000\nCapEff:\t0000000000204000\n\
                     Seccomp:\t2\nSeccomp_filters:\t1\n"
                }
                "/proc/self/limits" => {
                    "Limit                     Soft Limit           Hard Limit           Units     \n\
                     Max open files            1024                 524288               files     \n\
                     Max locked memory         8388608              unlimited            bytes     \n\
                     Max address space         unlimited            unlimited            bytes     \n"
                }
                _ => panic!("{path}"),
            };
            Some(text.to_owned())
        });
        assert_eq!(
            facts,
            HostFacts {
                kernel_release: Some("6.1.0-18-amd64".into()),
                io_uring_disabled: Some(1),
                io_uring_group: Some(-1),
                seccomp: Some(SeccompMode::Filter),
                groups: vec![1001, 4, 27],
                effective_capabilities: Some(1 << CAP_SYS_ADMIN | 1 << CAP_IPC_LOCK),
                memlock: Some(ResourceLimit {
                    soft: Some(8_388_608),
                    hard: None
                }),
                address_space: Some(ResourceLimit::default()),
                descriptors: Some(ResourceLimit {
                    soft: Some(1024),
                    hard: Some(524_288)
                }),
                max_backlog: Some(4096),
                congestion_control: Some("bbr".into()),
            }
        );
        assert_eq!(facts.kernel_version(), Some((6, 1)));
        assert_eq!(
            (facts.has_sys_admin(), facts.has_ipc_lock()),
            (Some(true), Some(true))
        );
        assert!(!facts.in_io_uring_group());
        let member = HostFacts {
            io_uring_group: Some(27),
            ..facts
        };
        assert!(member.in_io_uring_group());
    }

    #[test]
    fn what_is_hidden_is_unknown() {
        let facts = HostFacts::from_files(|_| None);
        assert_eq!(facts, HostFacts::default());
        assert_eq!((facts.has_sys_admin(), facts.kernel_version()), (None, None));
        let garbled = HostFacts::from_files(|_| Some("Max locked memory x\nSeccomp: 9\nCapEff: z".into()));
        assert_eq!(garbled.memlock, None);
        assert_eq!(garbled.seccomp, None);
        assert_eq!(garbled.effective_capabilities, None);
        assert_eq!(garbled.io_uring_disabled, None);
    }

    #[test]
    fn this_host_has_facts() {
        let facts = HostFacts::read();
        assert!(facts.kernel_version().unwrap() >= (4, 0));
        assert!(facts.seccomp.is_some() && facts.effective_capabilities.is_some());
        assert!(facts.memlock.is_some() && facts.address_space.is_some());
        assert!(facts.descriptors.unwrap().soft.is_some());
    }
}
