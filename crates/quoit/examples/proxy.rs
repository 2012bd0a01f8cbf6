//! A TCP proxy: each connection to it is passed on to a target, both ways, on one loop. Bytes go out from where
//! they came in; a side that does not read stops the other from being read; ends of stream pass through.
//!
//!     cargo run --example proxy -- 127.0.0.1:7000 127.0.0.1:8000

use std::collections::HashMap;

use quoit::{Accept, Address, CloseReason, Config, ConnectOptions, ConnectionId, Handler, Lease, ListenerId};
use quoit::{ListenerOptions, Loop, LoopIndex, Token};

struct Proxy {
    target: Address,
    /// The other side of each connection, as long as it lives.
    other: HashMap<ConnectionId, ConnectionId>,
}

impl Handler for Proxy {
    fn on_accepted(&mut self, quoit: &mut Loop, client: ConnectionId, _: ListenerId) {
        match quoit.connect(&self.target, &ConnectOptions::default(), Token::NONE) {
            Ok(server) => self.other.extend([(client, server), (server, client)]),
            Err(_) => _ = quoit.abort(client),
        }
    }

    fn on_opened(&mut self, quoit: &mut Loop, server: ConnectionId, _: Token) {
        // The client was accepted paused: until now its bytes had nowhere to go.
        self.on_writable(quoit, server);
    }

    fn on_data(&mut self, quoit: &mut Loop, from: ConnectionId, data: Lease) {
        let Some(&to) = self.other.get(&from) else { return };
        // Refused only if that side has failed, which ends this one too.
        let _ = quoit.send(to, data, Token::NONE);
        if quoit.is_full(to) {
            let _ = quoit.pause(from);
        }
    }

    fn on_writable(&mut self, quoit: &mut Loop, to: ConnectionId) {
        if let Some(&from) = self.other.get(&to) {
            let _ = quoit.resume(from);
        }
    }

    fn on_end_of_stream(&mut self, quoit: &mut Loop, from: ConnectionId) {
        // Half a close passes through; when both directions have ended, the connections close.
        if let Some(&to) = self.other.get(&from) {
            let _ = quoit.shutdown(to);
        }
    }

    fn on_closed(&mut self, quoit: &mut Loop, one: ConnectionId, _: Token, reason: CloseReason) {
        let Some(other) = self.other.remove(&one) else {
            return;
        };
        self.other.remove(&other);
        let _ = match reason {
            CloseReason::PeerClosed | CloseReason::Local => quoit.close(other, None),
            _ => quoit.abort(other),
        };
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(target)) = (arguments.next(), arguments.next()) else {
        return Err("usage: proxy ADDRESS TARGET".into());
    };
    let (target, other) = (target.parse()?, HashMap::new());
    let options = ListenerOptions {
        accept: Accept::Paused,
        ..ListenerOptions::default()
    };
    let mut quoit = Loop::new(LoopIndex::default(), Config::default())?;
    let listener = quoit.listen(&address.parse()?, &options)?;
    let address = quoit.listener_address(listener).ok_or("closed")?;
    println!("listening on {address} engine={}", quoit.engine());
    Ok(quoit.run(&mut Proxy { target, other })?)
}
