//! What the counters say of cases that are rare, on both engines alike. That they hold for whatever else a loop does, the
//! conformance suite checks behind each of its cases.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::time::Duration;

use quoit::{
    Accept, AttachOptions, Command, ConnectionId, Event, Events, ListenerOptions, Loop, LoopIndex, Token,
};
use support::{attached, client, config, engines, guard, listening, tcp};

/// One turn, with room for so many events.
fn turn(event_loop: &mut Loop, room: usize) -> Vec<Event> {
    let mut events = Events::with_capacity(room);
    event_loop
        .turn([], &mut events, Some(Duration::from_millis(5)))
        .unwrap();
    events.drain().collect()
}

#[test]
fn an_event_is_left_over_once_however_many_turns_it_waits() {
    guard(60);
    for engine in engines() {
        let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
        let refused = |_| Command::Abort {
            connection: ConnectionId::from_bits(0),
        };
        let mut events = Events::with_capacity(3);
        for (commands, surplus) in [(10, 7), (0, 7), (2, 9), (0, 9), (0, 9), (1, 9)] {
            event_loop
                .turn((0..commands).map(refused), &mut events, Some(Duration::ZERO))
                .unwrap();
            assert!(events.drain().count() <= 3);
            assert_eq!(event_loop.counters().surplus_events, surplus, "{engine}");
        }
    }
}

#[test]
fn a_connection_is_accepted_once_whichever_loop_serves_it() {
    guard(60);
    for engine in engines() {
        let indices = [0, 1].map(|index| LoopIndex::new(index).unwrap());
        let [mut one, mut two] = indices.map(|index| Loop::new(index, config(engine)).unwrap());
        for accept in [Accept::Descriptors, Accept::Spread([two.remote()].into())] {
            let options = ListenerOptions {
                accept,
                ..ListenerOptions::default()
            };
            let before = one.counters().accepted + two.counters().accepted;
            let listener = one.listen(&"127.0.0.1:0".parse().unwrap(), &options).unwrap();
            let _client = client(tcp(&one.listener_address(listener).unwrap()));
            let mut told = 0;
            while told == 0 {
                for event in turn(&mut one, 8) {
                    if let Event::AcceptedDescriptor { descriptor, listener } = event {
                        let options = AttachOptions {
                            accepted_by: Some(listener),
                            ..AttachOptions::default()
                        };
                        two.attach(descriptor, &options, Token::NONE).unwrap();
                    }
                }
                let is_accepted = |event: &Event| matches!(event, Event::Accepted { .. });
                told += turn(&mut two, 8)
                    .iter()
                    .filter(|event| is_accepted(event))
                    .count();
            }
            let after = one.counters().accepted + two.counters().accepted;
            assert_eq!((told, after - before), (1, 1), "{engine}: {options:?}");
        }
    }
}

#[test]
fn of_a_loop_that_has_ended_nothing_goes_on_and_its_connections_are_closed() {
    guard(60);
    for engine in engines() {
        let (mut event_loop, address) = listening(config(engine));
        let _client = client(address);
        let (full, _far) = attached(&mut event_loop);
        // More than the sockets hold.
        event_loop.send(full, vec![1; 8 << 20], Token(1)).unwrap();
        let (copied, _other_far) = attached(&mut event_loop);
        while event_loop.connections() < 3 {
            turn(&mut event_loop, 8);
        }
        event_loop.send(copied, &[1; 5000][..], Token::NONE).unwrap();
        let remote = event_loop.remote();
        let before = event_loop.counters();
        assert!(before.in_flight > 0 && before.queued_bytes > 0 && before.send_chunks_used > 0);
        assert_eq!((before.connections, remote.connections()), (3, 3), "{engine}");
        drop(event_loop);
        let after = remote.counters();
        let left = [
            after.in_flight,
            after.connections,
            u64::from(remote.connections()),
            after.queued_bytes,
            after.send_chunks_used,
            after.pool_leased,
            after.leases_copied_now,
        ];
        assert_eq!(left, [0; 7], "{engine}");
        assert_eq!((after.accepted, after.closed_local), (1, 3), "{engine}");
    }
}
