//! The program's memory, as a kernel reads and writes it: at addresses, and with nothing but the program's word that
//! they are good.
//!
//! That word is the contract of `quoit::internals::engine::Operation`: memory that an operation names is valid and in place until
//! the operation ends. A program that breaks it is at fault here as it would be on a real kernel.

/// Writes `bytes` to `address`.
pub(crate) fn write(address: usize, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let target = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the program vouches for the memory, as the module says.
    unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
}

/// The `length` bytes at `address`, to be let go of before the program runs on.
pub(crate) fn read<'a>(address: usize, length: usize) -> &'a [u8] {
    let source = std::ptr::with_exposed_provenance::<u8>(address);
    // SAFETY: the program vouches for the memory, as the module says.
    unsafe { std::slice::from_raw_parts(source, length) }
}

/// The pieces that a message's header at `address` names: addresses and lengths.
pub(crate) fn pieces(address: usize) -> Vec<(usize, usize)> {
    let header = std::ptr::with_exposed_provenance::<libc::msghdr>(address);
    // SAFETY: the program vouches for the header, as the module says.
    let (first, count) = unsafe { ((*header).msg_iov, (*header).msg_iovlen) };
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the program vouches for all that the header points to.
    let list = unsafe { std::slice::from_raw_parts(first, count) };
    list.iter()
        .map(|piece| (piece.iov_base.expose_provenance(), piece.iov_len))
        .collect()
}

/// What a message's header says besides its pieces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    /// Where the peer's address is or goes, and its bytes or the room.
    pub(crate) name: (usize, usize),
    /// The same for control messages.
    pub(crate) control: (usize, usize),
}

/// Reads the header of a message at `address`.
pub(crate) fn header(address: usize) -> Header {
    let header = std::ptr::with_exposed_provenance::<libc::msghdr>(address);
    // SAFETY: the program vouches for the header, as the module says.
    let header = unsafe { &*header };
    Header {
        name: (header.msg_name.expose_provenance(), header.msg_namelen as usize),
        control: (header.msg_control.expose_provenance(), header.msg_controllen),
    }
}

/// Writes to the header of a message at `address` what was received with it.
pub(crate) fn write_header(address: usize, name: usize, control: usize, flags: i32) {
    let header = std::ptr::with_exposed_provenance_mut::<libc::msghdr>(address);
    // SAFETY: the program vouches for the header, as the module says.
    unsafe {
        (*header).msg_namelen = name as libc::socklen_t;
        (*header).msg_controllen = control;
        (*header).msg_flags = flags;
    }
}

/// The bytes of an address as the kernel writes it: none for that of a socket without a name.
pub(crate) fn address_bytes(address: &quoit::Address) -> Vec<u8> {
    let Ok(raw) = quoit::address::SocketAddress::try_from(address) else {
        return Vec::new();
    };
    if *address == quoit::Address::UnixUnnamed {
        return Vec::new();
    }
    let (first, length) = raw.as_raw();
    read(first.expose_provenance(), length as usize).to_vec()
}

/// The address of a socket, of `length` bytes at `address`.
pub(crate) fn socket_address(address: usize, length: usize) -> quoit::address::SocketAddress {
    quoit::address::SocketAddress::read(|to, room| {
        // SAFETY: `to` has room for as many bytes as `room` says, and the program vouches for the source.
        unsafe {
            let length = length.min(*room as usize);
            to.cast::<u8>()
                .copy_from_nonoverlapping(std::ptr::with_exposed_provenance(address), length);
            *room = length as libc::socklen_t;
        }
        0
    })
    .expect("the call above returns success")
}
