//! Network namespaces without a name: they live as long as a descriptor or a process keeps them, so that nothing is
//! left behind even by a run that is killed (network_namespaces(7)).

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

/// A network namespace, kept while this exists.
#[derive(Debug)]
pub(crate) struct Namespace {
    descriptor: OwnedFd,
}

impl Namespace {
    /// Makes an empty namespace: all that is in it is a loopback interface that is down.
    ///
    /// # Errors
    /// Those of unshare(2): EPERM without CAP_SYS_ADMIN, ENOSPC or EUSERS at the limit of namespaces.
    pub(super) fn make() -> io::Result<Self> {
        let made = thread::spawn(|| {
            // SAFETY: no memory is passed. Only this thread changes its namespace, and it ends here.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Self {
                descriptor: File::open("/proc/thread-self/ns/net")?.into(),
            })
        });
        made.join().unwrap_or_else(|_| Err(panicked()))
    }

    /// A path by which another process of this machine can find it, as long as this process keeps it.
    pub(super) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.descriptor.as_raw_fd())
    }

    /// Does something in the namespace, on a thread of its own. Threads and processes that it starts are in it too;
    /// sockets stay in the namespace in which they were made.
    ///
    /// # Errors
    /// Those of setns(2), and those of `work`.
    pub(super) fn within<T: Send>(&self, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let descriptor = self.descriptor.as_raw_fd();
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                enter(descriptor)?;
                work()
            });
            inside.join().unwrap_or_else(|_| Err(panicked()))
        })
    }

    /// Makes a child run in the namespace. The namespace has to be kept until the child was started.
    pub(super) fn confine(&self, command: &mut Command) {
        let descriptor = self.descriptor.as_raw_fd();
        // SAFETY: the closure runs between fork and exec and makes one system call; it neither allocates nor takes
        // a lock. The child has all descriptors of this process until exec.
        unsafe { command.pre_exec(move || enter(descriptor)) };
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

fn panicked() -> io::Error {
    io::Error::other("the thread in the namespace panicked")
}
