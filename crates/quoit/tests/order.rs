//! Pausing and resuming a connection in one batch of events, from calls about another one.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use quoit::{Config, ConnectionId, EngineKind, Handler, Lease, ListenerId, Loop, Token};
use quoit::{Delivery, Event, Events, LoopIndex, Refusal};
use support::{attached, client, config, engines, guard, listening};

/// Passes the first connection's bytes on to the second, one piece at a time: each piece pauses the first, each
/// of the second's bytes resumes it. The end passes too.
#[derive(Default)]
struct StepByStep {
    connections: Vec<ConnectionId>,
}

impl Handler for StepByStep {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, _: ListenerId) {
        self.connections.push(connection);
        // What comes on the first may come before the second is accepted.
        match self.connections[..] {
            [first] => event_loop.pause(first).unwrap(),
            _ => event_loop.resume(self.connections[0]).unwrap(),
        }
    }

    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        if connection == self.connections[0] {
            event_loop
                .send(self.connections[1], &data[..], Token::NONE)
                .unwrap();
            event_loop.pause(connection).unwrap();
        } else {
            // It may have ended.
            let _ = event_loop.resume(self.connections[0]);
        }
    }

    fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
        if connection == self.connections[0] {
            event_loop.shutdown(self.connections[1]).unwrap();
        }
        // Where both directions have ended, it is closing by itself.
        let _ = event_loop.close(connection, None);
    }
}

#[test]
fn what_is_held_back_in_a_batch_comes_before_what_follows_it() {
    const NUMBERS: u32 = 20_000;
    guard(120);
    for engine in engines() {
        let (mut event_loop, address) = listening(Config {
            receive_slot_size: 64,
            ..config(engine)
        });
        let remote = event_loop.remote();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut source = client(address);
                let mut clock = client(address);
                let mut sink = clock.try_clone().unwrap();
                let reader = thread::spawn(move || {
                    let mut received = Vec::new();
                    sink.read_to_end(&mut received).unwrap();
                    received
                });
                for number in 0..NUMBERS {
                    source.write_all(&number.to_be_bytes()).unwrap();
                    clock.write_all(b".").unwrap();
                }
                source.shutdown(std::net::Shutdown::Write).unwrap();
                while !reader.is_finished() {
                    // Refused once the other side has closed; then the reader has ended too.
                    let _ = clock.write_all(b".");
                }
                let received = reader.join().unwrap();
                let expected: Vec<_> = (0..NUMBERS).flat_map(u32::to_be_bytes).collect();
                let differs = received
                    .iter()
                    .zip(&expected)
                    .position(|(one, other)| one != other);
                assert_eq!(differs, None, "{engine}: out of order");
                assert_eq!(received.len(), expected.len(), "{engine}: cut short");
                let within = support::PATIENCE;
                remote.post(quoit::Command::Drain { within }).unwrap();
            });
            event_loop.run(&mut StepByStep::default()).unwrap();
        });
    }
}

/// A loop with one connection, and its far end.
fn with_one(engine: EngineKind) -> (Loop, ConnectionId, UnixStream) {
    let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
    let (connection, far) = attached(&mut event_loop);
    (event_loop, connection, far)
}

/// An end that was reported, held back by a pause and let go again by a resume is reported once more, and the connection
/// lives until its handler knows.
#[test]
fn an_end_that_was_held_back_is_reported_while_its_connection_lives() {
    guard(120);
    for engine in engines() {
        let (mut event_loop, connection, far) = with_one(engine);
        event_loop.shutdown(connection).unwrap();
        far.shutdown(std::net::Shutdown::Write).unwrap();
        let mut events = Events::with_capacity(8);
        let mut next = |event_loop: &mut Loop| {
            let mut told: Vec<Event> = Vec::new();
            while told.is_empty() {
                event_loop.turn([], &mut events, None).unwrap();
                let opened = |event: &Event| matches!(event, Event::Opened { .. });
                told.extend(events.drain().filter(|event| !opened(event)));
            }
            told
        };
        let mut told = next(&mut event_loop);
        let [end @ Event::EndOfStream { .. }] = &mut told[..] else {
            panic!("{engine}: {told:?}");
        };
        let end = std::mem::replace(end, Event::Woken);
        let mut delivery = Delivery::default();
        event_loop.pause(connection).unwrap();
        assert!(
            delivery.admit(&mut event_loop, end).is_none(),
            "{engine}: it is paused"
        );
        delivery.end(&mut event_loop);
        event_loop.resume(connection).unwrap();
        let told = next(&mut event_loop);
        assert!(
            matches!(&told[..], [Event::EndOfStream { .. }]),
            "{engine}: {told:?}"
        );
        assert!(
            event_loop.pause(connection).is_ok(),
            "{engine}: it is reported of one that is gone"
        );
        event_loop.resume(connection).unwrap();
        let told = next(&mut event_loop);
        assert!(matches!(&told[..], [Event::Closed { .. }]), "{engine}: {told:?}");
    }
}

/// A graceful close has a deadline of its own; the handler's, by default an abort, does not cut it short.
#[test]
fn a_deadline_ends_with_a_graceful_close() {
    guard(120);
    for engine in engines() {
        let (mut event_loop, connection, far) = with_one(engine);
        event_loop.set_deadline(connection, Some(Duration::ZERO)).unwrap();
        event_loop.close(connection, Some(support::PATIENCE)).unwrap();
        assert_eq!(event_loop.set_deadline(connection, None), Err(Refusal::Closing));
        event_loop
            .set_named_timer(Duration::from_millis(5), Token(1))
            .unwrap();
        let mut events = Events::with_capacity(8);
        let mut told = Vec::new();
        while !told.iter().any(|event| matches!(event, Event::Timer { .. })) {
            event_loop.turn([], &mut events, None).unwrap();
            told.extend(events.drain());
        }
        assert!(
            matches!(told[..], [Event::Opened { .. }, Event::Timer { .. }]),
            "{engine}: {told:?}"
        );
        drop(far);
    }
}

/// What was queued before many connections are paused, resumed and aborted is looked at a few times, and not once for each of them.
#[test]
fn many_pauses_and_closes_in_one_turn_look_at_each_event_a_few_times() {
    const MANY: u32 = 400;
    guard(120);
    for engine in engines() {
        let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
        let ends: Vec<_> = (0..MANY).map(|_| attached(&mut event_loop)).collect();
        for (_, far) in &ends {
            (&*far).write_all(b"x").unwrap();
        }
        // One event a turn, so that all data is queued when the last connection is reported open.
        let mut events = Events::with_capacity(1);
        let mut next = |event_loop: &mut Loop| loop {
            event_loop.turn([], &mut events, None).unwrap();
            if let Some(event) = events.drain().next() {
                return event;
            }
        };
        for _ in 0..MANY {
            let event = next(&mut event_loop);
            assert!(matches!(event, Event::Opened { .. }), "{engine}: {event:?}");
        }
        let before = event_loop.entries_looked_at();
        for (connection, _) in &ends {
            event_loop.pause(*connection).unwrap();
        }
        event_loop.set_named_timer(Duration::ZERO, Token(1)).unwrap();
        let event = next(&mut event_loop);
        assert!(matches!(event, Event::Timer { .. }), "{engine}: {event:?}");
        for (connection, _) in &ends {
            event_loop.resume(*connection).unwrap();
        }
        for _ in 0..MANY / 2 {
            let event = next(&mut event_loop);
            assert!(matches!(event, Event::Data { .. }), "{engine}: {event:?}");
        }
        for (connection, _) in &ends {
            event_loop.abort(*connection).unwrap();
        }
        for _ in 0..MANY {
            let event = next(&mut event_loop);
            assert!(matches!(event, Event::Closed { .. }), "{engine}: {event:?}");
        }
        let looks = event_loop.entries_looked_at() - before;
        assert!(
            looks > 0 && looks <= u64::from(4 * MANY),
            "{engine}: {looks} looks"
        );
    }
}

/// A deadline that its handler moves when it hears of the peer in the same turn is not told to it any more.
#[test]
fn a_deadline_in_hand_is_dropped_once_it_is_moved() {
    guard(120);
    for engine in engines() {
        let (mut event_loop, connection, far) = with_one(engine);
        let mut events = Events::with_capacity(8);
        let mut comes = |event_loop: &mut Loop| {
            event_loop.set_deadline(connection, Some(Duration::ZERO)).unwrap();
            loop {
                event_loop.turn([], &mut events, None).unwrap();
                let is_deadline = |event: &Event| matches!(event, Event::Deadline { .. });
                if let Some(event) = events.drain().find(is_deadline) {
                    return event;
                }
            }
        };
        for moved in [Some(support::PATIENCE), None] {
            let event = comes(&mut event_loop);
            event_loop.set_deadline(connection, moved).unwrap();
            let admitted = Delivery::default().admit(&mut event_loop, event);
            assert!(admitted.is_none(), "{engine}: {moved:?}: {admitted:?}");
        }
        let event = comes(&mut event_loop);
        let admitted = Delivery::default().admit(&mut event_loop, event);
        assert!(admitted.is_some(), "{engine}: it has come");
        drop(far);
    }
}
