//! An echo server: sends back what it receives, without copying it.
//!
//!     cargo run --example echo -- 127.0.0.1:7000

mod signals;

use quoit::{ConnectionId, Handler, Lease, Listen, ListenerOptions, Loop, Runtime, RuntimeConfig, Token};

struct Echo;

impl Handler for Echo {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        // The bytes go out from where they came in; the lease is returned when they are sent.
        if event_loop.send_or_abort(connection, data, Token::NONE) && event_loop.is_full(connection) {
            // Nothing more is received from a client that does not read, until it does.
            let _ = event_loop.pause(connection);
        }
    }

    fn on_writable(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        let _ = event_loop.resume(connection);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:0".into());
    let config = RuntimeConfig {
        listeners: vec![(Listen::Address(address.parse()?), ListenerOptions::default())],
        ..RuntimeConfig::default()
    };
    let runtime = Runtime::start(config, |_| Echo)?;
    // Clients are echoed to until they close, or until the time for draining is over.
    signals::drain_on_signals(runtime.drainer())?;
    println!(
        "listening on {} engine={}",
        runtime.addresses()[0],
        runtime.engine()
    );
    runtime.join()?;
    Ok(())
}
