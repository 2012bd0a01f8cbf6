//! The limit on open descriptors (RLIMIT_NOFILE, getrlimit(2)): one a connection is needed.

use std::io;

/// The limit on open descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorLimit {
    /// What is in force.
    pub(crate) soft: u64,
    /// How far this process may raise it by itself.
    pub(crate) hard: u64,
}

impl DescriptorLimit {
    /// That of this process.
    pub(crate) fn read() -> io::Result<Self> {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: `limit` is a valid rlimit that the call fills.
        if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            soft: limit.rlim_cur,
            hard: limit.rlim_max,
        })
    }

    /// Raises the soft limit to the hard one if it is below `needed`. Answers the limit that is then in force,
    /// which may still be too low.
    pub(crate) fn raise(needed: u64) -> io::Result<Self> {
        let limit = Self::read()?;
        if limit.soft >= needed || limit.soft == limit.hard {
            return Ok(limit);
        }
        let raised = libc::rlimit {
            rlim_cur: limit.hard,
            rlim_max: limit.hard,
        };
        // SAFETY: `raised` is a valid rlimit that the call only reads.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            soft: limit.hard,
            ..limit
        })
    }
}
