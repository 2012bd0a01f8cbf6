//! Two network namespaces joined by a virtual cable: server and generator meet over interfaces, queues and a route
//! instead of the loopback's shortcut.

use std::io;
use std::net::Ipv4Addr;

use quoit_namespace::Namespace;

use crate::error::{LabError, Result};

/// Where the server listens: of the net that is kept for examples (RFC 5737), which no real host has.
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The first of the addresses that the generator connects from.
const FIRST_SOURCE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// How many there are: one address has some 28,000 ports for connections to one server, and the load generator goes
/// up to 50,000.
const SOURCES: u8 = 4;
/// The ends of the cable.
const SERVER_LINK: &str = "quoit-server";
const GENERATOR_LINK: &str = "quoit-load";

/// The two namespaces. When it is dropped and the processes in them have ended, the kernel removes them with the
/// cable: they have no names that could be left over.
#[derive(Debug)]
pub(crate) struct Veth {
    pub(super) server: Namespace,
    pub(super) generator: Namespace,
}

impl Veth {
    /// Makes both.
    ///
    /// # Errors
    /// Namespaces are not permitted, or iproute2's `ip` is missing or fails.
    pub(crate) fn make() -> Result<Self> {
        let namespace = || {
            Namespace::make().map_err(|error| {
                LabError::new(format!(
                    "making a network namespace: {error}; the placement veth needs root, or \
                     `unshare --map-root-user quoit lab run ...` where user namespaces are allowed; without either, \
                     take --placement split-core"
                ))
            })
        };
        let veth = Self {
            server: namespace()?,
            generator: namespace()?,
        };
        let generator = veth.generator.path();
        ip(
            &veth.server,
            &format!("link add {SERVER_LINK} type veth peer name {GENERATOR_LINK} netns {generator}"),
        )?;
        let sources: Vec<Ipv4Addr> = Self::sources().collect();
        for (namespace, link, addresses) in [
            (&veth.server, SERVER_LINK, &[SERVER][..]),
            (&veth.generator, GENERATOR_LINK, &sources),
        ] {
            for address in addresses {
                ip(namespace, &format!("address add {address}/24 dev {link}"))?;
            }
            ip(namespace, "link set lo up")?;
            ip(namespace, &format!("link set {link} up"))?;
        }
        Ok(veth)
    }

    pub(crate) fn server_address() -> Ipv4Addr {
        SERVER
    }

    /// The addresses that connections can come from.
    pub(crate) fn sources() -> impl Iterator<Item = Ipv4Addr> {
        (0..SOURCES).map(|index| Ipv4Addr::from_bits(FIRST_SOURCE.to_bits() + u32::from(index)))
    }
}

/// Runs iproute2's `ip` in a namespace.
fn ip(namespace: &Namespace, arguments: &str) -> Result<()> {
    namespace
        .run(&format!("ip {arguments}"))
        .map(drop)
        .map_err(|error| {
            let remedy = match error.kind() {
                io::ErrorKind::NotFound => {
                    "; the placement veth needs iproute2 (Debian: apt install iproute2)"
                }
                _ => "",
            };
            LabError::new(format!("{error}{remedy}"))
        })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// The namespaces, or a line that says why a test is skipped.
    pub(crate) fn veth_or_skip(test: &str) -> Option<Veth> {
        Veth::make()
            .inspect_err(|error| quoit_skipped::skip(test, error))
            .ok()
    }

    fn within<T: Send>(namespace: &Namespace, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        namespace.within(work)?
    }

    #[test]
    fn bytes_cross_the_cable_and_nothing_else_is_reached() {
        let Some(veth) = veth_or_skip("bytes_cross_the_cable_and_nothing_else_is_reached") else {
            return;
        };
        let listener = within(&veth.server, || TcpListener::bind((SERVER, 0)));
        let listener = listener.expect("the address is there");
        let address = listener.local_addr().expect("it is bound");
        let from = within(&veth.generator, || {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(b"hello")?;
            stream.local_addr()
        });
        let (mut stream, peer) = listener.accept().expect("it connected");
        assert_eq!(from.expect("it connects"), peer);
        assert!(Veth::sources().any(|source| source == peer.ip()), "{peer}");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it was closed");
        assert_eq!(text, "hello");
        // From here the address is not to be seen on any interface.
        assert!(TcpListener::bind((SERVER, 0)).is_err());
    }

    #[test]
    fn every_source_is_there() {
        let Some(veth) = veth_or_skip("every_source_is_there") else {
            return;
        };
        for source in Veth::sources() {
            let bound = within(&veth.generator, || TcpListener::bind((source, 0)));
            bound.unwrap_or_else(|error| panic!("{source}: {error}"));
        }
    }

    #[test]
    fn two_pairs_do_not_collide_and_have_no_names() {
        let Some(_one) = veth_or_skip("two_pairs_do_not_collide_and_have_no_names") else {
            return;
        };
        let _another = Veth::make().expect("it has its own names");
        let links = fs::read_to_string("/proc/thread-self/net/dev").expect("it can be read");
        assert!(
            !links.contains(SERVER_LINK) && !links.contains(GENERATOR_LINK),
            "{links}"
        );
    }
}
