//! A TCP proxy: each connection to it is passed on to a target, both ways, on one loop. `docs/proxy.md` explains it.
//!
//!     cargo run --example proxy -- 127.0.0.1:7000 127.0.0.1:8000

mod signals;

use std::collections::HashMap;
use std::time::Duration;

use quoit::{
    Accept, Address, CloseReason, Config, ConnectOptions, ConnectionId, Drainer, Handler, Keepalive, Lease,
    ListenerId, ListenerOptions, Loop, LoopIndex, StreamOptions, Token,
};

struct Proxy {
    target: Address,
    options: ConnectOptions,
    /// The client and the server of each pair, as long as both live.
    sides: HashMap<ConnectionId, Side>,
}

/// One of a pair.
struct Side {
    other: ConnectionId,
    /// Its end of stream was passed on.
    ended: bool,
}

impl Side {
    fn of(other: ConnectionId) -> Self {
        Self { other, ended: false }
    }
}

impl Handler for Proxy {
    fn on_accepted(&mut self, event_loop: &mut Loop, client: ConnectionId, _: ListenerId) {
        match event_loop.connect(&self.target, &self.options, Token::NONE) {
            Ok(server) => {
                self.sides.insert(client, Side::of(server));
                self.sides.insert(server, Side::of(client));
            }
            // No connection or descriptor is left for its server.
            Err(_) => _ = event_loop.abort(client),
        }
    }

    fn on_opened(&mut self, event_loop: &mut Loop, server: ConnectionId, _: Token) {
        // The client was accepted paused: until now its bytes had nowhere to go.
        self.on_writable(event_loop, server);
    }

    fn on_data(&mut self, event_loop: &mut Loop, from: ConnectionId, data: Lease) {
        let Some(&Side { other: to, .. }) = self.sides.get(&from) else {
            return;
        };
        // The bytes go out from where they came in. If they are refused, that side has failed, and its end ends this one.
        if event_loop.send_or_abort(to, data, Token::NONE) && event_loop.is_full(to) {
            let _ = event_loop.pause(from);
        }
    }

    fn on_writable(&mut self, event_loop: &mut Loop, to: ConnectionId) {
        if let Some(&Side { other: from, .. }) = self.sides.get(&to) {
            let _ = event_loop.resume(from);
        }
    }

    fn on_end_of_stream(&mut self, event_loop: &mut Loop, from: ConnectionId) {
        if let Some(side) = self.sides.get_mut(&from) {
            side.ended = true;
            let _ = event_loop.shutdown(side.other);
        }
    }

    fn on_closed(&mut self, event_loop: &mut Loop, closed: ConnectionId, _: Token, reason: CloseReason) {
        let Some(side) = self.sides.remove(&closed) else {
            return;
        };
        let other = self.sides.remove(&side.other);
        let both_ended = side.ended && other.is_some_and(|other| other.ended);
        if both_ended && matches!(reason, CloseReason::PeerClosed | CloseReason::Local) {
            // The other closes too, once its peer has taken what is queued.
            return;
        }
        // Its peer must not take what it has for all there is.
        let _ = event_loop.abort(side.other);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(target)) = (arguments.next(), arguments.next()) else {
        return Err("usage: proxy ADDRESS TARGET".into());
    };
    // A peer that is gone without a word is noticed.
    let stream = StreamOptions {
        keepalive: Some(Keepalive::default()),
        ..StreamOptions::default()
    };
    let listener = ListenerOptions {
        accept: Accept::Paused,
        stream: stream.clone(),
        ..ListenerOptions::default()
    };
    let mut proxy = Proxy {
        target: target.parse()?,
        options: ConnectOptions {
            timeout: Some(Duration::from_secs(5)),
            socket: stream,
            ..ConnectOptions::default()
        },
        sides: HashMap::new(),
    };
    let mut event_loop = Loop::new(LoopIndex::default(), Config::default())?;
    let listener = event_loop.listen(&address.parse()?, &listener)?;
    let address = event_loop.listener_address(listener).ok_or("closed")?;
    signals::drain_on_signals(Drainer::from(event_loop.remote()))?;
    println!("listening on {address} engine={}", event_loop.engine());
    Ok(event_loop.run(&mut proxy)?)
}
