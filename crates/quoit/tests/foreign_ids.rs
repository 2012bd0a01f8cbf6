//! An id names its loop too: asked for another loop's connection or listener, a loop knows of none.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::os::unix::net::UnixStream;

use quoit::{Address, AttachOptions, ConnectionId, ListenerId, ListenerOptions, Loop, LoopIndex, Token};
use support::{config, engines};

/// A loop with a listener, and a connection that is paused and has bytes queued up to the mark.
fn busy(index: u16, engine: quoit::EngineKind) -> (Loop, ConnectionId, ListenerId, UnixStream) {
    let mut event_loop = Loop::new(LoopIndex::new(index).unwrap(), config(engine)).unwrap();
    let address: Address = "127.0.0.1:0".parse().unwrap();
    let listener = event_loop.listen(&address, &ListenerOptions::default()).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let options = AttachOptions {
        paused: true,
        ..AttachOptions::default()
    };
    let connection = event_loop.attach(near.into(), &options, Token::NONE).unwrap();
    let all = vec![0; event_loop.config().high_water as usize];
    event_loop.send(connection, all.as_slice(), Token::NONE).unwrap();
    (event_loop, connection, listener, far)
}

#[test]
fn another_loops_ids_name_nothing() {
    for engine in engines() {
        let (first, of_first, listens_first, _peer) = busy(0, engine);
        let (second, of_second, listens_second, _peer) = busy(1, engine);
        assert_eq!(
            (of_first.slot(), of_first.generation()),
            (of_second.slot(), of_second.generation())
        );
        let told = |event_loop: &Loop, connection, listener| {
            (
                event_loop.queued(connection) > 0,
                event_loop.is_full(connection),
                event_loop.is_paused(connection),
                event_loop.descriptor(connection).is_some(),
                event_loop.listener_address(listener).is_some(),
            )
        };
        assert_eq!(
            told(&first, of_first, listens_first),
            (true, true, true, true, true)
        );
        let nothing = (false, false, false, false, false);
        assert_eq!(told(&first, of_second, listens_second), nothing, "on {engine}");
        assert_eq!(told(&second, of_first, listens_first), nothing, "on {engine}");
    }
}
