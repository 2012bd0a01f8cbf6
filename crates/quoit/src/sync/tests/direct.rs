//! Sends of another thread, and the end of their connection. That the socket is open for as long as one is under way is asserted
//! where it is made.

use std::io::IoSlice;
use std::os::fd::RawFd;
use std::sync::Arc;

use loom::thread;

use super::super::{AtomicBool, Ordering};
use super::{Driver, in_every_order};
use crate::direct::LentSocket;
use crate::errno::Errno;
use crate::remote::Inbox;
use crate::{Command, ConnectionId, DirectSender, Event, LoopIndex};

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

loom::lazy_static! {
    /// The kernel has an error of the connection for whoever calls first.
    static ref HAS_ERROR: AtomicBool = AtomicBool::new(true);
}

/// A send on a connection that the peer has reset.
fn send_into_reset(_: RawFd, _: &libc::msghdr) -> Result<usize, Errno> {
    Err(if HAS_ERROR.swap(false, Ordering::SeqCst) {
        Errno::ECONNRESET
    } else {
        Errno::EPIPE
    })
}

/// The kernel tells a reset once. The loop learns of it, be it by its receive or because that finds an end where a thread was told.
#[test]
fn a_reset_is_found_whoever_is_told() {
    in_every_order(2, || {
        let inbox = Arc::new(Inbox::new(LoopIndex::default(), 1, 1).unwrap());
        assert!(inbox.prepare_sleep());
        let socket = Arc::new(LentSocket::new(inbox, -1, send_into_reset, None));
        socket.set_idle(true);
        let sending = send(DirectSender::new(Arc::clone(&socket)));
        let is_received = HAS_ERROR.swap(false, Ordering::SeqCst);
        assert!(is_received || socket.take_failure() == Some(Errno::ECONNRESET));
        assert_eq!(sending.join().unwrap(), 0);
    });
}

fn send_out_of_turn(_: RawFd, _: &libc::msghdr) -> Result<usize, Errno> {
    panic!("bytes overtake those that the loop was given before it slept again")
}

/// The loop is given bytes and sleeps before the kernel has taken them. Whoever finds it asleep finds as well that not all has left,
/// although it has seen nothing else of the turn between the two sleeps.
#[test]
fn what_the_loop_was_given_is_not_overtaken_when_it_sleeps_again() {
    in_every_order(3, || {
        let inbox = Arc::new(Inbox::new(LoopIndex::default(), 1, 1).unwrap());
        assert!(inbox.prepare_sleep());
        let socket = Arc::new(LentSocket::new(Arc::clone(&inbox), -1, send_out_of_turn, None));
        let sender = DirectSender::new(Arc::clone(&socket));
        inbox.wake();
        assert!(inbox.end_sleep());
        socket.set_idle(true);
        let sending = thread::spawn(move || sender.try_send(&[IoSlice::new(b"x")]));
        socket.set_idle(false);
        assert!(inbox.prepare_sleep());
        assert_eq!(sending.join().unwrap(), 0);
    });
}
