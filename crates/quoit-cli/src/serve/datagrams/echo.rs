//! `serve udp-echo`: sends each datagram back to whoever sent it.

use std::sync::Arc;

use quoit::{ConnectionId, DatagramSend, DatagramSocketId, Datagrams, Handler, Lease, Loop, Token};
use quoit_yardstick::Work;

use super::{DatagramFigures, Sockets};

/// The handler.
#[derive(Debug)]
pub(crate) struct UdpEcho {
    work: Work,
    sockets: Vec<DatagramSocketId>,
    figures: Arc<DatagramFigures>,
}

impl UdpEcho {
    pub(crate) fn new(
        quoit: &mut Loop,
        sockets: &Sockets,
        work: Work,
        figures: Arc<DatagramFigures>,
    ) -> Self {
        let sockets = sockets.open(quoit);
        figures.tick(quoit);
        Self {
            work,
            sockets,
            figures,
        }
    }
}

impl Handler for UdpEcho {
    fn on_data(&mut self, _quoit: &mut Loop, _connection: ConnectionId, _data: Lease) {
        // There are no connections.
    }

    fn on_datagrams(&mut self, quoit: &mut Loop, socket: DatagramSocketId, datagrams: Datagrams) {
        for _ in 0..datagrams.len() {
            self.work.burn();
        }
        let whole = datagrams.whole();
        if whole.is_truncated() {
            // Half of a datagram is not what was sent; the socket counts it.
            return;
        }
        let answer = DatagramSend {
            segment_size: whole.segment_size(),
            // A socket bound to a wildcard answers from the address that was asked.
            source: whole.local_address(),
            ..DatagramSend::new(whole.peer(), &[][..])
        };
        let answer = DatagramSend {
            payload: datagrams.into_lease().into(),
            ..answer
        };
        // With the queue full the answer is lost, as datagrams may be, and counted: nothing waits for a slow network.
        let _ = quoit.send_datagram(socket, answer);
    }

    fn on_timer(&mut self, quoit: &mut Loop, _token: Token) {
        self.figures.publish(quoit, &self.sockets);
        self.figures.tick(quoit);
    }

    fn on_draining(&mut self, quoit: &mut Loop) {
        for &socket in &self.sockets {
            // One that has failed is closed already.
            let _ = quoit.close_datagram(socket);
        }
    }
}
