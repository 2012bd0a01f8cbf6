//! Listening sockets from a service manager, by systemd's protocol: `sd_listen_fds(3)`.

use std::env;
use std::os::fd::RawFd;

use super::error::AdoptReason;
use super::{ListenError, ListenSocket};
use crate::sys::{Linux, duplicate_inherited};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// The listening sockets that a service manager passed to this process, in the order of its `ListenStream=`
/// lines. None if it passed none, or to another process (`LISTEN_PID`).
///
/// Each is a CLOEXEC duplicate. The descriptors themselves, from 3 on, become CLOEXEC and stay open, as the
/// manager keeps the sockets open beyond this process anyway; so this may be called again, and answers the same.
///
/// # Errors
/// [`ListenError::Environment`] where the variables contradict the protocol, and [`ListenError::Adopt`] where a
/// descriptor is no listening stream socket.
pub fn inherited() -> Result<Vec<ListenSocket>, ListenError> {
    let read = |variable| env::var_os(variable).map(|value| value.to_string_lossy().into_owned());
    let passed = passed(
        std::process::id(),
        read("LISTEN_PID").as_deref(),
        read("LISTEN_FDS").as_deref(),
        read("LISTEN_FDNAMES").as_deref(),
    )?;
    let adopt = |(descriptor, name)| {
        // Errors name the descriptor that was passed, not its duplicate.
        let refuse = |reason| ListenError::Adopt { descriptor, reason };
        let duplicate =
            duplicate_inherited(descriptor).map_err(|errno| refuse(AdoptReason::System(errno)))?;
        let mut socket = ListenSocket::adopt(&Linux, duplicate).map_err(|error| match error {
            ListenError::Adopt { reason, .. } => refuse(reason),
            other => other,
        })?;
        socket.name = name;
        Ok(socket)
    };
    passed.into_iter().map(adopt).collect()
}

type Passed = Vec<(RawFd, Option<String>)>;

/// What the variables say was passed to the process `own_pid`.
fn passed(
    own_pid: u32,
    pid: Option<&str>,
    count: Option<&str>,
    names: Option<&str>,
) -> Result<Passed, ListenError> {
    let wrong = |variable, value: &str, problem| ListenError::Environment {
        variable,
        value: value.to_owned(),
        problem,
    };
    let (Some(pid), Some(count)) = (pid, count) else {
        return Ok(Vec::new());
    };
    match pid.parse::<u32>() {
        Ok(pid) if pid == own_pid => {}
        Ok(_) => return Ok(Vec::new()),
        Err(_) => return Err(wrong("LISTEN_PID", pid, "is not a process id")),
    }
    let last = count
        .parse::<RawFd>()
        .ok()
        .filter(|&count| count >= 0)
        .and_then(|count| FIRST.checked_add(count))
        .ok_or_else(|| wrong("LISTEN_FDS", count, "is not a number of descriptors"))?;
    let descriptors = FIRST..last;
    let Some(list) = names else {
        return Ok(descriptors.map(|descriptor| (descriptor, None)).collect());
    };
    let names: Vec<&str> = list.split(':').collect();
    if names.len() != descriptors.len() {
        return Err(wrong(
            "LISTEN_FDNAMES",
            list,
            "does not have one name for each of the LISTEN_FDS descriptors",
        ));
    }
    Ok(descriptors
        .zip(names.into_iter().map(|name| Some(name.to_owned())))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol() {
        let none = Ok(Vec::new());
        assert_eq!(passed(7, None, None, None), none);
        assert_eq!(passed(7, None, Some("1"), None), none);
        assert_eq!(passed(7, Some("7"), None, None), none);
        assert_eq!(passed(7, Some("8"), Some("1"), None), none);
        assert_eq!(passed(7, Some("7"), Some("0"), None), none);
        assert_eq!(
            passed(7, Some("7"), Some("2"), None),
            Ok(vec![(3, None), (4, None)])
        );
        assert_eq!(
            passed(7, Some("7"), Some("2"), Some("web:admin")),
            Ok(vec![(3, Some("web".into())), (4, Some("admin".into()))])
        );
    }

    #[test]
    fn contradictions_are_named() {
        let cases = [
            ("x", "1", None, "LISTEN_PID"),
            ("7", "-1", None, "LISTEN_FDS"),
            ("7", "2147483647", None, "LISTEN_FDS"),
            ("7", "", None, "LISTEN_FDS"),
            ("7", "2", Some("web"), "LISTEN_FDNAMES"),
        ];
        for (pid, count, names, expected) in cases {
            match passed(7, Some(pid), Some(count), names) {
                Err(ListenError::Environment { variable, .. }) => assert_eq!(variable, expected),
                other => panic!("{other:?}"),
            }
        }
    }
}
