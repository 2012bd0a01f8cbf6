//! Loops that share a listening socket.

use std::sync::atomic::{AtomicU32, Ordering};

use super::accepting::{accepted, clients};
use super::*;

/// Two loops on one socket: what one leaves behind, the other gets, though the wake for it went to the first.
#[test]
fn a_loop_at_its_limit_strands_nothing() {
    let (socket, address) = tcp_listener();
    let mut full = Bench::new(1, 64);
    let mut other = Bench::new(1, 64);
    let mut sockets = Vec::new();
    full.accept(0, &socket, 1);
    full.silence();
    other.accept(0, &socket, 100);
    other.silence();
    let _clients = clients(address, 3);
    assert!(!accepted(full.next(1), &mut sockets));
    full.silence();
    assert!(accepted(other.next(2), &mut sockets));
    // The first loop no longer accepts, and no longer takes wakes from the other.
    let _late = clients(address, 1);
    full.silence();
    assert_eq!(full.standing_events(), 0);
    assert!(accepted(other.next(1), &mut sockets));
}

#[test]
fn a_shared_listener_outlives_the_loop_that_closes_it() {
    let (socket, address) = tcp_listener();
    let mut closing = Bench::new(1, 64);
    let mut other = Bench::new(1, 64);
    let duplicate = socket.try_clone().unwrap();
    closing.accept(0, &duplicate, 1);
    closing.silence();
    other.accept(0, &socket, 100);
    closing.cancel(listener(0), Kind::Accept);
    closing.one();
    closing.close(listener(0), duplicate);
    let _clients = clients(address, 2);
    closing.silence();
    assert_eq!(closing.standing_events(), 0);
    let mut sockets = Vec::new();
    assert!(accepted(other.next(2), &mut sockets));
}

/// The kernel offers connections in the order of registration. See the page of `listener.rs`.
#[test]
fn loops_that_sleep_share_the_connections() {
    let (socket, address) = tcp_listener();
    let mut first = Bench::new(1, 64);
    first.accept(0, &socket, 1000);
    let mut sockets = Vec::new();
    first.silence();
    let calls = |bench: &Bench| {
        bench.engine.counters().snapshot().system_calls - bench.engine.counters().snapshot().enters
    };
    let before = calls(&first);
    let mut clients = clients(address, 15);
    assert!(accepted(first.next(15), &mut sockets));
    assert_eq!(calls(&first) - before, 16);
    clients.push(TcpStream::connect(address).unwrap());
    assert!(accepted(first.next(1), &mut sockets));
    assert_eq!(
        calls(&first) - before,
        16 + 2 + 2,
        "registered anew after its share"
    );
    clients.push(TcpStream::connect(address).unwrap());
    assert!(accepted(first.next(1), &mut sockets));
}

/// Loops that sleep, each with a limit of its own, and as many connections as all limits together: none may
/// be left in the queue while a loop that would take it sleeps.
#[test]
fn loops_on_threads_take_every_connection() {
    // Fewer than a backlog, or clients would have to send their SYN again.
    for limits in [[10, 20, 70], [33, 1, 66], [99, 1, 0], [33, 33, 34]].repeat(5) {
        let (socket, address) = tcp_listener();
        let total: u32 = limits.iter().sum();
        let taken = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for limit in limits {
                let (socket, taken) = (&socket, &taken);
                scope.spawn(move || {
                    let mut bench = Bench::new(1, 64);
                    let mut left = limit;
                    let mut sockets = Vec::new();
                    while left > 0 {
                        // In portions, so that the accept ends and starts again while connections arrive.
                        let portion = left.min(7);
                        bench.accept(0, socket, portion);
                        let start = Instant::now();
                        while accepted(bench.turn(), &mut sockets) {
                            assert!(start.elapsed() < PATIENCE, "{left} of {limit} are missing");
                        }
                        left -= portion;
                        taken.fetch_add(portion, Ordering::Relaxed);
                    }
                });
            }
            let clients: Vec<_> = (0..2)
                .map(|_| scope.spawn(move || clients(address, total as usize / 2)))
                .collect();
            let held: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
            drop(held);
        });
        assert_eq!(taken.into_inner(), total);
    }
}
