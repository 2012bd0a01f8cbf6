//! Sends of another thread, and the end of their connection. That the socket is open for as long as one is under way is asserted
//! where it is made.

use std::io::IoSlice;

use loom::thread;

use super::{Driver, in_every_order};
use crate::{Command, ConnectionId, DirectSender, Event};

/// A loop with a connection that another thread may send on.
fn lending() -> (Driver, std::os::unix::net::UnixStream, ConnectionId, DirectSender) {
    let mut driver = Driver::with_inbox(1);
    let peer = driver.attach();
    let connection = driver
        .turn()
        .into_iter()
        .find_map(|event| match event {
            Event::Opened { connection, .. } => Some(connection),
            _ => None,
        })
        .unwrap();
    let sender = driver.event_loop.direct_sender(connection).unwrap();
    (driver, peer, connection, sender)
}

/// Sends, if it may, on a thread of its own.
fn send(sender: DirectSender) -> thread::JoinHandle<usize> {
    thread::spawn(move || sender.try_send(&[IoSlice::new(b"x")]))
}

/// The loop is told to end the connection while it sleeps, as a thread sends. It ends, in whatever order they come.
#[test]
fn a_connection_ends_behind_a_send_that_is_under_way() {
    in_every_order(2, || {
        let (mut driver, _peer, connection, sender) = lending();
        let remote = driver.event_loop.remote();
        let sending = send(sender.clone());
        let ending = thread::spawn(move || remote.post(Command::Abort { connection }).unwrap());
        let is_closed = |event: &Event| matches!(event, Event::Closed { .. });
        while !driver.turn().iter().any(is_closed) {}
        assert_eq!(sender.try_send(&[IoSlice::new(b"x")]), 0);
        sending.join().unwrap();
        ending.join().unwrap();
    });
}

/// A loop that goes waits for the send that is under way.
#[test]
fn a_loop_goes_behind_a_send_that_is_under_way() {
    in_every_order(2, || {
        let (mut driver, _peer, _, sender) = lending();
        driver.event_loop.park().unwrap();
        let sending = send(sender);
        drop(driver);
        sending.join().unwrap();
    });
}
