//! A loop of Quoit, as a program in Rust has it.

use std::net::SocketAddr;

use quoit::{
    Address, Config, ConnectionId, Datagram, DatagramOptions, DatagramSend, DatagramSocketId, EngineChoice,
    EngineKind, Events, Handler, Lease, ListenerOptions, Loop, LoopIndex, Token,
};

use super::{RESPONSE, Turns, Work};

static ANSWER: [u8; RESPONSE] = [9; RESPONSE];

pub(super) struct Served {
    event_loop: Loop,
    events: Events,
    handler: Answering,
    address: SocketAddr,
}

struct Answering {
    work: Work,
    taken: usize,
}

impl Handler for Answering {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        self.taken += 1;
        // Whether it was taken shows in the client's bytes.
        let _ = match self.work {
            Work::Echo => event_loop.send(connection, data, Token::NONE),
            Work::Response | Work::Datagram => event_loop.send(connection, &ANSWER[..], Token::NONE),
        };
    }

    fn on_datagram(&mut self, event_loop: &mut Loop, socket: DatagramSocketId, datagram: Datagram<'_>) {
        self.taken += 1;
        let _ = event_loop.send_datagram(socket, DatagramSend::new(datagram.peer(), datagram.bytes()));
    }
}

impl Served {
    pub(super) fn new(engine: EngineKind, work: Work) -> Result<Self, String> {
        let config = Config {
            engine: EngineChoice::Require(engine),
            ..Config::default()
        };
        let mut event_loop =
            Loop::new(LoopIndex::default(), config).map_err(|error| format!("no loop: {error}"))?;
        let any: Address = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = if work == Work::Datagram {
            let socket = event_loop
                .bind_datagram(&any, &DatagramOptions::default(), Token::NONE)
                .map_err(|error| format!("no socket: {error:?}"))?;
            event_loop.datagram_address(socket).cloned()
        } else {
            let listener = event_loop
                .listen(&any, &ListenerOptions::default())
                .map_err(|error| format!("no listener: {error}"))?;
            event_loop.listener_address(listener)
        };
        let Some(Address::Tcp(address)) = address else {
            return Err("the address is none of IP".to_owned());
        };
        Ok(Self {
            event_loop,
            events: Events::with_capacity(256),
            handler: Answering { work, taken: 0 },
            address,
        })
    }
}

impl Turns for Served {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn turn(&mut self) -> Result<usize, String> {
        self.handler.taken = 0;
        self.event_loop
            .run_turn(&mut self.handler, &mut self.events, None)
            .map_err(|error| error.to_string())?;
        Ok(self.handler.taken)
    }
}
