//! An echo server: sends back what it receives, without copying it.
//!
//!     cargo run --example echo -- 127.0.0.1:7000

use quoit::{Address, Config, ConnectionId, Handler, Lease, Listen, ListenerOptions, Loop};
use quoit::{Runtime, RuntimeConfig, Token};

struct Echo;

impl Handler for Echo {
    fn on_data(&mut self, quoit: &mut Loop, connection: ConnectionId, data: Lease) {
        // The bytes go out from where they came in; the lease is returned when they are sent.
        let _ = quoit.send(connection, data, Token::NONE);
        // A peer that does not read gets nothing more to answer until it does.
        if quoit.is_full(connection) {
            let _ = quoit.pause(connection);
        }
    }

    fn on_writable(&mut self, quoit: &mut Loop, connection: ConnectionId) {
        let _ = quoit.resume(connection);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: Address = std::env::args()
        .nth(1)
        .as_deref()
        .unwrap_or("127.0.0.1:0")
        .parse()?;
    let listeners = vec![(Listen::Address(address), ListenerOptions::default())];
    let config = RuntimeConfig {
        config: Config::default(),
        listeners,
        ..RuntimeConfig::default()
    };
    let runtime = Runtime::start(config, |_| Echo)?;
    println!(
        "listening on {} engine={}",
        runtime.addresses()[0],
        runtime.engine()
    );
    runtime.join()?;
    Ok(())
}
