//! Opens libquoit, and calls its functions.

use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::native::{Int, Long, Void};

/// Filled by `open`, which Java calls before any other function of this module.
static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// What a call returns before `open`.
trait NotOpen {
    const VALUE: Self;
}

impl NotOpen for Int {
    const VALUE: Self = -libc::ENOSYS;
}

impl NotOpen for Long {
    const VALUE: Self = -(libc::ENOSYS as Self);
}

impl NotOpen for Void {
    const VALUE: Self = ();
}

/// Functions of libquoit under their names in Java.
///
/// Pointers, sizes and ids are numbers here, as for the foreign function interface: the C ABIs of x86-64 and AArch64 pass all of
/// them in the same way.
macro_rules! functions {
    ($($symbol:literal $name:ident($($argument:ident: $type:ident),*) -> $result:ident;)*) => {
        #[allow(non_snake_case, reason = "the names are those of Java")]
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> $result,)*
        }

        impl Functions {
            /// Finds all of them, or says which is not there.
            ///
            /// # Safety
            ///
            /// The handle is one of `dlopen`, never closed. What the library has by these names are the functions of `quoit.h`.
            unsafe fn find(library: *mut c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the handle is open, and the name ends with a NUL.
                        let symbol = unsafe { libc::dlsym(library, concat!($symbol, "\0").as_ptr().cast()) };
                        if symbol.is_null() {
                            return Err($symbol);
                        }
                        // SAFETY: it is the function of that name, whose types `quoit.h` has.
                        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> $result>(symbol) }
                    },)*
                })
            }
        }

        natives! {
            FORWARDED |environment|
            $($name($($argument: $type),*) -> $result {
                match FUNCTIONS.get() {
                    // SAFETY: Java passes what `quoit.h` asks for.
                    Some(functions) => unsafe { (functions.$name)($($argument),*) },
                    None => NotOpen::VALUE,
                }
            })*
        }
    };
}

functions! {
    "quoit_version" version() -> Long;
    "quoit_layout" layout() -> Long;
    "quoit_abi_check" abiCheck(version: Int) -> Int;
    "quoit_error_text" errorText(buffer: Long, capacity: Long) -> Int;
    "quoit_config_default" configDefault(config: Long) -> Int;
    "quoit_connect_options_default" connectOptionsDefault(options: Long) -> Int;
    "quoit_listen_options_default" listenOptionsDefault(options: Long) -> Int;
    "quoit_datagram_options_default" datagramOptionsDefault(options: Long) -> Int;
    "quoit_counter_describe" counterDescribe(index: Int, info: Long) -> Int;
    "quoit_capabilities_probe" capabilitiesProbe(config: Long, out: Long) -> Int;
    "quoit_capabilities_usable" capabilitiesUsable(capabilities: Long) -> Int;
    "quoit_capabilities_reason" capabilitiesReason(capabilities: Long, buffer: Long, capacity: Long) -> Int;
    "quoit_capabilities_get" capabilitiesGet(capabilities: Long, index: Int, capability: Long) -> Int;
    "quoit_capabilities_free" capabilitiesFree(capabilities: Long) -> Void;
    "quoit_socket_adopt" socketAdopt(descriptor: Int, out: Long) -> Int;
    "quoit_datagram_socket_adopt" datagramSocketAdopt(descriptor: Int, options: Long, out: Long) -> Int;
    "quoit_loop_create" loopCreate(config: Long, index: Int, out: Long) -> Int;
    "quoit_loop_destroy" loopDestroy(owner: Long) -> Int;
    "quoit_turn" turn(owner: Long, commands: Long, count: Long, events: Long, capacity: Long, timeout: Long) -> Int;
    "quoit_engine" engine(owner: Long) -> Int;
    "quoit_engine_reason" engineReason(owner: Long, buffer: Long, capacity: Long) -> Int;
    "quoit_listen" listen(owner: Long, socket: Long, options: Long, out: Long) -> Int;
    "quoit_open_datagram" openDatagram(owner: Long, socket: Long, token: Long, out: Long) -> Int;
    "quoit_connection_fd" connectionDescriptor(owner: Long, connection: Long) -> Int;
    "quoit_taken_by_peer" takenByPeer(owner: Long, connection: Long) -> Long;
    "quoit_queued" queued(owner: Long, connection: Long) -> Long;
    "quoit_try_send" trySend(owner: Long, connection: Long, pieces: Long, count: Long) -> Long;
    "quoit_loop_counters" loopCounters(owner: Long, counters: Long) -> Int;
    "quoit_loop_remote" loopRemote(owner: Long, out: Long) -> Int;
    "quoit_remote_release" remoteRelease(remote: Long) -> Void;
    "quoit_remote_wake" remoteWake(remote: Long) -> Int;
    "quoit_remote_return_leases" remoteReturnLeases(remote: Long, leases: Long, count: Long) -> Long;
    "quoit_remote_counters" remoteCounters(remote: Long, counters: Long) -> Int;
}

natives! {
    OPEN |environment|

    /// Opens the libquoit at a path that ends with a NUL, for as long as the process lasts: leases and remotes outlive their loops.
    /// Returns 0; or -1 with the reason as text in the buffer, and a NUL behind it.
    open(path: Long, buffer: Long, capacity: Int) -> Int {
        // SAFETY: Java passes a text that ends with a NUL.
        let path = unsafe { CStr::from_ptr(path as *const c_char) };
        let room = Room { start: buffer as *mut u8, length: usize::try_from(capacity).unwrap_or(0) };
        match open_library(path) {
            Ok(functions) => {
                // Another may have opened it before, which was then this one.
                _ = FUNCTIONS.set(functions);
                0
            }
            Err(Failure::Linker(said)) => room.fill(&[said]),
            Err(Failure::Lacks(symbol)) => room.fill(&[
                b"it lacks ",
                symbol.as_bytes(),
                b": it is libquoit of another version; install the one that belongs to this jar's version",
            ]),
        }
    }
}

/// `open` and the functions of libquoit.
pub(crate) const SIGNATURES: &[&str] = &{
    let mut all = [""; OPEN.len() + FORWARDED.len()];
    let mut at = 0;
    while at < all.len() {
        all[at] = if at < OPEN.len() {
            OPEN[at]
        } else {
            FORWARDED[at - OPEN.len()]
        };
        at += 1;
    }
    all
};

/// Why a library was not opened.
#[derive(Debug)]
enum Failure {
    /// What the dynamic linker says of this thread's last call.
    Linker(&'static [u8]),
    Lacks(&'static str),
}

fn open_library(path: &CStr) -> Result<Functions, Failure> {
    // SAFETY: the path ends with a NUL. What runs when a library is loaded is its own affair; this one is named by the program.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: the text stays as it is until this thread's next call of the linker's, and it makes none before it is copied.
        let said = unsafe { libc::dlerror() };
        return Err(Failure::Linker(if said.is_null() {
            b"the dynamic linker does not say why"
        } else {
            // SAFETY: as above; it ends with a NUL.
            unsafe { CStr::from_ptr(said) }.to_bytes()
        }));
    }
    // SAFETY: it was just opened and is never closed; Java checks its version next, and calls nothing before.
    unsafe { Functions::find(library) }.map_err(Failure::Lacks)
}

/// Java's memory for a text.
struct Room {
    start: *mut u8,
    length: usize,
}

impl Room {
    /// Writes as much as there is room for, and a NUL; returns -1.
    fn fill(&self, parts: &[&[u8]]) -> Int {
        let mut at = 0;
        for part in parts {
            let taken = part.len().min(self.length.saturating_sub(at + 1));
            // SAFETY: Java's buffer has room up to the length, and is no part of the text.
            unsafe { ptr::copy_nonoverlapping(part.as_ptr(), self.start.add(at), taken) };
            at += taken;
        }
        if at < self.length {
            // SAFETY: within the buffer.
            unsafe { self.start.add(at).write(0) };
        }
        -1
    }
}

#[cfg(test)]
mod tests {
    use super::{Failure, Room, open_library};

    #[test]
    fn what_the_linker_says_of_a_file_is_told() {
        match open_library(c"/nowhere/libquoit.so") {
            Err(Failure::Linker(said)) => {
                let said = String::from_utf8_lossy(said);
                assert!(said.contains("/nowhere/libquoit.so"), "{said}");
            }
            other => panic!("opened, or {:?}", other.err()),
        }
    }

    #[test]
    fn a_library_that_is_another_lacks_the_first_function() {
        // The C library itself, which every process has.
        let name = if cfg!(target_env = "musl") {
            c"libc.so"
        } else {
            c"libc.so.6"
        };
        let failure = open_library(name).err();
        assert!(
            matches!(failure, Some(Failure::Lacks("quoit_version"))),
            "{failure:?}"
        );
    }

    #[test]
    fn a_text_is_cut_to_its_room() {
        let mut bytes = [b'.'; 8];
        let room = Room {
            start: bytes.as_mut_ptr(),
            length: 7,
        };
        assert_eq!(room.fill(&[b"one", b"two", b"three"]), -1);
        assert_eq!(&bytes, b"onetwo\0.");
        let room = Room {
            start: bytes.as_mut_ptr(),
            length: 0,
        };
        assert_eq!(room.fill(&[b"one"]), -1);
        assert_eq!(&bytes, b"onetwo\0.");
    }
}
