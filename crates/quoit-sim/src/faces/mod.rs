//! The simulated kernel as the engines see it: their traits, over one model.

mod epoll;
mod ring;
mod sockets;

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use quoit::Errno;

use crate::faults::count_answer;
use crate::kernel::{FIRST_DESCRIPTOR, Kernel, ObjectId};

pub use epoll::SimEpoll;
pub use ring::SimRing;
pub use sockets::SimSockets;

fn errno(code: i32) -> Errno {
    count_answer(code);
    Errno::new(code)
}

fn owned(descriptor: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a simulated descriptor that was made just now. Whatever is done to it reaches the
    // simulated kernel (kernel/descriptors.rs).
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

/// A file of `length` bytes, those of the pattern's stream of this number.
pub(crate) fn file(stream: u64, length: u64) -> std::fs::File {
    owned(crate::kernel::with(|kernel| kernel.file(stream, length))).into()
}

/// What a descriptor refers to. A program that uses one that is not open is at fault, and is told so.
fn object(kernel: &mut Kernel, descriptor: RawFd, call: &str) -> Result<ObjectId, Errno> {
    kernel.table.get(descriptor).ok_or_else(|| {
        kernel.fail(|| {
            format!(
                "{call} on descriptor {}, which is not open",
                descriptor - FIRST_DESCRIPTOR
            )
        });
        Errno::EBADF
    })
}
