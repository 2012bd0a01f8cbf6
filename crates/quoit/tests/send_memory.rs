//! The memory for copied sends, shared by all connections of a loop, runs out.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::Read;
use std::time::Duration;

use quoit::{Config, ConnectionId, Event, Events, Loop, LoopIndex, Refusal, Token};
use support::{attached, config, engines, guard};

/// Connections that are refused for want of memory are told once when a connection that had it all is gone.
#[test]
fn memory_that_a_closed_connection_held_is_offered_to_others() {
    guard(60);
    for engine in engines() {
        let config = Config {
            send_chunks: 4,
            send_chunk_size: 64,
            ..config(engine)
        };
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let mut connect = || {
            let (id, far) = attached(&mut event_loop);
            far.set_read_timeout(Some(support::PATIENCE)).unwrap();
            (id, far)
        };
        let greedy: Vec<_> = (0..4).map(|_| connect()).collect();
        let (modest, mut reader) = connect();
        let mut events = Events::with_capacity(16);
        assert_eq!(
            event_loop.send(modest, &[1; 257], Token::NONE),
            Err(Refusal::TooLarge),
            "{engine}: more than there is in all"
        );
        // Until the sockets are full, and then all of the memory too: one alone has a share of it.
        for &(greedy, _) in &greedy {
            while event_loop.send(greedy, &[2; 64], Token::NONE).is_ok() {
                event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            }
        }
        let none = Err(Refusal::Full);
        for _ in 0..3 {
            assert_eq!(event_loop.send(modest, b"!", Token::NONE), none, "{engine}");
        }
        drop(events.drain());
        event_loop.abort(greedy[1].0).unwrap();
        let writable = wait_for_writable(&mut event_loop, &mut events, modest);
        assert_eq!(writable, 1, "{engine}: told once, however often it was refused");
        event_loop.send(modest, b"!", Token::NONE).unwrap();
        event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
        reader.read_exact(&mut [0]).unwrap();
    }
}

/// However many take nothing of a large first send, others get a chunk to begin with; and what is larger, its sender may
/// split, or is told when there is room.
#[test]
fn large_first_sends_leave_a_chunk_to_others() {
    const PART: usize = 16 * 1024;
    guard(60);
    for engine in engines() {
        let config = Config {
            send_chunks: 256,
            send_chunk_size: 1024,
            ..config(engine)
        };
        let mut event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let mut events = Events::with_capacity(64);
        let mut greedy: Vec<_> = (0..40).map(|_| attached(&mut event_loop)).collect();
        let mut others: Vec<_> = (0..30).map(|_| attached(&mut event_loop)).collect();
        // Until their sockets are full, and each has what it gets of the memory.
        let mut taken = true;
        while taken {
            taken = false;
            for &(greedy, _) in &greedy {
                taken |= event_loop.send(greedy, &[2; PART], Token::NONE).is_ok();
                taken |= event_loop.send(greedy, &[2; 2000], Token::NONE).is_ok();
            }
            event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            drop(events.drain());
        }
        for (other, reader) in &mut others {
            reader.set_read_timeout(Some(support::PATIENCE)).unwrap();
            assert_eq!(
                event_loop.send(*other, &[3; 2000], Token::NONE),
                Err(Refusal::Full)
            );
            event_loop.send(*other, &[3; 1000], Token::NONE).unwrap();
            let writable = wait_for_writable(&mut event_loop, &mut events, *other);
            assert_eq!(writable, 1, "{engine}: for the refusal");
            reader.read_exact(&mut [0; 1000]).unwrap();
        }
        // Who sends nothing meanwhile is told when there is enough.
        let (patient, _far) = &others[0];
        assert_eq!(
            event_loop.send(*patient, &[4; PART], Token::NONE),
            Err(Refusal::Full)
        );
        for (greedy, _far) in greedy.drain(..) {
            event_loop.abort(greedy).unwrap();
        }
        assert_eq!(
            wait_for_writable(&mut event_loop, &mut events, *patient),
            1,
            "{engine}"
        );
        event_loop.send(*patient, &[4; PART], Token::NONE).unwrap();
        // All of it is for one connection while nobody else has any.
        event_loop.abort(*patient).unwrap();
        while event_loop.counters().send_chunks_used > 0 {
            event_loop
                .turn([], &mut events, Some(Duration::from_millis(10)))
                .unwrap();
        }
        event_loop
            .send(others[1].0, &[5; 256 * 1024], Token::NONE)
            .unwrap();
    }
}

/// Turns until the connection is told that it may send; counts how often, all turns without news included.
fn wait_for_writable(event_loop: &mut Loop, events: &mut Events, wanted: ConnectionId) -> usize {
    let mut writable = 0;
    while writable == 0 {
        event_loop.turn([], events, None).unwrap();
        writable += count(events, wanted);
    }
    event_loop.turn([], events, Some(Duration::ZERO)).unwrap();
    writable + count(events, wanted)
}

fn count(events: &mut Events, wanted: ConnectionId) -> usize {
    events
        .drain()
        .filter(|event| matches!(event, Event::Writable { connection } if *connection == wanted))
        .count()
}
