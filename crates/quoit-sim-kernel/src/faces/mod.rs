//! The simulated kernel as the engines see it: their traits, over one model.

mod epoll;
mod ring;
mod sockets;

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use quoit::Errno;

use crate::faults::{Fault, count_error};
use crate::kernel::{FIRST_DESCRIPTOR, Kernel, ObjectId, with};

pub use epoll::SimEpoll;
pub use ring::SimRing;
pub use sockets::SimSockets;

fn errno(code: i32) -> Errno {
    count_error(code);
    Errno::new(code)
}

fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a simulated descriptor that was made just now. Whatever is done to it reaches the
    // simulated kernel (kernel/descriptors.rs).
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// A file of `length` bytes, those of the pattern's stream of this number.
pub fn file(stream: u64, length: u64) -> std::fs::File {
    owned(with(|kernel| kernel.file(stream, length))).into()
}

/// One call on a descriptor: takes its time, does what `body` says, and lets deferred work run as entering the kernel
/// does.
fn call<T>(
    descriptor: impl AsRawFd,
    name: &str,
    body: impl FnOnce(&mut Kernel, ObjectId) -> Result<T, i32>,
) -> Result<T, Errno> {
    with(|kernel| {
        kernel.pass();
        let object = object(kernel, descriptor.as_raw_fd(), name).map_err(errno)?;
        let result = body(kernel, object).map_err(errno);
        kernel.cross();
        result
    })
}

/// A call that transfers data or takes connections, which a signal may interrupt, and which must not wait: the program
/// has to have set the socket's mode, or says so in the call.
fn transfer<T>(
    socket: RawFd,
    name: &str,
    body: impl FnOnce(&mut Kernel, ObjectId) -> Result<T, i32>,
) -> Result<T, Errno> {
    call(socket, name, |kernel, object| {
        if kernel.strikes(Fault::Interrupted) {
            return Err(libc::EINTR);
        }
        body(kernel, object)
    })
}

/// What a descriptor refers to. A program that uses one that is not open is at fault, and is told so.
fn object(kernel: &mut Kernel, descriptor: RawFd, call: &str) -> Result<ObjectId, i32> {
    kernel.table.get(descriptor).ok_or_else(|| {
        kernel.fail(|| {
            format!(
                "{call} on descriptor {}, which is not open",
                descriptor - FIRST_DESCRIPTOR
            )
        });
        libc::EBADF
    })
}
