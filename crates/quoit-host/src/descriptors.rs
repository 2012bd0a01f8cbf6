//! The limit on open descriptors (RLIMIT_NOFILE, getrlimit(2)): one per connection is needed.

use std::fs;
use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The most that the hard limit can be set to (proc_sys_fs(5)).
const MOST: &str = "/proc/sys/fs/nr_open";

/// The limit on open descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// What is in force.
    pub soft: u64,
    /// How far any process may raise it by itself.
    pub hard: u64,
}

impl DescriptorLimit {
    /// That of this process.
    #[must_use]
    pub fn read() -> Self {
        let limit = getrlimit(Resource::Nofile);
        Self {
            soft: limit.current.unwrap_or(u64::MAX),
            hard: limit.maximum.unwrap_or(u64::MAX),
        }
    }

    /// Raises the soft limit to the hard one if it is below `needed`, and both to `needed` if the hard one is, too, and
    /// this process may (CAP_SYS_RESOURCE, which root usually has). Returns the limit that is then in force, which may
    /// still be too low.
    pub fn raise(needed: u64) -> io::Result<Self> {
        let limit = Self::read();
        if limit.soft >= needed {
            return Ok(limit);
        }
        if limit.hard < needed {
            let both = Self {
                soft: needed,
                hard: needed,
            };
            if both.set_if_permitted()? {
                return Ok(both);
            }
        }
        let raised = Self {
            soft: limit.hard,
            ..limit
        };
        raised.set()?;
        Ok(raised)
    }

    /// How far [`DescriptorLimit::raise`] can raise the limit of this process. Whether it may pass the hard limit is
    /// found by trying: a capability in a user namespace looks the same and does not permit it.
    pub fn reachable() -> io::Result<u64> {
        let limit = Self::read();
        let most = most().unwrap_or(limit.hard);
        if most <= limit.hard {
            return Ok(limit.hard);
        }
        let trial = Self { hard: most, ..limit };
        if !trial.set_if_permitted()? {
            return Ok(limit.hard);
        }
        // Lowering takes no privilege.
        limit.set()?;
        Ok(most)
    }

    /// What a user can do where the limit cannot be raised to `needed`: the end of a message.
    pub fn remedy(needed: u64) -> String {
        let beyond = match most() {
            Some(most) if most < needed => format!(", after `sysctl fs.nr_open={needed}`"),
            _ => String::new(),
        };
        format!(
            "raise the hard limit (`ulimit -Hn {needed}` as root with CAP_SYS_RESOURCE, LimitNOFILE={needed} under \
             systemd, --ulimit nofile={needed} for a container){beyond}"
        )
    }

    /// Sets it; `false` if this process may not.
    fn set_if_permitted(self) -> io::Result<bool> {
        match self.set() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn set(self) -> io::Result<()> {
        let limit = Rlimit {
            current: Some(self.soft),
            maximum: Some(self.hard),
        };
        Ok(setrlimit(Resource::Nofile, limit)?)
    }
}

/// The most that the kernel lets anyone have; `None` if it does not say.
fn most() -> Option<u64> {
    fs::read_to_string(MOST).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_out_how_far_it_can_be_raised_leaves_what_is_in_force() {
        let before = DescriptorLimit::read();
        let reachable = DescriptorLimit::reachable().expect("it can be tried");
        assert!(reachable >= before.hard, "{reachable} {before:?}");
        // The hard limit is not looked at: another test may be trying just now.
        assert_eq!(DescriptorLimit::read().soft, before.soft);
        // Nothing is to be done for what there is already.
        assert_eq!(
            DescriptorLimit::raise(1).expect("nothing is done").soft,
            before.soft
        );
    }

    #[test]
    fn the_kernels_own_limit_is_named_where_it_is_in_the_way() {
        let remedy = DescriptorLimit::remedy(1000);
        assert!(
            remedy.contains("`ulimit -Hn 1000`") && !remedy.contains("nr_open"),
            "{remedy}"
        );
        let remedy = DescriptorLimit::remedy(u64::MAX);
        assert!(
            remedy.contains(&format!("sysctl fs.nr_open={}", u64::MAX)),
            "{remedy}"
        );
    }
}
