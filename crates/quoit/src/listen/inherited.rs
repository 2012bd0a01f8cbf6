//! Listening sockets from a service manager, by systemd's protocol: `sd_listen_fds(3)`.

use std::env;
use std::ops::Range;
use std::os::fd::RawFd;

use super::error::AdoptReason;
use super::{ListenError, ListenSocket};
use crate::sys::duplicate_inherited;

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// The listening sockets that a service manager passed to this process, in the order of its `ListenStream=`
/// lines. None if it passed none, or to another process (`LISTEN_PID`).
///
/// Each is a CLOEXEC duplicate. The descriptors themselves, from 3 on, become CLOEXEC and stay open, as the
/// manager keeps the sockets open beyond this process anyway; so this may be called again, and returns the same.
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
        let mut socket = ListenSocket::adopt(duplicate).map_err(|error| match error {
            ListenError::Adopt { reason, .. } => refuse(reason),
            other => other,
        })?;
        socket.name = name;
        Ok(socket)
    };
    passed.into_each().map(adopt).collect()
}

/// What was passed. No list: the count is a text that may say anything, and one that is too high shall end at the
/// first descriptor that is not open.
#[derive(Debug, PartialEq, Eq)]
struct Passed {
    descriptors: Range<RawFd>,
    /// One for each descriptor, if there are any.
    names: Option<Vec<String>>,
}

impl Passed {
    const NOTHING: Self = Self {
        descriptors: 0..0,
        names: None,
    };

    fn into_each(self) -> impl Iterator<Item = (RawFd, Option<String>)> {
        let mut names = self.names.map(Vec::into_iter);
        self.descriptors
            .map(move |descriptor| (descriptor, names.as_mut().and_then(Iterator::next)))
    }
}

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
        return Ok(Passed::NOTHING);
    };
    match pid.parse::<u32>() {
        Ok(pid) if pid == own_pid => {}
        Ok(_) => return Ok(Passed::NOTHING),
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
        return Ok(Passed {
            descriptors,
            names: None,
        });
    };
    let names: Vec<_> = list.split(':').map(str::to_owned).collect();
    if names.len() != descriptors.len() {
        return Err(wrong(
            "LISTEN_FDNAMES",
            list,
            "does not have one name for each of the LISTEN_FDS descriptors",
        ));
    }
    Ok(Passed {
        descriptors,
        names: Some(names),
    })
}

/// Lines that stand for the three variables, given anything: each descriptor has its name, in order, or a variable
/// is blamed. See [`crate::fuzzing`].
#[cfg(any(test, fuzzing))]
pub(crate) fn listen_environment(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let mut lines = text.split('\n');
    match passed(7, lines.next(), lines.next(), lines.next()) {
        Ok(passed) => {
            let names = passed.names.as_ref().map(Vec::len);
            assert!(names.is_none_or(|names| names == passed.descriptors.len()));
            for ((descriptor, _), expected) in passed.into_each().zip(FIRST..).take(1000) {
                assert_eq!(descriptor, expected);
            }
        }
        Err(error) => assert!(error.to_string().contains("LISTEN_"), "{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol() {
        let each =
            |pid, count, names| -> Vec<_> { passed(7, pid, count, names).unwrap().into_each().collect() };
        for (pid, count) in [
            (None, None),
            (None, Some("1")),
            (Some("7"), None),
            (Some("8"), Some("1")),
            (Some("7"), Some("0")),
        ] {
            assert_eq!(each(pid, count, None), []);
        }
        assert_eq!(each(Some("7"), Some("2"), None), [(3, None), (4, None)]);
        assert_eq!(
            each(Some("7"), Some("2"), Some("web:admin")),
            [(3, Some("web".into())), (4, Some("admin".into()))]
        );
    }

    /// The count costs nothing until the descriptors are looked at.
    #[test]
    fn a_count_that_no_process_can_have_takes_no_memory() {
        let count = (RawFd::MAX - FIRST).to_string();
        let passed = passed(7, Some("7"), Some(&count), None).unwrap();
        assert_eq!(passed.into_each().nth(5), Some((8, None)));
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
