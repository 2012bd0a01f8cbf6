//! Addresses: as users write them ([`Address`]) and as the kernel reads them ([`SocketAddress`]).

use std::ffi::OsStr;
use std::fmt;
use std::mem::{offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::errno::Errno;

mod text;

pub use text::ParseAddressError;
#[cfg(any(test, fuzzing))]
pub(crate) use text::address as fuzzing;

/// The longest path of a Unix socket, in bytes: `sun_path` has 108, one of them the final NUL (`unix(7)`).
pub const UNIX_PATH_LIMIT: usize = 107;
/// The longest abstract name, in bytes: `sun_path` has 108, one of them the leading NUL (`unix(7)`).
pub const UNIX_ABSTRACT_LIMIT: usize = 107;

const STORAGE_SIZE: usize = size_of::<libc::sockaddr_storage>();
const UNIX_NAME_OFFSET: usize = offset_of!(libc::sockaddr_un, sun_path);

/// The address of a stream or datagram socket.
///
/// As text (see [`str::parse`]): `127.0.0.1:8080`, `[::1]:8080`, `unix:/run/app.sock`, `unix:@name` (abstract).
/// In what follows `unix:`, `\xNN` is the byte with that hexadecimal number and `\\` a backslash, so that every
/// path and name can be written. A path that begins with `@` is written `unix:./@...`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Address {
    /// An IPv4 or IPv6 address and a port. Port 0 lets the kernel choose one when binding.
    Tcp(SocketAddr),
    /// A Unix socket with a path of 1 to [`UNIX_PATH_LIMIT`] bytes, none of them NUL.
    UnixPath(PathBuf),
    /// A Unix socket in the abstract namespace (`unix(7)`): at most [`UNIX_ABSTRACT_LIMIT`] bytes of any value,
    /// without the leading NUL.
    UnixAbstract(Box<[u8]>),
    /// A Unix socket without a name: what the connecting end usually has. It cannot be bound or connected to.
    UnixUnnamed,
}

impl Address {
    /// Whether this is an address of the Unix family.
    #[must_use]
    pub const fn is_unix(&self) -> bool {
        !matches!(self, Self::Tcp(_))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

/// Why an [`Address`] has no form that the kernel reads, or the other way round.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddressError {
    /// The path of a Unix socket is empty.
    PathEmpty,
    /// The path of a Unix socket is longer than [`UNIX_PATH_LIMIT`].
    PathTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The path of a Unix socket contains a NUL byte.
    PathContainsNul,
    /// An abstract name is longer than [`UNIX_ABSTRACT_LIMIT`].
    NameTooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// Neither IPv4, IPv6 nor Unix.
    Family(u16),
    /// The kernel's address is too short for its family.
    Truncated {
        /// Its length in bytes.
        length: usize,
    },
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PathEmpty => {
                f.write_str("the path of the Unix socket is empty; write it as unix:/run/app.sock")
            }
            Self::PathTooLong { length } => write!(
                f,
                "the path of the Unix socket has {length} bytes, but at most {UNIX_PATH_LIMIT} fit; use a \
                 shorter path, or one relative to the working directory"
            ),
            Self::PathContainsNul => {
                f.write_str("the path of the Unix socket contains a NUL byte, which no file name can")
            }
            Self::NameTooLong { length } => write!(
                f,
                "the abstract name of the Unix socket has {length} bytes, but at most {UNIX_ABSTRACT_LIMIT} \
                 fit; use a shorter one"
            ),
            Self::Family(family) => {
                write!(
                    f,
                    "the socket's address family is {family}, but only IPv4, IPv6 and Unix are supported"
                )
            }
            Self::Truncated { length } => {
                write!(
                    f,
                    "the socket's address has only {length} bytes, too few for its family"
                )
            }
        }
    }
}

impl std::error::Error for AddressError {}

/// An address as the kernel reads and writes it (`struct sockaddr`).
#[derive(Clone)]
pub struct SocketAddress {
    storage: Storage,
    length: usize,
}

/// The bytes of a `sockaddr_storage`, aligned as the kernel's structures want it. Bytes past the length are
/// zero.
#[derive(Clone)]
#[repr(C, align(8))]
struct Storage([u8; STORAGE_SIZE]);

const _: () = assert!(align_of::<Storage>() >= align_of::<libc::sockaddr_storage>());

impl SocketAddress {
    /// Of no family and no length.
    pub(crate) const fn empty() -> Self {
        Self {
            storage: Storage([0; STORAGE_SIZE]),
            length: 0,
        }
    }

    /// Whether it is of no length.
    pub(crate) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Becomes another address, and writes no more than the two are long.
    ///
    /// # Errors
    /// It has no form for the kernel, and nothing was changed.
    #[inline]
    pub(crate) fn set(&mut self, address: &Address) -> Result<(), AddressError> {
        match address {
            Address::Tcp(address) => self.set_internet(*address),
            Address::UnixPath(_) | Address::UnixAbstract(_) | Address::UnixUnnamed => {
                *self = address.try_into()?;
            }
        }
        Ok(())
    }

    /// As [`SocketAddress::set`], of an internet address.
    pub(crate) fn set_internet(&mut self, address: SocketAddr) {
        match address {
            SocketAddr::V4(v4) => {
                let raw: &mut [u8; size_of::<libc::sockaddr_in>()] = self.begin(libc::AF_INET);
                set_part(
                    raw,
                    offset_of!(libc::sockaddr_in, sin_port),
                    v4.port().to_be_bytes(),
                );
                set_part(raw, offset_of!(libc::sockaddr_in, sin_addr), v4.ip().octets());
            }
            SocketAddr::V6(v6) => {
                let raw: &mut [u8; size_of::<libc::sockaddr_in6>()] = self.begin(libc::AF_INET6);
                set_part(
                    raw,
                    offset_of!(libc::sockaddr_in6, sin6_port),
                    v6.port().to_be_bytes(),
                );
                set_part(
                    raw,
                    offset_of!(libc::sockaddr_in6, sin6_flowinfo),
                    v6.flowinfo().to_ne_bytes(),
                );
                set_part(raw, offset_of!(libc::sockaddr_in6, sin6_addr), v6.ip().octets());
                set_part(
                    raw,
                    offset_of!(libc::sockaddr_in6, sin6_scope_id),
                    v6.scope_id().to_ne_bytes(),
                );
            }
        }
    }

    /// Becomes an address of this family and as many bytes, which are still zero but for the family.
    fn begin<const N: usize>(&mut self, family: i32) -> &mut [u8; N] {
        if self.length > N {
            self.storage.0[N..self.length].fill(0);
        }
        self.length = N;
        let bytes = self.storage.0.first_chunk_mut().expect("an address has room");
        *bytes = [0; N];
        // Families are small numbers, kept in 16 bits as `sa_family_t`.
        let family = (family as libc::sa_family_t).to_ne_bytes();
        set_part(bytes, offset_of!(libc::sockaddr, sa_family), family);
        bytes
    }

    /// Becomes the empty one.
    pub(crate) fn clear(&mut self) {
        self.storage.0[..self.length].fill(0);
        self.length = 0;
    }

    fn of_family(family: i32, length: usize) -> Self {
        let mut address = Self::empty();
        // Families are small numbers, kept in 16 bits as `sa_family_t`.
        address.put(
            offset_of!(libc::sockaddr, sa_family),
            &(family as libc::sa_family_t).to_ne_bytes(),
        );
        address.length = length;
        address
    }

    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.storage.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn get<const N: usize>(&self, offset: usize) -> [u8; N] {
        std::array::from_fn(|index| self.storage.0[offset + index])
    }

    /// An address that a system call writes: `getsockname(2)`, `getpeername(2)` and their like.
    ///
    /// `call` is given where to write the address and its length in bytes, which says how much room there is
    /// when the call begins. It returns as the system call does: negative means that `errno` says why.
    ///
    /// # Errors
    /// The thread's `errno`, where `call` returns a negative number.
    pub fn read(call: impl FnOnce(*mut libc::sockaddr, *mut libc::socklen_t) -> i32) -> Result<Self, Errno> {
        let mut address = Self::empty();
        let mut length = STORAGE_SIZE as libc::socklen_t;
        Errno::check(call(
            (&raw mut address.storage).cast::<libc::sockaddr>(),
            &raw mut length,
        ))?;
        // The kernel returns the length that the address has, even where there was less room.
        address.length = (length as usize).min(STORAGE_SIZE);
        Ok(address)
    }

    /// An address that the kernel, or somebody who speaks as it does, has written to other memory. What is longer than
    /// any address is cut.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let bytes = &bytes[..bytes.len().min(STORAGE_SIZE)];
        let mut address = Self::empty();
        address.put(0, bytes);
        address.length = bytes.len();
        address
    }

    /// The address and its length in bytes as system calls take them. The pointer is valid while this value
    /// stays in place and is not changed.
    #[must_use]
    pub const fn as_raw(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        (
            (&raw const self.storage).cast::<libc::sockaddr>(),
            self.length as libc::socklen_t,
        )
    }

    /// Its bytes as system calls take them.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.storage.0[..self.length]
    }

    /// The address family: `AF_INET`, `AF_INET6`, `AF_UNIX`, or one that is not supported here. `AF_UNSPEC` (0)
    /// for an address of no length, as some calls answer for an unnamed peer.
    #[must_use]
    pub fn family(&self) -> i32 {
        i32::from(libc::sa_family_t::from_ne_bytes(
            self.get(offset_of!(libc::sockaddr, sa_family)),
        ))
    }

    /// The host that an internet address names, and its scope: of a link-local IPv6 address, the interface by number; 0
    /// for all others.
    pub(crate) fn host(&self) -> Option<(IpAddr, u32)> {
        match self.family() {
            libc::AF_INET => {
                let host = Ipv4Addr::from(self.get::<4>(offset_of!(libc::sockaddr_in, sin_addr)));
                Some((host.into(), 0))
            }
            libc::AF_INET6 => {
                let host = Ipv6Addr::from(self.get::<16>(offset_of!(libc::sockaddr_in6, sin6_addr)));
                let scope = u32::from_ne_bytes(self.get(offset_of!(libc::sockaddr_in6, sin6_scope_id)));
                Some((host.into(), scope))
            }
            _ => None,
        }
    }

    /// The address of no family (`AF_UNSPEC`), to which a TCP socket connects in order to be disconnected.
    pub(crate) fn unspecified() -> Self {
        Self::of_family(libc::AF_UNSPEC, size_of::<libc::sockaddr>())
    }

    fn from_unix(name: &[u8], length: usize) -> Self {
        let mut address = Self::of_family(libc::AF_UNIX, UNIX_NAME_OFFSET + length);
        address.put(UNIX_NAME_OFFSET, name);
        address
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> Self {
        let mut raw = Self::empty();
        raw.set_internet(address);
        raw
    }
}

impl TryFrom<&Path> for SocketAddress {
    type Error = AddressError;

    fn try_from(path: &Path) -> Result<Self, AddressError> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.is_empty() {
            return Err(AddressError::PathEmpty);
        }
        if bytes.contains(&0) {
            return Err(AddressError::PathContainsNul);
        }
        if bytes.len() > UNIX_PATH_LIMIT {
            return Err(AddressError::PathTooLong { length: bytes.len() });
        }
        Ok(Self::from_unix(bytes, bytes.len() + 1))
    }
}

impl TryFrom<&Address> for SocketAddress {
    type Error = AddressError;

    fn try_from(address: &Address) -> Result<Self, AddressError> {
        match address {
            Address::Tcp(address) => Ok((*address).into()),
            Address::UnixPath(path) => path.as_path().try_into(),
            Address::UnixAbstract(name) => {
                if name.len() > UNIX_ABSTRACT_LIMIT {
                    return Err(AddressError::NameTooLong { length: name.len() });
                }
                let mut raw = Self::from_unix(&[0], 1 + name.len());
                raw.put(UNIX_NAME_OFFSET + 1, name);
                Ok(raw)
            }
            Address::UnixUnnamed => Ok(Self::from_unix(&[], 0)),
        }
    }
}

/// Writes `part` from `at` on, where it lies in the bytes: with a place known at compile time, one store.
#[inline]
fn set_part<const N: usize, const M: usize>(bytes: &mut [u8; M], at: usize, part: [u8; N]) {
    *bytes[at..]
        .first_chunk_mut()
        .expect("the places lie in the bytes") = part;
}

/// `N` of the bytes, from `at` on, which lie in them: with a place known at compile time, one load.
#[inline]
pub(crate) fn part<const N: usize, const M: usize>(bytes: &[u8; M], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the places lie in the bytes")
}

impl TryFrom<&SocketAddress> for Address {
    type Error = AddressError;

    fn try_from(raw: &SocketAddress) -> Result<Self, AddressError> {
        Self::read(raw.as_bytes())
    }
}

impl Address {
    /// As the kernel wrote it (`struct sockaddr`), to as many bytes as the address has.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, AddressError> {
        let truncated = AddressError::Truncated { length: bytes.len() };
        let Some(family) = bytes.first_chunk() else {
            return Err(truncated);
        };
        match i32::from(libc::sa_family_t::from_ne_bytes(*family)) {
            libc::AF_INET => {
                let raw: &[u8; size_of::<libc::sockaddr_in>()] = bytes.first_chunk().ok_or(truncated)?;
                let address: [u8; 4] = part(raw, offset_of!(libc::sockaddr_in, sin_addr));
                Ok(Self::Tcp(SocketAddr::V4(SocketAddrV4::new(
                    Ipv4Addr::from(address),
                    u16::from_be_bytes(part(raw, offset_of!(libc::sockaddr_in, sin_port))),
                ))))
            }
            libc::AF_INET6 => {
                let raw: &[u8; size_of::<libc::sockaddr_in6>()] = bytes.first_chunk().ok_or(truncated)?;
                let address: [u8; 16] = part(raw, offset_of!(libc::sockaddr_in6, sin6_addr));
                Ok(Self::Tcp(SocketAddr::V6(SocketAddrV6::new(
                    Ipv6Addr::from(address),
                    u16::from_be_bytes(part(raw, offset_of!(libc::sockaddr_in6, sin6_port))),
                    u32::from_ne_bytes(part(raw, offset_of!(libc::sockaddr_in6, sin6_flowinfo))),
                    u32::from_ne_bytes(part(raw, offset_of!(libc::sockaddr_in6, sin6_scope_id))),
                ))))
            }
            libc::AF_UNIX => match &bytes[UNIX_NAME_OFFSET..] {
                [] => Ok(Self::UnixUnnamed),
                [0, name @ ..] => Ok(Self::UnixAbstract(name.into())),
                // A path of all 108 bytes, which others may bind, comes without its NUL.
                path => {
                    let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
                    Ok(Self::UnixPath(OsStr::from_bytes(&path[..end]).into()))
                }
            },
            family => Err(AddressError::Family(family as u16)),
        }
    }
}

impl PartialEq for SocketAddress {
    fn eq(&self, other: &Self) -> bool {
        self.storage.0[..self.length] == other.storage.0[..other.length]
    }
}

impl Eq for SocketAddress {}

impl fmt::Debug for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Address::try_from(self) {
            Ok(address) => write!(f, "SocketAddress({address})"),
            Err(error) => write!(f, "SocketAddress({error})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses() -> impl Strategy<Value = Address> {
        let v4 = any::<(u32, u16)>()
            .prop_map(|(ip, port)| Address::Tcp(SocketAddrV4::new(Ipv4Addr::from_bits(ip), port).into()));
        let v6 = any::<(u128, u16, u32, u32)>().prop_map(|(ip, port, flow, scope)| {
            Address::Tcp(SocketAddrV6::new(Ipv6Addr::from_bits(ip), port, flow, scope).into())
        });
        let path = proptest::collection::vec(1u8.., 1..=UNIX_PATH_LIMIT)
            .prop_map(|bytes| Address::UnixPath(OsStr::from_bytes(&bytes).into()));
        let name = proptest::collection::vec(any::<u8>(), 0..=UNIX_ABSTRACT_LIMIT)
            .prop_map(|bytes| Address::UnixAbstract(bytes.into()));
        prop_oneof![v4, v6, path, name, Just(Address::UnixUnnamed)]
    }

    proptest! {
        #[test]
        fn the_kernels_form_gives_back_the_address(address in addresses()) {
            let raw = SocketAddress::try_from(&address).unwrap();
            prop_assert_eq!(Address::try_from(&raw).unwrap(), address);
        }

        #[test]
        fn what_a_call_writes_is_read(address in addresses()) {
            let written = SocketAddress::try_from(&address).unwrap();
            let (from, from_length) = written.as_raw();
            let read = SocketAddress::read(|to, length| {
                // SAFETY: `to` has room for `*length` bytes, which are more than `from` has.
                unsafe {
                    assert!(*length >= from_length);
                    to.cast::<u8>().copy_from_nonoverlapping(from.cast(), from_length as usize);
                    *length = from_length;
                }
                0
            });
            prop_assert_eq!(read.unwrap(), written);
        }
    }

    #[test]
    fn an_overlong_answer_of_the_kernel_is_cut() {
        let raw = SocketAddress::read(|_, length| {
            // SAFETY: the pointer is that of a live length.
            unsafe { *length = 4096 };
            0
        })
        .unwrap();
        assert_eq!(Address::try_from(&raw), Err(AddressError::Family(0)));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let path = |length| Address::UnixPath("p".repeat(length).into());
        assert!(SocketAddress::try_from(&path(UNIX_PATH_LIMIT)).is_ok());
        assert_eq!(
            SocketAddress::try_from(&path(UNIX_PATH_LIMIT + 1)),
            Err(AddressError::PathTooLong { length: 108 })
        );
        assert_eq!(SocketAddress::try_from(&path(0)), Err(AddressError::PathEmpty));
        assert_eq!(
            SocketAddress::try_from(&Address::UnixPath("a\0b".into())),
            Err(AddressError::PathContainsNul)
        );
        let name = Address::UnixAbstract(vec![b'n'; UNIX_ABSTRACT_LIMIT + 1].into());
        assert_eq!(
            SocketAddress::try_from(&name),
            Err(AddressError::NameTooLong { length: 108 })
        );
    }

    #[test]
    fn an_address_written_over_another_is_as_if_it_were_new() {
        let all: Vec<Address> = [
            "[fe80::1%3]:53",
            "192.0.2.1:53",
            "unix:/run/a-long-name",
            "unix:@b",
        ]
        .iter()
        .map(|text| text.parse().unwrap())
        .chain([Address::UnixUnnamed])
        .collect();
        for (before, after) in all.iter().flat_map(|one| all.iter().map(move |two| (one, two))) {
            let mut raw = SocketAddress::try_from(before).unwrap();
            raw.set(after).unwrap();
            let new = SocketAddress::try_from(after).unwrap();
            assert_eq!(raw.as_bytes(), new.as_bytes(), "{before} {after}");
            assert_eq!(raw.storage.0, new.storage.0, "{before} {after}");
            raw.clear();
            assert!(raw.is_empty() && raw.storage.0 == [0; STORAGE_SIZE]);
        }
        let mut raw = SocketAddress::try_from(&all[1]).unwrap();
        let too_long = Address::UnixPath("/".repeat(UNIX_PATH_LIMIT + 1).into());
        raw.set(&too_long).unwrap_err();
        assert_eq!(Address::try_from(&raw).as_ref(), Ok(&all[1]));
    }

    #[test]
    fn foreign_and_short_addresses_are_named() {
        let netlink = SocketAddress::of_family(libc::AF_NETLINK, 12);
        assert_eq!(
            Address::try_from(&netlink),
            Err(AddressError::Family(libc::AF_NETLINK as u16))
        );
        let short = SocketAddress::of_family(libc::AF_INET6, 16);
        assert_eq!(
            Address::try_from(&short),
            Err(AddressError::Truncated { length: 16 })
        );
        assert_eq!(
            Address::try_from(&SocketAddress::empty()),
            Err(AddressError::Truncated { length: 0 })
        );
    }
}
