//! Network namespaces without a name: they live as long as a descriptor or a process keeps them, so that nothing is
//! left behind even by a run that is killed (network_namespaces(7)).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::panic;
use std::process::{Command, Stdio};
use std::thread;

/// A network namespace, kept while this exists.
#[derive(Debug)]
pub struct Namespace {
    descriptor: OwnedFd,
}

impl Namespace {
    /// Makes an empty namespace: all that is in it is a loopback interface that is down. The caller stays where it is.
    ///
    /// # Errors
    /// Those of unshare(2): EPERM without CAP_SYS_ADMIN, ENOSPC or EUSERS at the limit of namespaces.
    pub fn make() -> io::Result<Self> {
        on_a_thread(|| {
            // SAFETY: no memory is passed. Only this thread changes its namespace, and it ends here.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self {
                descriptor: File::open("/proc/thread-self/ns/net")?.into(),
            })
        })
    }

    /// A path by which another process of this machine can find it, as long as this process keeps it.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }

    /// Does something in the namespace, on a thread of its own, and waits for it. Threads and processes that it starts
    /// are in the namespace too; sockets stay in the one in which they were made.
    ///
    /// # Errors
    /// Those of setns(2); nothing was done then.
    ///
    /// # Panics
    /// If `work` does, with what it has panicked.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let descriptor = self.descriptor.as_raw_fd();
        on_a_thread(|| enter(descriptor).map(|()| work()))
    }

    /// Makes a child run in the namespace, which has to be kept until the child was started.
    pub fn confine(&self, command: &mut Command) {
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the closure runs between fork and exec and makes one system call; it neither allocates nor takes
        // a lock. The child has all descriptors of this process until exec.
        unsafe { command.pre_exec(move || enter(descriptor)) };
    }

    /// Runs a command in the namespace to its end, and returns what it has written to its standard output.
    ///
    /// The command is words between white space, without quotes: `ip link set lo up`.
    ///
    /// # Errors
    /// It cannot be started, [`io::ErrorKind::NotFound`] if there is no such program; or its status is not 0, with what
    /// it has written to its standard error. Both name the command.
    ///
    /// # Panics
    /// If there is no word in it.
    pub fn run(&self, command: &str) -> io::Result<String> {
        let mut words = command.split_whitespace();
        let program = words.next().expect("a command has a word");
        let mut child = Command::new(program);
        child.args(words).stdin(Stdio::null());
        self.confine(&mut child);
        let output = child
            .output()
            .map_err(|error| io::Error::new(error.kind(), format!("`{command}`: {error}")))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(format!(
            "`{command}` in a network namespace: {}: {}",
            output.status,
            said.trim()
        )))
    }
}

fn enter(descriptor: RawFd) -> io::Result<()> {
    // SAFETY: no memory is passed; a wrong descriptor is an error.
    if unsafe { libc::setns(descriptor, libc::CLONE_NEWNET) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A thread is in one namespace at a time, so what changes it has one of its own.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        scope
            .spawn(work)
            .join()
            .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn namespace_or_skip(test: &str) -> Option<Namespace> {
        Namespace::make()
            .inspect_err(|error| quoit_skipped::skip_for(test, error, "CAP_SYS_ADMIN"))
            .ok()
    }

    fn here() -> String {
        let link = fs::read_link("/proc/thread-self/ns/net").expect("a link of every thread");
        link.to_string_lossy().into_owned()
    }

    #[test]
    fn work_and_children_are_inside_and_the_caller_is_not() {
        let Some(namespace) = namespace_or_skip("work_and_children_are_inside_and_the_caller_is_not") else {
            return;
        };
        let before = here();
        let inside = namespace.within(here).expect("ours can be entered");
        let child = namespace.run("readlink /proc/self/ns/net");
        assert_ne!(inside, before);
        assert_eq!(child.expect("it runs").trim(), inside);
        assert_eq!(here(), before);
    }

    #[test]
    fn programs_that_fail_say_why() {
        let Some(namespace) = namespace_or_skip("programs_that_fail_say_why") else {
            return;
        };
        let missing = namespace.run("quoit-has-no-such-program -x");
        assert_eq!(
            missing.expect_err("it is missing").kind(),
            io::ErrorKind::NotFound
        );
        let failed = namespace.run("cat /proc/quoit/is/not/there");
        let said = failed.expect_err("its status is 1").to_string();
        assert!(said.starts_with("`cat /proc/quoit/is/not/there` in"), "{said}");
        assert!(said.contains("exit status: 1: cat: "), "{said}");
    }

    #[test]
    fn a_panic_inside_is_the_callers() {
        let Some(namespace) = namespace_or_skip("a_panic_inside_is_the_callers") else {
            return;
        };
        let panicked = panic::catch_unwind(|| namespace.within(|| panic!("in there")));
        assert_eq!(
            panicked.expect_err("it panics").downcast_ref::<&str>(),
            Some(&"in there")
        );
    }
}
