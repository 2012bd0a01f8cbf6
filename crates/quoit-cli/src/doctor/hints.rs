//! Settings of the system and the process, and what to do where they stand in the way.

use quoit::host::{HostFacts, ResourceLimit, SeccompMode};
use quoit::{Config, Footprint, ListenOptions};
use serde::Serialize;

use quoit_host::DescriptorLimit;

/// One setting.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    pub(super) name: &'static str,
    pub(super) value: String,
    /// What it means here, and what to do; nothing if it is well.
    pub(super) hint: Option<String>,
}

/// The first kernel with all that makes the engine cheap (deferred task work).
const GOOD_KERNEL: (u32, u32) = (6, 1);

/// All settings that matter to a server with loops of `config`. `reachable_descriptors` is how far this process can
/// raise its limit of open descriptors.
pub(super) fn settings(
    facts: &HostFacts,
    config: &Config,
    footprint: &Footprint,
    loops_in_memlock: Option<u64>,
    reachable_descriptors: Option<u64>,
) -> Vec<Setting> {
    vec![
        kernel(facts),
        io_uring_disabled(facts),
        seccomp(facts),
        capabilities(facts),
        locked_memory(facts, footprint, loops_in_memlock),
        descriptors(facts, config, reachable_descriptors),
        backlog(facts),
        Setting {
            name: "net.ipv4.tcp_congestion_control",
            value: facts.congestion_control.clone().unwrap_or_else(unknown),
            hint: (facts.congestion_control.as_deref() == Some("reno")).then(|| {
                "reno is slow to fill a fast and distant link; cubic or bbr (sysctl) suit most servers better"
                    .to_owned()
            }),
        },
    ]
}

fn unknown() -> String {
    "unknown".to_owned()
}

fn kernel(facts: &HostFacts) -> Setting {
    let old = facts
        .kernel_version()
        .is_some_and(|version| version < GOOD_KERNEL);
    Setting {
        name: "kernel",
        value: facts.kernel_release.clone().unwrap_or_else(unknown),
        hint: old.then(|| {
            "io_uring gains most from Linux 6.1 on; the table above says what this one lacks".to_owned()
        }),
    }
}

fn io_uring_disabled(facts: &HostFacts) -> Setting {
    let privileged = facts.has_sys_admin() == Some(true);
    let hint = match facts.io_uring_disabled {
        Some(2) => Some("nobody may use io_uring; 0 allows it".to_owned()),
        Some(1) if privileged => {
            Some("this process may use io_uring only because it has CAP_SYS_ADMIN".to_owned())
        }
        Some(1) if facts.in_io_uring_group() => {
            Some("this process may use io_uring by its group, kernel.io_uring_group".to_owned())
        }
        Some(1) => Some("only privileged processes may use io_uring; 0 allows it to all".to_owned()),
        _ => None,
    };
    Setting {
        name: "kernel.io_uring_disabled",
        value: facts
            .io_uring_disabled
            .map_or_else(|| "none (since Linux 6.6)".to_owned(), |value| value.to_string()),
        hint,
    }
}

fn seccomp(facts: &HostFacts) -> Setting {
    Setting {
        name: "seccomp",
        value: facts.seccomp.map_or_else(unknown, |mode| mode.to_string()),
        hint: (facts.seccomp == Some(SeccompMode::Filter))
            .then(|| "a filter may deny io_uring: those of container runtimes do by default".to_owned()),
    }
}

fn capabilities(facts: &HostFacts) -> Setting {
    let has = |name: &str, has: Option<bool>| match has {
        Some(true) => format!("{name} yes"),
        Some(false) => format!("{name} no"),
        None => format!("{name} unknown"),
    };
    Setting {
        name: "capabilities",
        value: format!(
            "{}, {}",
            has("IPC_LOCK", facts.has_ipc_lock()),
            has("SYS_ADMIN", facts.has_sys_admin())
        ),
        hint: None,
    }
}

fn locked_memory(facts: &HostFacts, footprint: &Footprint, loops: Option<u64>) -> Setting {
    let hint = match loops {
        None if facts.has_ipc_lock() == Some(true) => {
            Some("does not apply: this process has CAP_IPC_LOCK".to_owned())
        }
        None => None,
        Some(0) => Some(format!(
            "not enough for one loop, which locks {}: raise it (`ulimit -l`; LimitMEMLOCK= under systemd)",
            bytes(footprint.locked())
        )),
        Some(loops) => Some(format!(
            "room for {loops} loops of {}, over all processes of this user",
            bytes(footprint.locked())
        )),
    };
    Setting {
        name: "RLIMIT_MEMLOCK",
        value: limit(facts.memlock, bytes),
        hint,
    }
}

fn descriptors(facts: &HostFacts, config: &Config, reachable: Option<u64>) -> Setting {
    let connections = config.connections;
    let needed = quoit_serve::descriptors_needed(connections, 1);
    let soft = facts.descriptors.and_then(|limit| limit.soft);
    let reachable = reachable.or(facts.descriptors.and_then(|limit| limit.hard));
    let hint = soft.filter(|soft| *soft < needed).map(|_| match reachable {
        Some(reachable) if reachable < needed => format!(
            "`quoit serve` raises the soft limit to {reachable}, and can no further; a loop may have {connections} \
             connections, which take {needed} descriptors: {}",
            DescriptorLimit::remedy(needed)
        ),
        _ => format!(
            "enough for now: `quoit serve` raises the soft limit to {needed}, for the {connections} connections that \
             a loop may have; a program of your own has to raise it itself"
        ),
    });
    Setting {
        name: "RLIMIT_NOFILE",
        value: facts.descriptors.map_or_else(unknown, |limit| {
            let one =
                |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), |value| value.to_string());
            format!("soft {}, hard {}", one(limit.soft), one(limit.hard))
        }),
        hint,
    }
}

fn backlog(facts: &HostFacts) -> Setting {
    let wanted = ListenOptions::default().backlog;
    Setting {
        name: "net.core.somaxconn",
        value: facts
            .max_backlog
            .map_or_else(unknown, |value| value.to_string()),
        hint: facts.max_backlog.filter(|value| *value < wanted).map(|value| {
            format!(
                "bursts of more than {value} new connections are dropped: `sysctl net.core.somaxconn={wanted}`"
            )
        }),
    }
}

fn limit(limit: Option<ResourceLimit>, show: impl Fn(u64) -> String) -> String {
    let one = |value: Option<u64>| value.map_or_else(|| "unlimited".to_owned(), &show);
    limit.map_or_else(unknown, |limit| {
        if limit.soft == limit.hard {
            one(limit.soft)
        } else {
            format!("{}, at most {}", one(limit.soft), one(limit.hard))
        }
    })
}

/// A number of bytes for people: `104 KiB`, `16 MiB`.
pub(super) fn bytes(value: u64) -> String {
    const MEBIBYTE: u64 = 1 << 20;
    match value {
        0..1024 => format!("{value} bytes"),
        1024..MEBIBYTE => format!("{} KiB", value / 1024),
        _ if value.is_multiple_of(MEBIBYTE) => format!("{} MiB", value / MEBIBYTE),
        _ => format!("{:.1} MiB", value as f64 / MEBIBYTE as f64),
    }
}

#[cfg(test)]
mod tests {
    use quoit::FeatureSet;

    use super::*;

    fn hint(facts: &HostFacts, name: &str, loops: Option<u64>) -> Option<String> {
        let config = Config::default();
        let footprint = Footprint::of(&config, FeatureSet::ALL);
        let settings = settings(facts, &config, &footprint, loops, Some(512));
        settings
            .into_iter()
            .find(|setting| setting.name == name)
            .unwrap()
            .hint
    }

    #[test]
    fn what_is_well_or_unknown_has_no_hint() {
        let good = HostFacts {
            kernel_release: Some("6.12.1".into()),
            io_uring_disabled: Some(0),
            seccomp: Some(SeccompMode::Disabled),
            descriptors: Some(ResourceLimit {
                soft: Some(65_536),
                hard: Some(524_288),
            }),
            max_backlog: Some(4096),
            congestion_control: Some("cubic".into()),
            ..HostFacts::default()
        };
        for facts in [good, HostFacts::default()] {
            for setting in settings(
                &facts,
                &Config::default(),
                &Footprint::of(&Config::default(), FeatureSet::ALL),
                None,
                None,
            ) {
                assert_eq!(setting.hint, None, "{setting:?}");
            }
        }
    }

    #[test]
    fn what_stands_in_the_way_says_what_to_do() {
        let facts = HostFacts {
            kernel_release: Some("5.15.0".into()),
            io_uring_disabled: Some(1),
            io_uring_group: Some(-1),
            effective_capabilities: Some(0),
            descriptors: Some(ResourceLimit {
                soft: Some(256),
                hard: Some(256),
            }),
            max_backlog: Some(128),
            ..HostFacts::default()
        };
        for (name, loops, expected) in [
            ("kernel", None, "Linux 6.1"),
            ("kernel.io_uring_disabled", None, "0 allows it to all"),
            (
                "RLIMIT_NOFILE",
                None,
                "raises the soft limit to 512, and can no further; a loop may have 16384 connections, which take \
                 16456 descriptors: raise the hard limit",
            ),
            ("net.core.somaxconn", None, "net.core.somaxconn=4096"),
            ("RLIMIT_MEMLOCK", Some(0), "LimitMEMLOCK="),
            ("RLIMIT_MEMLOCK", Some(80), "room for 80 loops of 104 KiB"),
        ] {
            let hint = hint(&facts, name, loops).unwrap_or_default();
            assert!(hint.contains(expected), "{name}: {hint}");
        }
    }

    #[test]
    fn descriptors_are_judged_by_what_they_can_be_raised_to() {
        let told = |soft, hard, reachable| {
            let facts = HostFacts {
                descriptors: Some(ResourceLimit {
                    soft: Some(soft),
                    hard: Some(hard),
                }),
                ..HostFacts::default()
            };
            let told = descriptors(&facts, &Config::default(), reachable);
            (told.value, told.hint.unwrap_or_default())
        };
        let (value, hint) = told(1024, 524_288, None);
        assert_eq!(value, "soft 1024, hard 524288");
        assert!(hint.contains("raises the soft limit to 16456,"), "{hint}");
        // Root passes the hard limit.
        let (_, hint) = told(1024, 4096, Some(1 << 20));
        assert!(hint.contains("raises the soft limit to 16456,"), "{hint}");
        let (_, hint) = told(1024, 4096, Some(4096));
        assert!(hint.contains("to 4096, and can no further"), "{hint}");
        assert_eq!(told(20_000, 20_000, Some(20_000)).1, "");
    }

    #[test]
    fn bytes_have_a_unit() {
        let shown = [0, 1023, 106_496, 8 << 20, (16 << 20) + 106_496].map(bytes);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "104 KiB", "8 MiB", "16.1 MiB"]);
    }
}
