//! Addresses.

/// An address as the kernel reads and writes it (`struct sockaddr`).
#[derive(Clone, Debug)]
pub struct SocketAddress {
    storage: libc::sockaddr_storage,
    length: libc::socklen_t,
}
