//! Addresses by name.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, ToSocketAddrs as _};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::lookups::{Addresses, Lookups};

/// What can be listened on or connected to: addresses, and names with a port, which are looked up on threads of their own
/// (`getaddrinfo(3)` waits). There are at most 512 of these in a program, as with tokio: of more names at once, the others wait
/// their turn, and those whose futures are dropped meanwhile are not looked up.
///
/// For the types that `tokio::net::ToSocketAddrs` is for. It is sealed.
pub trait ToSocketAddrs: Lookup {}

impl<T: Lookup + ?Sized> ToSocketAddrs for T {}

pub(crate) mod sealed {
    use super::{SocketAddr, io};

    /// What is known without asking anybody, or the name that is to be looked up.
    #[derive(Debug)]
    pub enum Target {
        Known(Vec<SocketAddr>),
        Name(String, u16),
    }

    pub trait Lookup {
        fn target(&self) -> io::Result<Target>;
    }
}

use sealed::{Lookup, Target};

macro_rules! known {
    ($($name:ty),*) => {
        $(
            impl Lookup for $name {
                fn target(&self) -> io::Result<Target> {
                    Ok(Target::Known(vec![SocketAddr::from(*self)]))
                }
            }
        )*
    };
}

known!(
    SocketAddr,
    SocketAddrV4,
    SocketAddrV6,
    (IpAddr, u16),
    (Ipv4Addr, u16),
    (Ipv6Addr, u16)
);

impl Lookup for [SocketAddr] {
    fn target(&self) -> io::Result<Target> {
        Ok(Target::Known(self.to_vec()))
    }
}

impl Lookup for (&str, u16) {
    fn target(&self) -> io::Result<Target> {
        let (name, port) = *self;
        Ok(match name.parse::<IpAddr>() {
            Ok(address) => Target::Known(vec![SocketAddr::new(address, port)]),
            Err(_) => Target::Name(name.to_owned(), port),
        })
    }
}

impl Lookup for (String, u16) {
    fn target(&self) -> io::Result<Target> {
        (self.0.as_str(), self.1).target()
    }
}

impl Lookup for str {
    fn target(&self) -> io::Result<Target> {
        if let Ok(address) = self.parse::<SocketAddr>() {
            return Ok(Target::Known(vec![address]));
        }
        let invalid = |why| io::Error::new(io::ErrorKind::InvalidInput, why);
        let (name, port) = self
            .rsplit_once(':')
            .ok_or_else(|| invalid("invalid socket address"))?;
        let port = port.parse().map_err(|_| invalid("invalid port value"))?;
        Ok(Target::Name(name.to_owned(), port))
    }
}

impl Lookup for String {
    fn target(&self) -> io::Result<Target> {
        self.as_str().target()
    }
}

impl<T: Lookup + ?Sized> Lookup for &T {
    fn target(&self) -> io::Result<Target> {
        (**self).target()
    }
}

/// The addresses of a target, in the order in which the resolver has them; at least one.
pub(crate) async fn look_up(target: io::Result<Target>) -> io::Result<Vec<SocketAddr>> {
    let addresses = match target? {
        Target::Known(addresses) => addresses,
        Target::Name(name, port) => resolve(name, port).await?,
    };
    if addresses.is_empty() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "could not resolve to any address",
        ));
    }
    Ok(addresses)
}

/// Threads that look up names at once, as many as tokio has for it.
const MOST_THREADS: usize = 512;
/// How long one waits for the next name, likewise.
const PATIENCE: Duration = Duration::from_secs(10);

async fn resolve(name: String, port: u16) -> Addresses {
    static LOOKUPS: LazyLock<Arc<Lookups>> =
        LazyLock::new(|| Lookups::new(Box::new(getaddrinfo), MOST_THREADS, PATIENCE));
    LOOKUPS.look_up(name, port)?.await
}

fn getaddrinfo(name: &str, port: u16) -> Addresses {
    (name, port)
        .to_socket_addrs()
        .map(Iterator::collect)
        .map_err(|error| io::Error::new(error.kind(), format!("{name}: {error}")))
}
