//! A loop of Quoit whose handler does nothing: it closes what its peers have ended.

use std::net::SocketAddr;

use quoit::{
    Address, CloseReason, Config, ConnectionId, EngineChoice, EngineKind, Events, Handler, ListenerId,
    ListenerOptions, Loop, LoopIndex, Token,
};

use super::Ending;

pub(super) struct Served {
    event_loop: Loop,
    events: Events,
    counting: Counting,
    address: SocketAddr,
}

#[derive(Default)]
struct Counting {
    accepted: u32,
    closed: u32,
}

impl Handler for Counting {
    fn on_accepted(&mut self, _: &mut Loop, _: ConnectionId, _: ListenerId) {
        self.accepted += 1;
    }

    fn on_closed(&mut self, _: &mut Loop, _: ConnectionId, _: Token, _: CloseReason) {
        self.closed += 1;
    }
}

impl Served {
    pub(super) fn new(engine: EngineKind) -> Result<Self, String> {
        let config = Config {
            engine: EngineChoice::Require(engine),
            ..Config::default()
        };
        let mut event_loop =
            Loop::new(LoopIndex::default(), config).map_err(|error| format!("no loop: {error}"))?;
        let listener = event_loop
            .listen(
                &Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 0))),
                &ListenerOptions::default(),
            )
            .map_err(|error| format!("no listener: {error}"))?;
        let Some(Address::Tcp(address)) = event_loop.listener_address(listener) else {
            return Err("the address is none of IP".to_owned());
        };
        Ok(Self {
            event_loop,
            events: Events::with_capacity(256),
            counting: Counting::default(),
            address,
        })
    }

    fn run_turn(&mut self) -> Result<(), String> {
        self.event_loop
            .run_turn(&mut self.counting, &mut self.events, None)
            .map_err(|error| error.to_string())
            .map(drop)
    }
}

impl Ending for Served {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn accept(&mut self, connections: u32) -> Result<(), String> {
        self.counting.accepted = 0;
        while self.counting.accepted < connections {
            self.run_turn()?;
        }
        Ok(())
    }

    fn turn(&mut self) -> Result<u32, String> {
        self.counting.closed = 0;
        self.run_turn()?;
        Ok(self.counting.closed)
    }
}
