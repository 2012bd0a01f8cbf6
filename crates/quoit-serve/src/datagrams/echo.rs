//! `serve udp-echo`: sends each datagram back to whoever sent it.

use std::sync::Arc;

use quoit::{Address, DatagramSend, DatagramSocketId, Datagrams, Handler, Loop, Token};
use quoit_workload::Work;

use super::{DatagramFigures, Sockets};

/// The first port that needs no privilege. Below it are services that answer whatever they get: echo, chargen, dns.
const FIRST_UNPRIVILEGED: u16 = 1024;

/// Ports of other servers, which are not answered: with one forged datagram two echoes would answer each other for ever
/// (CERT CA-1996-01). So do the built-in services of inetd.
#[derive(Debug)]
struct Servers {
    own: Vec<u16>,
}

impl Servers {
    fn new(own: &[Address]) -> Self {
        Self {
            own: own.iter().filter_map(port).collect(),
        }
    }

    fn include(&self, peer: &Address) -> bool {
        port(peer).is_some_and(|port| port < FIRST_UNPRIVILEGED || self.own.contains(&port))
    }
}

fn port(address: &Address) -> Option<u16> {
    match address {
        Address::Tcp(address) => Some(address.port()),
        _ => None,
    }
}

/// The handler.
#[derive(Debug)]
pub(crate) struct UdpEcho {
    work: Work,
    servers: Servers,
    sockets: Vec<DatagramSocketId>,
    figures: Arc<DatagramFigures>,
}

impl UdpEcho {
    pub(crate) fn new(
        event_loop: &mut Loop,
        sockets: &Sockets,
        work: Work,
        figures: Arc<DatagramFigures>,
    ) -> Self {
        let servers = Servers::new(sockets.addresses());
        let sockets = sockets.open(event_loop);
        figures.tick(event_loop);
        Self {
            work,
            servers,
            sockets,
            figures,
        }
    }
}

impl Handler for UdpEcho {
    fn on_datagrams(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagrams: Datagrams) {
        for _ in 0..datagrams.len() {
            self.work.burn();
        }
        let whole = datagrams.whole();
        if whole.is_truncated() {
            // Half of a datagram is not what was sent; the socket counts it.
            return;
        }
        let peer = whole.peer();
        if self.servers.include(&peer) {
            return;
        }
        let answer = DatagramSend {
            segment_size: whole.segment_size(),
            // A socket bound to a wildcard answers from the address that was asked.
            source: whole.local_address(),
            ..DatagramSend::new(peer, &[][..])
        };
        let answer = DatagramSend {
            payload: datagrams.into_lease().into(),
            ..answer
        };
        // With the queue full the answer is lost, as datagrams may be, and counted: nothing waits for a slow network.
        let _ = event_loop.send_datagram(socket, answer);
    }

    fn on_timer(&mut self, event_loop: &mut Loop, _token: Token) {
        self.figures.publish(event_loop, &self.sockets);
        self.figures.tick(event_loop);
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        for &socket in &self.sockets {
            // One that has failed is closed already.
            let _ = event_loop.close_datagram(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_by_their_ports() {
        let address = |text: &str| text.parse::<Address>().expect("an address");
        let servers = Servers::new(&[
            address("127.0.0.1:9000"),
            address("[::]:9001"),
            address("unix:/a"),
        ]);
        for text in [
            "192.0.2.1:7",
            "[2001:db8::1]:1023",
            "192.0.2.1:9000",
            "192.0.2.1:9001",
        ] {
            assert!(servers.include(&address(text)), "{text}");
        }
        for text in ["192.0.2.1:1024", "[2001:db8::1]:9002", "unix:/b"] {
            assert!(!servers.include(&address(text)), "{text}");
        }
    }
}
