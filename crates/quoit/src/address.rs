//! Addresses.

/// An address as the kernel reads and writes it (`struct sockaddr`).
#[derive(Clone, Debug)]
pub struct SocketAddress {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}

impl SocketAddress {
    pub(crate) fn from_raw(fill: impl FnOnce(*mut libc::sockaddr, *mut libc::socklen_t)) -> Self {
        // SAFETY: all zeroes is a valid sockaddr_storage.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let mut length = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        fill((&raw mut storage).cast(), &raw mut length);
        Self { storage, length }
    }

    pub(crate) fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        ((&raw const self.storage).cast(), self.length)
    }
}
