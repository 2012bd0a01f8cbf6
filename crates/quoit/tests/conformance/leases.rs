//! Lease caps and the pool: who holds much waits, and nobody else loses anything.

use std::time::Duration;

use quoit::{CloseReason, Config, ConnectionId, Token};

use crate::driver::{Driver, OnData, drive_with};
use crate::levels::Level;
use crate::sockets::{Client, pattern};

macro_rules! leases {
    ($level:ident) => {
        tests! { $level, leases:
            a_holder_waits_at_its_cap
            a_message_larger_than_the_cap
            closed_at_the_cap
            a_paused_holder_at_its_cap
            holders_of_the_whole_pool
            no_more_are_accepted_than_can_wait_for_slots
            leases_outlive_their_connection
            a_failed_send_at_the_cap
            a_graceful_close_at_the_cap
            a_graceful_close_with_the_pool_leased_out
        }
    };
}

fn small_slots(config: &mut Config) {
    config.receive_slot_size = 1024;
    config.receive_slots = 64;
    config.buffer_ring = 16;
    config.leases_per_connection = 4;
}

fn holds(driver: &Driver, id: ConnectionId) -> usize {
    driver.held.iter().filter(|(holder, _)| *holder == id).count()
}

pub(crate) fn a_holder_waits_at_its_cap(level: &Level) {
    drive_with(level, small_slots, |driver| {
        driver.on_data = OnData::Hold;
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 60_000));
        client.shutdown();
        driver.until("the cap is reached", |driver| driver.seen(id).pressure == 1);
        driver.until_quiet();
        assert_eq!(holds(driver, id), 4);
        assert_eq!(driver.seen(id).pressure, 1);
        // Another connection goes on.
        let (mut other, other_id) = driver.new_pair();
        other.send(b"hello");
        driver.wait_received(other_id, 5);
        // With every lease returned it goes on, never past its cap.
        driver.until("all is received", |driver| {
            assert!(holds(driver, id) <= 4);
            driver.held.pop_front();
            driver.seen(id).ended
        });
        assert!(driver.seen(id).received == pattern(0, 60_000));
    });
}

/// A handler that needs the whole message copies what it holds, as it is told to.
pub(crate) fn a_message_larger_than_the_cap(level: &Level) {
    drive_with(level, small_slots, |driver| {
        driver.on_data = OnData::Hold;
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(7, 50_000));
        let mut told = 0;
        driver.until("the whole message is there", |driver| {
            if driver.seen(id).pressure > told {
                told = driver.seen(id).pressure;
                driver.held.clear();
            }
            driver.seen(id).total == 50_000
        });
        assert!(told >= 50_000 / (4 * 1024) - 1, "{told}");
        assert!(driver.seen(id).received == pattern(7, 50_000));
    });
}

pub(crate) fn closed_at_the_cap(level: &Level) {
    let tune = |config: &mut Config| {
        small_slots(config);
        config.close_at_lease_limit = true;
    };
    drive_with(level, tune, |driver| {
        driver.on_data = OnData::Hold;
        let (mut client, id) = driver.new_pair();
        // At the cap, and one lease returned and taken again, it stays open.
        client.send(&pattern(0, 4096));
        driver.until("the cap is reached", |driver| driver.seen(id).pressure == 1);
        driver.until_quiet();
        assert!(driver.is_open(id));
        driver.held.pop_front();
        driver.until_quiet();
        client.send(&pattern(4096, 1024));
        driver.until("the cap is reached again", |driver| driver.seen(id).pressure == 2);
        driver.until_quiet();
        assert!(driver.is_open(id));
        // Past the cap it does not.
        client.send(b"more");
        assert_eq!(driver.wait_closed(id), CloseReason::Limit);
        client.expect_reset();
        assert_eq!(
            driver.seen(id).received,
            pattern(0, driver.seen(id).total as usize)
        );
    });
}

pub(crate) fn a_paused_holder_at_its_cap(level: &Level) {
    drive_with(level, small_slots, |driver| {
        driver.on_data = OnData::Hold;
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 30_000));
        driver.until("the cap is reached", |driver| driver.seen(id).pressure == 1);
        driver.pause(id).unwrap();
        driver.held.clear();
        driver.until_quiet();
        assert_eq!(driver.seen(id).total, 4096);
        driver.on_data = OnData::Record;
        driver.resume(id).unwrap();
        driver.wait_received(id, 30_000);
        assert!(driver.seen(id).received == pattern(0, 30_000));
    });
}

/// No memory to copy received bytes to, so that leases stay in their slots.
fn nothing_is_copied(config: &mut Config) {
    config.send_chunks = 1;
    config.send_chunk_size = 64;
}

pub(crate) fn holders_of_the_whole_pool(level: &Level) {
    const SENT: usize = 8192;
    const SLOTS: usize = 8;
    let tune = |config: &mut Config| {
        nothing_is_copied(config);
        config.receive_slot_size = 512;
        config.receive_slots = SLOTS as u32;
        config.buffer_ring = 8;
        config.leases_per_connection = 4;
    };
    drive_with(level, tune, |driver| {
        driver.on_data = OnData::Hold;
        let address = driver.listen();
        let pairs: Vec<_> = (0..SLOTS + 3).map(|_| driver.pair(&address)).collect();
        let (mut clients, ids): (Vec<Client>, Vec<_>) = pairs.into_iter().unzip();
        let exact = level.receives_exactly();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(&pattern(1, SENT));
            driver.until_quiet();
            // The thread that takes submissions (`IORING_SETUP_SQPOLL`) may have been waiting for a processor.
            if number == 0 || exact && number < SLOTS {
                driver.until("it holds what it may", |driver| holds(driver, ids[number]) == 1);
            }
        }
        driver.until("the pool is used up", |driver| driver.pool_pressure > 0);
        let held: Vec<_> = ids.iter().map(|id| holds(driver, *id)).collect();
        // A share of so few slots is one.
        if exact {
            assert_eq!(held, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0]);
        } else {
            // What came past the first one's share is kept, and takes slots.
            assert_eq!(held[0], 1);
            assert!(held.iter().all(|count| *count <= 1));
        }
        // They wait; nothing is tried again and again meanwhile. A kernel that polls may come late to the last receives.
        driver.until("they wait", |driver| {
            let before = driver.event_loop.counters();
            let reported: usize = (0..10).map(|_| driver.turn(Duration::from_millis(2))).sum();
            let after = driver.event_loop.counters();
            reported == 0
                && after.receive_arms == before.receive_arms
                && after.receive_no_buffers == before.receive_no_buffers
                && after.enters - before.enters <= 20
        });
        if exact {
            // The first slot goes to who came first.
            driver.held.pop_front();
            driver.until("somebody is served", |driver| driver.held.len() == SLOTS);
            assert_eq!(holds(driver, ids[SLOTS]), 1);
        }
        // Returned one by one, they do for all.
        driver.until("all is received", |driver| {
            assert!(driver.held.len() <= SLOTS);
            driver.held.pop_front();
            ids.iter().all(|id| driver.seen(*id).total == SENT as u64)
        });
        for id in &ids {
            assert!(driver.is_open(*id));
            assert!(driver.seen(*id).received == pattern(1, SENT));
        }
    });
}

/// While as many wait for a slot as this, others wait in the backlog, where they take up nothing.
pub(crate) fn no_more_are_accepted_than_can_wait_for_slots(level: &Level) {
    const WAITING: usize = 256;
    const MORE: usize = 20;
    let tune = |config: &mut Config| {
        nothing_is_copied(config);
        config.receive_slots = 8;
        config.buffer_ring = 8;
        config.connections = 512;
    };
    drive_with(level, tune, |driver| {
        driver.on_data = OnData::Hold;
        let address = driver.listen();
        let mut clients = Vec::new();
        while driver.pool_pressure == 0 {
            let mut client = Client::connect(&address);
            client.send(b"held");
            clients.push(client);
            driver.until("it is held, or finds no slot", |driver| {
                driver.held.len() == clients.len() || driver.pool_pressure > 0
            });
        }
        let holding = clients.len();
        clients.extend((0..WAITING).map(|_| Client::connect(&address)));
        driver.until("they are accepted", |driver| {
            driver.accepted.len() == holding + WAITING
        });
        driver.until_quiet();
        clients.extend((0..MORE).map(|_| Client::connect(&address)));
        driver.until_quiet();
        assert_eq!(driver.accepted.len(), holding + WAITING);
        assert_eq!(driver.event_loop.counters().accept_paused_resources, 1);
        driver.held.clear();
        driver.on_data = OnData::Record;
        driver.until("all are accepted", |driver| {
            driver.accepted.len() == clients.len()
        });
        for client in clients.iter_mut().skip(holding) {
            client.send(b"served");
        }
        driver.until("all are served", |driver| {
            let accepted: Vec<_> = driver.accepted.iter().skip(holding).copied().collect();
            accepted.iter().all(|id| driver.seen(*id).received == b"served")
        });
    });
}

pub(crate) fn leases_outlive_their_connection(level: &Level) {
    drive_with(level, small_slots, |driver| {
        driver.on_data = OnData::Hold;
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 30_000));
        driver.until("the cap is reached", |driver| driver.seen(id).pressure == 1);
        driver.abort(id).unwrap();
        driver.wait_closed(id);
        let bytes: Vec<u8> = driver.held.iter().flat_map(|(_, lease)| lease.to_vec()).collect();
        assert!(bytes == pattern(0, 4096));
        // The slot's next connection has its own count.
        let (mut next, next_id) = driver.new_pair();
        assert_eq!(next_id.slot(), id.slot());
        driver.held.clear();
        next.send(&pattern(0, 30_000));
        driver.until("the cap is reached", |driver| driver.seen(next_id).pressure == 1);
        assert_eq!(holds(driver, next_id), 4);
    });
}

/// What the peer still sends is dropped, whether leases are out or not.
pub(crate) fn a_graceful_close_at_the_cap(level: &Level) {
    drive_with(level, small_slots, |driver| {
        driver.on_data = OnData::Hold;
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 30_000));
        driver.until("the cap is reached", |driver| driver.seen(id).pressure == 1);
        driver.close(id, None).unwrap();
        client.shutdown();
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        client.expect_end();
    });
}

/// The leases of one do not keep another from draining.
pub(crate) fn a_graceful_close_with_the_pool_leased_out(level: &Level) {
    let tune = |config: &mut Config| {
        small_slots(config);
        nothing_is_copied(config);
        // Fewer than the buffer ring has room for.
        config.receive_slots = 4;
    };
    drive_with(level, tune, |driver| {
        driver.on_data = OnData::Hold;
        let address = driver.listen();
        let mut holders = Vec::new();
        for _ in 0..4 {
            let (mut holder, holder_id) = driver.pair(&address);
            holder.send(&pattern(0, 1024));
            driver.until("it holds a slot", |driver| holds(driver, holder_id) == 1);
            holders.push(holder);
        }
        let (mut client, id) = driver.pair(&address);
        let (mut waiting, waiting_id) = driver.pair(&address);
        client.send(&pattern(0, 30_000));
        waiting.send(b"waits");
        driver.until_quiet();
        assert_eq!(driver.seen(id).total, 0);
        driver.close(id, None).unwrap();
        client.shutdown();
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        client.expect_end();
        // Who came behind it in the queue for slots is served all the same.
        driver.held.clear();
        driver.wait_received(waiting_id, 5);
    });
}

/// What the peer sent before it went is delivered although sending has failed meanwhile.
pub(crate) fn a_failed_send_at_the_cap(level: &Level) {
    drive_with(level, small_slots, |driver| {
        driver.on_data = OnData::Hold;
        let (mut client, id) = driver.new_pair();
        client.send(&pattern(0, 30_000));
        driver.until("the cap is reached", |driver| driver.seen(id).pressure == 1);
        driver.until_quiet();
        client.reset();
        driver.until("sending fails", |driver| {
            driver.send(id, b"x", Token::NONE).is_err()
        });
        driver.until_quiet();
        assert!(driver.is_open(id));
        driver.until("all is received", |driver| {
            driver.held.clear();
            driver.seen(id).total == 30_000
        });
        assert_eq!(driver.wait_closed(id), CloseReason::Reset);
        assert!(driver.seen(id).received == pattern(0, 30_000));
    });
}
