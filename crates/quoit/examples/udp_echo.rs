//! An echo server over UDP: one socket per loop on one port, datagrams joined by the kernel where it can.
//!
//!     cargo run --example udp_echo -- 127.0.0.1:7000

mod signals;

use quoit::{
    Address, Datagram, DatagramOptions, DatagramSend, DatagramSocket, DatagramSocketId, Gro, Handler, Loop,
    Runtime, RuntimeConfig, Steering, Token,
};

struct Echo;

impl Handler for Echo {
    fn on_datagram(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagram: Datagram<'_>) {
        let mut answer = DatagramSend::new(datagram.peer(), datagram.bytes());
        // A socket bound to a wildcard answers from the address that was asked.
        answer.source = datagram.local_address();
        // With the queue full the answer is lost, as datagrams may be: nothing waits for a slow network.
        let _ = event_loop.send_datagram(socket, answer);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address: Address = std::env::args()
        .nth(1)
        .as_deref()
        .unwrap_or("127.0.0.1:0")
        .parse()?;
    let options = DatagramOptions {
        gro: Gro::Transparent,
        receive_local_address: true,
        ..DatagramOptions::default()
    };
    let config = RuntimeConfig::default();
    let mut sockets =
        DatagramSocket::bind_group(&address, &options, config.loops, Steering::Hash)?.into_iter();
    let bound = sockets.as_slice().first().map(|socket| socket.address().clone());
    let runtime = Runtime::start(config, |_| Echo)?;
    for remote in runtime.remotes() {
        let socket = sockets.next().ok_or("a socket for each loop")?;
        let open = quoit::Command::OpenDatagram {
            socket: Box::new(socket),
            token: Token::NONE,
        };
        remote.post(open)?;
    }
    signals::drain_on_signals(runtime.drainer())?;
    println!(
        "listening on {} engine={}",
        bound.ok_or("at least one loop")?,
        runtime.engine()
    );
    runtime.join()?;
    Ok(())
}
