//! Why io_uring is refused, and the remedy.

use std::fmt;

use super::{HostFacts, SeccompMode};
use crate::errno::Errno;

/// The first kernel with `IORING_SETUP_DEFER_TASKRUN`, the last feature that the engine makes much of.
const RECOMMENDED_KERNEL: &str = "Linux 6.1 or newer";

/// What is missing for io_uring, and what to do about it. Displayed in one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnosis {
    /// What is missing or in the way.
    pub missing: String,
    /// What to do about it.
    pub remedy: String,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.missing, self.remedy)
    }
}

/// Says why setting up io_uring failed: at `step` (the name of a call, such as `io_uring_setup`) with `errno`,
/// on a host of which `facts` are known.
///
/// The meanings are those of `io_uring_setup(2)`, of the kernel's page on `kernel.io_uring_disabled`
/// (`Documentation/admin-guide/sysctl/kernel.rst`) and of `seccomp(2)`.
#[must_use]
pub fn explain(step: &str, errno: Errno, facts: &HostFacts) -> Diagnosis {
    match errno.code() {
        libc::EPERM | libc::EACCES => denied(step, errno, facts),
        libc::ENOSYS => absent(step, facts),
        libc::ENOMEM => no_memory(step, facts),
        libc::EMFILE => no_descriptors(step, facts),
        libc::ENFILE => diagnosis(
            format!("{step} failed: the system has as many open files as it may"),
            "raise the sysctl fs.file-max",
        ),
        libc::EINVAL => diagnosis(
            format!(
                "{step} failed: {} does not support what was requested",
                kernel(facts)
            ),
            format!("run {RECOMMENDED_KERNEL}"),
        ),
        libc::EOPNOTSUPP => diagnosis(
            format!("{step}: {} does not have it", kernel(facts)),
            format!("run {RECOMMENDED_KERNEL}"),
        ),
        libc::ETIME => diagnosis(
            format!("{step} came late or never with {}", kernel(facts)),
            "run another kernel, or leave it to epoll; a very busy machine looks the same, so try again",
        ),
        _ => diagnosis(
            format!("{step} failed: {errno}"),
            "see io_uring_setup(2) for what it means",
        ),
    }
}

fn diagnosis(missing: impl Into<String>, remedy: impl Into<String>) -> Diagnosis {
    Diagnosis {
        missing: missing.into(),
        remedy: remedy.into(),
    }
}

fn kernel(facts: &HostFacts) -> String {
    match &facts.kernel_release {
        Some(release) => format!("the kernel ({release})"),
        None => "the kernel".to_owned(),
    }
}

const ALLOW_IN_SECCOMP: &str = "use a seccomp profile that allows io_uring_setup, io_uring_enter and \
     io_uring_register (Docker and Podman: --security-opt seccomp=FILE; Kubernetes: a Localhost seccompProfile; \
     systemd: SystemCallFilter=@aio)";

fn denied(step: &str, errno: Errno, facts: &HostFacts) -> Diagnosis {
    match facts.io_uring_disabled {
        Some(2) => {
            return diagnosis(
                format!("{step} is denied to all processes (kernel.io_uring_disabled is 2)"),
                "run `sysctl kernel.io_uring_disabled=0` as root, and keep it in /etc/sysctl.d",
            );
        }
        Some(1) if facts.has_sys_admin() != Some(true) && !facts.in_io_uring_group() => {
            return match facts.io_uring_group {
                Some(group) if group >= 0 => diagnosis(
                    format!(
                        "{step} is denied to processes without CAP_SYS_ADMIN that are not in group {group} \
                         (kernel.io_uring_disabled is 1)"
                    ),
                    format!(
                        "run this as a member of group {group}, or run `sysctl kernel.io_uring_disabled=0` as root"
                    ),
                ),
                _ => diagnosis(
                    format!(
                        "{step} is denied to processes without CAP_SYS_ADMIN (kernel.io_uring_disabled is 1)"
                    ),
                    "set the sysctl kernel.io_uring_group to a group of this user, or run \
                     `sysctl kernel.io_uring_disabled=0` as root",
                ),
            };
        }
        _ => {}
    }
    match facts.seccomp {
        Some(SeccompMode::Filter | SeccompMode::Strict) => diagnosis(
            format!("{step} is denied by a seccomp filter, as container runtimes install one by default"),
            ALLOW_IN_SECCOMP,
        ),
        Some(SeccompMode::Disabled) => diagnosis(
            format!("{step} is denied ({errno}) neither by a sysctl nor by seccomp, so by a security module"),
            "look for the refusal in the audit log (`ausearch -m avc`, `dmesg`) and allow io_uring in the policy \
             of SELinux or AppArmor",
        ),
        None => diagnosis(
            format!("{step} is denied ({errno}), and /proc does not say by what"),
            "check the sysctl kernel.io_uring_disabled (0 allows it), the seccomp profile and the policy of the \
             security module",
        ),
    }
}

fn absent(step: &str, facts: &HostFacts) -> Diagnosis {
    if facts.kernel_version().is_some_and(|version| version < (5, 1)) {
        return diagnosis(
            format!(
                "{} has no {step}: io_uring came with Linux 5.1 (sandboxes such as gVisor name an old release \
                 too)",
                kernel(facts)
            ),
            format!("run {RECOMMENDED_KERNEL}, outside such a sandbox"),
        );
    }
    match facts.seccomp {
        Some(SeccompMode::Filter | SeccompMode::Strict) => diagnosis(
            format!(
                "{step} is hidden by a seccomp filter that returns ENOSYS, or {} was built without io_uring",
                kernel(facts)
            ),
            ALLOW_IN_SECCOMP,
        ),
        _ => diagnosis(
            format!(
                "{} has no {step}: it was built without CONFIG_IO_URING, or a sandbox such as gVisor stands in \
                 for it",
                kernel(facts)
            ),
            "run a kernel with io_uring, outside such a sandbox",
        ),
    }
}

fn no_memory(step: &str, facts: &HostFacts) -> Diagnosis {
    // Seldom set, so where it is, it is the nearest cause.
    if let Some(bytes) = facts.address_space.and_then(|limit| limit.soft) {
        return diagnosis(
            format!(
                "{step} failed for want of memory: RLIMIT_AS lets this process have {} KiB of address space",
                bytes / 1024
            ),
            "raise it (`ulimit -v`; LimitAS= under systemd), and the limit on locked memory where that is low (`ulimit \
             -l`; LimitMEMLOCK=), or run fewer loops or smaller rings",
        );
    }
    let soft = facts.memlock.and_then(|limit| limit.soft);
    match soft {
        Some(bytes) if facts.has_ipc_lock() != Some(true) => diagnosis(
            format!(
                "{step} failed for want of locked memory: RLIMIT_MEMLOCK lets all processes of this user have {} \
                 KiB together",
                bytes / 1024
            ),
            "raise it (`ulimit -l`; LimitMEMLOCK= under systemd; --ulimit memlock= under Docker), or run fewer \
             loops or smaller rings",
        ),
        _ => diagnosis(
            format!("{step} failed for want of memory, of the host or of this control group (memory.max)"),
            "give it more memory, or run fewer loops or smaller rings",
        ),
    }
}

fn no_descriptors(step: &str, facts: &HostFacts) -> Diagnosis {
    let limit = facts.descriptors.unwrap_or_default();
    let missing = match limit.soft {
        Some(soft) => {
            format!("{step} failed for want of a descriptor: RLIMIT_NOFILE lets this process have {soft}")
        }
        None => format!("{step} failed for want of a descriptor: this process has as many as it may"),
    };
    let remedy = "raise it (`ulimit -n`; LimitNOFILE= under systemd; --ulimit nofile= under Docker)";
    match (limit.soft, limit.hard) {
        (Some(soft), Some(hard)) if hard > soft => {
            diagnosis(missing, format!("{remedy}; up to {hard} needs no privilege"))
        }
        _ => diagnosis(missing, remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CAP_IPC_LOCK, CAP_SYS_ADMIN, ResourceLimit};
    use super::*;

    /// An ordinary host on which nothing stands in the way.
    fn open() -> HostFacts {
        HostFacts {
            kernel_release: Some("6.12.9".into()),
            io_uring_disabled: Some(0),
            io_uring_group: Some(-1),
            seccomp: Some(SeccompMode::Disabled),
            groups: vec![1000],
            effective_capabilities: Some(0),
            memlock: Some(ResourceLimit {
                soft: Some(8 << 20),
                hard: Some(8 << 20),
            }),
            address_space: Some(ResourceLimit::default()),
            descriptors: Some(ResourceLimit {
                soft: Some(1024),
                hard: Some(524_288),
            }),
            max_backlog: Some(4096),
            congestion_control: Some("cubic".into()),
        }
    }

    #[track_caller]
    fn check(code: i32, facts: &HostFacts, missing: &str, remedy: &str) {
        let found = explain("io_uring_setup", Errno::new(code), facts);
        assert!(found.missing.contains("io_uring_setup"), "{found}");
        assert!(found.missing.contains(missing), "{found}");
        assert!(found.remedy.contains(remedy), "{found}");
        assert!(!found.to_string().contains('\n'), "{found}");
    }

    #[test]
    fn not_told() {
        check(
            libc::ETIME,
            &open(),
            "came late or never with the kernel (6.12.9)",
            "leave it to epoll",
        );
    }

    #[test]
    fn disabled_for_all() {
        let facts = HostFacts {
            io_uring_disabled: Some(2),
            // Neither helps, nor is the filter to blame.
            effective_capabilities: Some(u64::MAX),
            seccomp: Some(SeccompMode::Filter),
            ..open()
        };
        check(
            libc::EPERM,
            &facts,
            "io_uring_disabled is 2",
            "sysctl kernel.io_uring_disabled=0",
        );
    }

    #[test]
    fn disabled_for_the_unprivileged() {
        let mut facts = HostFacts {
            io_uring_disabled: Some(1),
            ..open()
        };
        check(
            libc::EPERM,
            &facts,
            "without CAP_SYS_ADMIN",
            "kernel.io_uring_group to a group",
        );
        facts.io_uring_group = Some(27);
        check(libc::EPERM, &facts, "not in group 27", "as a member of group 27");
        facts.groups.push(27);
        check(libc::EPERM, &facts, "security module", "audit log");
        facts.groups.clear();
        facts.effective_capabilities = Some(1 << CAP_SYS_ADMIN);
        facts.seccomp = Some(SeccompMode::Filter);
        check(
            libc::EPERM,
            &facts,
            "seccomp filter",
            "io_uring_setup, io_uring_enter and",
        );
    }

    #[test]
    fn denied_by_something_else() {
        let mut facts = HostFacts {
            seccomp: Some(SeccompMode::Filter),
            ..open()
        };
        check(libc::EPERM, &facts, "seccomp filter", "io_uring_register");
        facts.seccomp = Some(SeccompMode::Disabled);
        check(libc::EACCES, &facts, "security module", "SELinux");
        check(
            libc::EPERM,
            &HostFacts::default(),
            "does not say by what",
            "io_uring_disabled",
        );
    }

    #[test]
    fn not_there() {
        let mut facts = open();
        check(libc::ENOSYS, &facts, "CONFIG_IO_URING", "outside such a sandbox");
        facts.seccomp = Some(SeccompMode::Filter);
        check(libc::ENOSYS, &facts, "returns ENOSYS", "seccomp profile");
        facts.kernel_release = Some("4.18.0-553.el8.x86_64".into());
        check(
            libc::ENOSYS,
            &facts,
            "4.18.0-553.el8.x86_64",
            "Linux 6.1 or newer",
        );
        facts.kernel_release = Some("5.0.21".into());
        check(libc::ENOSYS, &facts, "came with Linux 5.1", "Linux 6.1");
        facts.kernel_release = Some("5.10.0".into());
        facts.seccomp = None;
        check(libc::ENOSYS, &facts, "CONFIG_IO_URING", "kernel with io_uring");
        check(
            libc::EINVAL,
            &facts,
            "the kernel (5.10.0) does not support",
            "Linux 6.1",
        );
    }

    #[test]
    fn out_of_memory() {
        let mut facts = open();
        check(libc::ENOMEM, &facts, "have 8192 KiB together", "LimitMEMLOCK=");
        facts.effective_capabilities = Some(1 << CAP_IPC_LOCK);
        check(libc::ENOMEM, &facts, "memory.max", "fewer loops");
        facts.effective_capabilities = Some(0);
        facts.memlock = Some(ResourceLimit::default());
        check(libc::ENOMEM, &facts, "memory.max", "fewer loops");
        facts.address_space = Some(ResourceLimit {
            soft: Some(1 << 30),
            hard: None,
        });
        check(
            libc::ENOMEM,
            &facts,
            "RLIMIT_AS lets this process have 1048576 KiB",
            "`ulimit -v`; LimitAS=",
        );
    }

    #[test]
    fn too_old() {
        check(
            libc::EOPNOTSUPP,
            &open(),
            "the kernel (6.12.9) does not have it",
            "Linux 6.1 or newer",
        );
    }

    #[test]
    fn out_of_descriptors() {
        let mut facts = open();
        check(
            libc::EMFILE,
            &facts,
            "have 1024",
            "up to 524288 needs no privilege",
        );
        facts.descriptors = None;
        check(libc::EMFILE, &facts, "as many as it may", "LimitNOFILE=");
        check(libc::ENFILE, &facts, "system", "fs.file-max");
    }

    #[test]
    fn anything_else_is_passed_on() {
        check(libc::EFAULT, &open(), "Bad address", "io_uring_setup(2)");
    }
}
