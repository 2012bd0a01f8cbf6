//! `serve dns`: an authoritative responder for a few address records.

use std::sync::Arc;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use quoit::{Datagram, DatagramSend, DatagramSocketId, Handler, Loop, Token};
use quoit_workload::Work;
use quoit_workload::dns::{Outcome, Record, Responder, Zone};

use super::{DatagramArguments, DatagramFigures, DnsFigures, Sockets};

/// What `serve dns` answers.
#[derive(Debug, Clone, Args)]
pub(crate) struct DnsArguments {
    /// A name and its address, such as www.example.test=192.0.2.7; *.example.test=... for all names below that have
    /// none of their own. May be repeated, also for the same name: each answer has one of its addresses
    /// [default: *.test=192.0.2.1 and *.test=2001:db8::1]
    #[arg(long = "record", value_name = "NAME=ADDRESS")]
    records: Vec<Record>,
    /// Seconds for which answers may be kept
    #[arg(long, value_name = "SECONDS", default_value_t = 300,
          value_parser = RangedU64ValueParser::<u32>::new().range(0..=i32::MAX as u64))]
    ttl: u32,
    #[command(flatten)]
    pub(crate) datagrams: DatagramArguments,
}

impl DnsArguments {
    /// The responders, one per loop.
    pub(crate) fn responder(&self) -> Responder {
        let zone = match &self.records[..] {
            [] => Zone::documentation(),
            records => Zone::new(records.iter().cloned()),
        };
        Responder::new(zone, self.ttl)
    }
}

/// The handler.
#[derive(Debug)]
pub(crate) struct Dns {
    responder: Responder,
    work: Work,
    sockets: Vec<DatagramSocketId>,
    datagrams: Arc<DatagramFigures>,
    outcomes: Arc<DnsFigures>,
}

impl Dns {
    pub(crate) fn new(
        event_loop: &mut Loop,
        sockets: &Sockets,
        responder: Responder,
        work: Work,
        (datagrams, outcomes): (Arc<DatagramFigures>, Arc<DnsFigures>),
    ) -> Self {
        let sockets = sockets.open(event_loop);
        datagrams.tick(event_loop);
        Self {
            responder,
            work,
            sockets,
            datagrams,
            outcomes,
        }
    }
}

impl Handler for Dns {
    fn on_datagram(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagram: Datagram<'_>) {
        self.work.burn();
        if datagram.is_truncated() {
            // Half of a query is none; the socket counts it besides.
            self.outcomes.count(Outcome::Ignored);
            return;
        }
        let (outcome, response) = self.responder.answer(&datagram);
        self.outcomes.count(outcome);
        if outcome == Outcome::Ignored {
            return;
        }
        let response = DatagramSend {
            // A socket bound to a wildcard answers from the address that was asked.
            source: datagram.local_address(),
            ..DatagramSend::new(datagram.peer(), response)
        };
        // With the queue full the response is lost, as datagrams may be, and counted: who asks asks again.
        let _ = event_loop.send_datagram(socket, response);
    }

    fn on_timer(&mut self, event_loop: &mut Loop, _token: Token) {
        self.datagrams.publish(event_loop, &self.sockets);
        self.datagrams.tick(event_loop);
    }

    fn on_draining(&mut self, event_loop: &mut Loop) {
        for &socket in &self.sockets {
            // One that has failed is closed already.
            let _ = event_loop.close_datagram(socket);
        }
    }
}
