//! Pausing and resuming.

use std::time::Duration;

use quoit::{CloseReason, ConnectionId, Events, Handler, Lease, Loop, Token};

use crate::driver::{drive, drive_with};
use crate::levels::Level;
use crate::sockets::{Client, PATIENCE, pattern};

macro_rules! receiving {
    ($level:ident) => {
        tests! { $level, receiving:
            nothing_comes_while_paused_and_nothing_is_lost
            the_end_is_held_back_while_paused
            what_waits_to_be_reported_is_taken_back
            paused_in_the_middle_of_a_burst_up_to_the_cap
            paused_and_resumed_at_random
            a_handler_sees_nothing_after_its_pause
            a_handler_of_nothing_discards_all
            a_reset_is_told_while_paused
            what_came_before_a_reset_is_not_lost_by_a_pause
        }
    };
}

pub(crate) fn nothing_comes_while_paused_and_nothing_is_lost(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 10_000));
        driver.wait_received(id, 10_000);
        driver.pause(id).unwrap();
        client.send(&pattern(10_000, 50_000));
        driver.until_quiet();
        assert_eq!(driver.seen(id).total, 10_000);
        driver.resume(id).unwrap();
        driver.wait_received(id, 60_000);
        assert!(driver.seen(id).received == pattern(0, 60_000));
    });
}

pub(crate) fn the_end_is_held_back_while_paused(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.pause(id).unwrap();
        client.send(b"last words");
        client.shutdown();
        driver.until_quiet();
        assert!(!driver.seen(id).ended && driver.seen(id).total == 0);
        driver.resume(id).unwrap();
        driver.wait_ended(id);
        assert_eq!(driver.seen(id).received, b"last words");

        // The end alone, with the receive in flight when the pause comes.
        let (client, id) = driver.new_pair();
        driver.until_quiet();
        client.shutdown();
        driver.pause(id).unwrap();
        driver.until_quiet();
        assert!(!driver.seen(id).ended);
        driver.resume(id).unwrap();
        driver.wait_ended(id);
    });
}

pub(crate) fn what_waits_to_be_reported_is_taken_back(level: &Level) {
    drive(level, |driver| {
        driver.set_event_room(1);
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 100_000));
        client.shutdown();
        driver.wait_received(id, 1);
        driver.pause(id).unwrap();
        let total = driver.seen(id).total;
        driver.until_quiet();
        assert_eq!(driver.seen(id).total, total);
        driver.resume(id).unwrap();
        driver.wait_ended(id);
        assert!(driver.seen(id).received == pattern(0, 100_000));
    });
}

/// What is taken back by a pause counts against the lease cap, though no handler holds it: it must be delivered
/// all the same.
pub(crate) fn paused_in_the_middle_of_a_burst_up_to_the_cap(level: &Level) {
    let tune = |config: &mut quoit::Config| {
        config.receive_slot_size = 512;
        config.leases_per_connection = 4;
    };
    drive_with(level, tune, |driver| {
        driver.set_event_room(1);
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 20_000));
        driver.wait_received(id, 1);
        driver.pause(id).unwrap();
        driver.until_quiet();
        driver.resume(id).unwrap();
        driver.wait_received(id, 20_000);
        assert!(driver.seen(id).received == pattern(0, 20_000));
    });
}

pub(crate) fn paused_and_resumed_at_random(level: &Level) {
    drive(level, |driver| {
        driver.set_event_room(3);
        let (mut client, id) = driver.new_pair();
        let writer = driver.beside(move || {
            for piece in 0..400 {
                client.send(&pattern(piece * 700, 700));
            }
            client.shutdown();
            client
        });
        let mut step = 1_u64;
        driver.until("the stream ends", |driver| {
            step = step
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            if step >> 62 == 0 {
                driver.pause(id).unwrap();
                for _ in 0..(step >> 60 & 3) {
                    driver.turn(Duration::ZERO);
                }
            }
            driver.resume(id).unwrap();
            driver.seen(id).ended
        });
        assert!(driver.seen(id).received == pattern(0, 280_000));
        driver.join(writer);
    });
}

pub(crate) fn a_handler_sees_nothing_after_its_pause(level: &Level) {
    #[derive(Default)]
    struct Pausing {
        received: Vec<u8>,
        paused: Option<ConnectionId>,
        ended: bool,
        closed: Option<CloseReason>,
    }

    impl Handler for Pausing {
        fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
            assert!(self.paused.is_none() && !self.ended);
            self.received.extend_from_slice(&data);
            event_loop.pause(connection).unwrap();
            self.paused = Some(connection);
        }

        fn on_end_of_stream(&mut self, event_loop: &mut Loop, connection: ConnectionId) {
            assert!(self.paused.is_none() && !self.ended);
            self.ended = true;
            event_loop.close(connection, None).unwrap();
        }

        fn on_closed(&mut self, _: &mut Loop, _: ConnectionId, _: Token, reason: CloseReason) {
            assert!(self.closed.replace(reason).is_none());
        }

        fn on_turn_end(&mut self, event_loop: &mut Loop) {
            if let Some(connection) = self.paused.take() {
                event_loop.resume(connection).unwrap();
            }
        }
    }

    let config = quoit::Config {
        receive_slot_size: 512,
        leases_per_connection: 8,
        ..level.config()
    };
    let mut event_loop = Loop::new(quoit::LoopIndex::default(), config).unwrap();
    let listener = event_loop
        .listen(&crate::driver::loopback(), &quoit::ListenerOptions::default())
        .unwrap();
    let address = event_loop.listener_address(listener).unwrap();
    let client = std::thread::spawn(move || {
        let mut client = Client::connect(&address);
        client.send(&pattern(0, 40_000));
        client.shutdown();
        client.expect_end();
    });
    let mut handler = Pausing::default();
    let mut events = Events::with_capacity(64);
    let started = std::time::Instant::now();
    while handler.closed.is_none() {
        assert!(started.elapsed() < PATIENCE, "{} bytes", handler.received.len());
        let timeout = Some(Duration::from_millis(100));
        assert!(event_loop.run_turn(&mut handler, &mut events, timeout).unwrap());
    }
    assert!(handler.ended && handler.received == pattern(0, 40_000));
    assert_eq!(handler.closed, Some(CloseReason::PeerClosed));
    client.join().unwrap();
}

/// More than the pool has: what is discarded is not held.
pub(crate) fn a_handler_of_nothing_discards_all(level: &Level) {
    #[derive(Default)]
    struct Nothing {
        closed: Option<CloseReason>,
    }

    impl Handler for Nothing {
        fn on_closed(&mut self, _: &mut Loop, _: ConnectionId, _: Token, reason: CloseReason) {
            self.closed = Some(reason);
        }
    }

    let config = quoit::Config {
        receive_slots: 8,
        buffer_ring: 4,
        ..level.config()
    };
    let pool = u64::from(config.receive_slots * config.receive_slot_size);
    let mut event_loop = Loop::new(quoit::LoopIndex::default(), config).unwrap();
    let listener = event_loop
        .listen(&crate::driver::loopback(), &quoit::ListenerOptions::default())
        .unwrap();
    let address = event_loop.listener_address(listener).unwrap();
    let client = std::thread::spawn(move || {
        let mut client = Client::connect(&address);
        client.send(&vec![1; 4 * pool as usize]);
        client.shutdown();
        client.expect_end();
    });
    let mut handler = Nothing::default();
    let mut events = Events::with_capacity(64);
    let started = std::time::Instant::now();
    while handler.closed.is_none() {
        assert!(started.elapsed() < PATIENCE, "{:?}", event_loop.counters());
        let timeout = Some(Duration::from_millis(100));
        assert!(event_loop.run_turn(&mut handler, &mut events, timeout).unwrap());
    }
    assert_eq!(handler.closed, Some(CloseReason::PeerClosed));
    let counters = event_loop.counters();
    assert_eq!((counters.received_bytes, counters.pool_leased), (4 * pool, 0));
    client.join().unwrap();
}

pub(crate) fn a_reset_is_told_while_paused(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.until_quiet();
        driver.pause(id).unwrap();
        driver.until_quiet();
        client.send(b"unseen");
        client.reset();
        driver.until_quiet();
        assert_eq!(driver.seen(id).total, 0);
        // Whether it is told now or at the next sign of interest, it is told.
        if driver.is_open(id) {
            driver.resume(id).unwrap();
        }
        assert_eq!(driver.wait_closed(id), CloseReason::Reset);
    });
}

/// Paused and resumed before some turns: also when it has ended and nobody has been told. The moment before that, when it is
/// ending and operations are in flight, is rare on a real kernel: the simulator has it.
pub(crate) fn what_came_before_a_reset_is_not_lost_by_a_pause(level: &Level) {
    drive(level, |driver| {
        for (piece, offset) in [1, 5_000, 60_000]
            .into_iter()
            .flat_map(|piece| (0..4).map(move |offset| (piece, offset)))
        {
            let (mut client, id) = driver.new_pair();
            let sent = pattern(0, piece);
            // More than the socket takes, so that something is in flight when it ends.
            driver.send(id, vec![7; 4 << 20], Token(1)).unwrap();
            client.send(&sent);
            driver.wait_received(id, 1);
            driver.set_event_room(1);
            client.reset();
            // Not each time: a receive that is cancelled before each turn may never come to receive.
            let mut turn = offset;
            driver.until("closed", |driver| {
                turn += 1;
                // Refused by one that is ending: what it has is on the way.
                if turn % 4 == 0 && driver.is_open(id) && driver.pause(id).is_ok() {
                    driver.resume(id).unwrap();
                }
                !driver.is_open(id)
            });
            let seen = driver.seen(id);
            assert!(seen.received == sent, "{} of {piece} bytes", seen.total);
            assert_eq!(driver.wait_closed(id), CloseReason::Reset);
            driver.set_event_room(64);
        }
    });
}
