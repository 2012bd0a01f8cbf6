//! Calls of the C library. Java cannot read errno itself, as the virtual machine makes calls of its own in between.

use std::ffi::c_int;
use std::io;

use crate::native::{Int, Long};

/// What the call returned, or its error's number below zero.
fn result(returned: c_int) -> Int {
    if returned >= 0 {
        return returned;
    }
    -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

natives! {
    SIGNATURES |environment|

    socket(family: Int, kind: Int) -> Int {
        // SAFETY: no memory is passed.
        result(unsafe { libc::socket(family, kind, 0) })
    }

    bind(descriptor: Int, address: Long, length: Int) -> Int {
        // SAFETY: Java passes the memory of an address, and its length.
        result(unsafe { libc::bind(descriptor, address as *const libc::sockaddr, length.cast_unsigned()) })
    }

    connect(descriptor: Int, address: Long, length: Int) -> Int {
        // SAFETY: Java passes the memory of an address, and its length.
        result(unsafe { libc::connect(descriptor, address as *const libc::sockaddr, length.cast_unsigned()) })
    }

    listenOn(descriptor: Int, backlog: Int) -> Int {
        // SAFETY: no memory is passed.
        result(unsafe { libc::listen(descriptor, backlog) })
    }

    /// The descriptor is Java's own.
    close(descriptor: Int) -> Int {
        // SAFETY: no memory is passed.
        result(unsafe { libc::close(descriptor) })
    }

    shutdown(descriptor: Int, how: Int) -> Int {
        // SAFETY: no memory is passed.
        result(unsafe { libc::shutdown(descriptor, how) })
    }

    duplicate(descriptor: Int) -> Int {
        // SAFETY: no memory is passed.
        result(unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) })
    }

    socketName(descriptor: Int, address: Long, length: Long) -> Int {
        // SAFETY: Java passes room for an address, and that of its length, which says how much room.
        result(unsafe {
            libc::getsockname(descriptor, address as *mut libc::sockaddr, length as *mut libc::socklen_t)
        })
    }

    peerName(descriptor: Int, address: Long, length: Long) -> Int {
        // SAFETY: Java passes room for an address, and that of its length, which says how much room.
        result(unsafe {
            libc::getpeername(descriptor, address as *mut libc::sockaddr, length as *mut libc::socklen_t)
        })
    }

    setOption(descriptor: Int, level: Int, name: Int, value: Long, length: Int) -> Int {
        // SAFETY: Java passes the memory of a value, and its length.
        result(unsafe {
            libc::setsockopt(descriptor, level, name, value as *const libc::c_void, length.cast_unsigned())
        })
    }

    getOption(descriptor: Int, level: Int, name: Int, value: Long, length: Long) -> Int {
        // SAFETY: Java passes room for a value, and that of its length, which says how much room.
        result(unsafe {
            libc::getsockopt(descriptor, level, name, value as *mut libc::c_void, length as *mut libc::socklen_t)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::result;

    #[test]
    fn an_error_is_its_number_below_zero() {
        assert_eq!(result(3), 3);
        // SAFETY: no memory is passed.
        assert_eq!(result(unsafe { libc::close(-1) }), -libc::EBADF);
    }
}
