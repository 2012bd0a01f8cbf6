//! How connections end.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command as Process, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quoit::{CloseReason, Command, Config, ConnectionId, Errno, Payload, Refusal, Token};

use crate::driver::{Driver, OnData, drive, drive_with};
use crate::levels::Level;
use crate::sockets::{Client, pattern};

macro_rules! ending {
    ($level:ident) => {
        tests! { $level, ending:
            half_close_by_the_peer
            half_close_by_this_end
            half_close_by_both_at_once
            reset_by_the_peer
            what_came_before_a_failed_send_is_delivered
            a_paused_peer_that_takes_no_more_is_not_forgotten
            abort_is_seen_as_a_reset
            abort_with_data_queued_and_received
            close_and_abort_end_what_is_unreported
            close_sends_what_is_queued
            close_and_abort_end_deliveries
            close_after_the_peers_end
            a_graceful_close_has_a_deadline
            a_slow_reader_gets_all
            what_the_kernel_has_is_left_to_it
            who_takes_nothing_is_reset
            a_drain_leaves_to_the_kernel_what_it_has
            a_killed_peer
            stale_ids_are_refused
            nothing_is_sent_after_the_end
            send_or_abort_aborts_for_want_of_room
            send_or_abort_leaves_what_is_ending
            drain_under_load
            drain_aborts_at_its_deadline
            a_listener_made_during_a_drain_ends_with_it
        }
    };
}

pub(crate) fn half_close_by_the_peer(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        client.send(b"question");
        client.shutdown();
        driver.wait_ended(id);
        assert_eq!(driver.seen(id).received, b"question");
        driver.send(id, b"answer", Token::NONE).unwrap();
        driver.wait_flushed(id);
        assert_eq!(client.receive(6), b"answer");
        driver.shutdown(id).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::PeerClosed);
        client.expect_end();
    });
}

pub(crate) fn half_close_by_this_end(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.send(id, b"all", Token::NONE).unwrap();
        driver.shutdown(id).unwrap();
        driver.wait_flushed(id);
        driver.until_quiet();
        assert_eq!(client.receive(3), b"all");
        client.expect_end();
        client.send(&pattern(0, 5000));
        driver.wait_received(id, 5000);
        assert_eq!(driver.seen(id).received, pattern(0, 5000));
        assert!(!driver.seen(id).ended);
        drop(client);
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        assert!(driver.seen(id).ended);
    });
}

pub(crate) fn half_close_by_both_at_once(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.shutdown(id).unwrap();
        client.shutdown();
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        client.expect_end();
        assert!(driver.seen(id).ended);
    });
}

pub(crate) fn reset_by_the_peer(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        client.send(b"some");
        driver.wait_received(id, 4);
        client.reset();
        assert_eq!(driver.wait_closed(id), CloseReason::Reset);

        // With a send under way.
        let (client, id) = driver.new_pair();
        driver.send(id, Bytes::from(vec![1; 8 << 20]), Token(1)).unwrap();
        driver.until_quiet();
        assert!(driver.event_loop.queued(id) > 0, "the peer does not read");
        client.reset();
        assert_eq!(driver.wait_closed(id), CloseReason::Reset);
        assert!(driver.seen(id).sent.is_empty());
    });
}

/// Whatever was paused when it came, and however long it stays so: as the kernel keeps it for who does not read.
pub(crate) fn what_came_before_a_failed_send_is_delivered(level: &Level) {
    let at_once = |config: &mut Config| config.close_deadline = Duration::from_millis(1);
    drive_with(level, at_once, |driver| {
        let (mut client, id) = driver.new_pair();
        client.send(b"some");
        driver.wait_received(id, 4);
        driver.pause(id).unwrap();
        driver.until_quiet();
        client.send(&pattern(4, 40_000));
        client.reset();
        let mut refused = None;
        driver.until("sending fails", |driver| {
            refused = driver.send(id, b"x", Token::NONE).err();
            refused.is_some()
        });
        assert_eq!(refused, Some(Refusal::Error(Errno::ECONNRESET)));
        driver.until("that is told", |driver| driver.seen(id).send_failed.is_some());
        assert_eq!(driver.seen(id).send_failed, Some(Errno::ECONNRESET));
        // It waits for its handler, however often the time of a graceful close is over.
        driver.set_timer(1, Duration::from_millis(20));
        driver.until("some time is over", |driver| !driver.timers.is_empty());
        assert!(driver.is_open(id));
        driver.resume(id).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Reset);
        assert!(driver.seen(id).received[4..] == pattern(4, 40_000));
    });
}

/// With nothing left to deliver its end is told at once, and nobody has to resume it for that.
pub(crate) fn a_paused_peer_that_takes_no_more_is_not_forgotten(level: &Level) {
    drive(level, |driver| {
        let (client, id) = driver.new_pair();
        driver.pause(id).unwrap();
        driver.until_quiet();
        client.reset();
        driver.until("it is closed", |driver| {
            driver.send(id, b"x", Token::NONE).is_err() && !driver.is_open(id)
        });
        assert_eq!(driver.wait_closed(id), CloseReason::Reset);
        assert_eq!(driver.seen(id).send_failed, None);
    });
}

pub(crate) fn abort_is_seen_as_a_reset(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.until_quiet();
        driver.abort(id).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        client.expect_reset();
    });
}

pub(crate) fn abort_with_data_queued_and_received(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let queued = Bytes::from(vec![1; 8 << 20]);
        driver.send(id, queued.clone(), Token(1)).unwrap();
        client.send(b"unread");
        driver.until_quiet();
        driver.abort(id).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        client.expect_reset();
        assert!(queued.is_unique(), "after the close all lent memory is free");
    });
}

/// What has happened before the end and had no room in a turn yet is not reported after it.
pub(crate) fn close_and_abort_end_what_is_unreported(level: &Level) {
    for abort in [true, false] {
        drive(level, |driver| {
            let (client, id) = driver.new_pair();
            driver.deadline_unreported(id);
            if abort {
                driver.abort(id).unwrap();
            } else {
                driver.close(id, None).unwrap();
                drop(client);
            }
            assert_eq!(driver.wait_closed(id), CloseReason::Local);
            assert_eq!(driver.seen(id).deadlines, 0);
        });
    }
}

pub(crate) fn close_sends_what_is_queued(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        let expected = pattern(3, 3 << 20);
        driver.send(id, &pattern(3, 1000)[..], Token::NONE).unwrap();
        let lent = Bytes::from(expected[1000..].to_vec());
        driver.send(id, lent, Token(9)).unwrap();
        driver.close(id, None).unwrap();
        let client = driver.beside(move || client.receive_rest());
        let (bytes, result) = driver.join(client);
        result.unwrap();
        assert!(bytes == expected, "{} bytes", bytes.len());
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        assert_eq!(driver.seen(id).sent, [Token(9)]);
    });
}

/// With room for one event a turn much is waiting to be reported when the end is asked for; the order of events shows
/// that none of it is.
pub(crate) fn close_and_abort_end_deliveries(level: &Level) {
    for abort in [true, false] {
        drive(level, |driver| {
            let (mut client, id) = driver.new_pair();
            driver.set_event_room(1);
            client.send(&pattern(0, 100_000));
            client.shutdown();
            driver.wait_received(id, 1);
            if abort {
                driver.abort(id).unwrap();
            } else {
                driver.close(id, None).unwrap();
            }
            // The peer's end may have been taken in already.
            let reason = driver.wait_closed(id);
            assert!(
                matches!(reason, CloseReason::Local | CloseReason::PeerClosed),
                "{reason}"
            );
            if abort {
                client.expect_reset();
            } else {
                client.expect_end();
            }
        });
    }
}

pub(crate) fn close_after_the_peers_end(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        client.shutdown();
        driver.wait_ended(id);
        driver.send(id, b"late", Token::NONE).unwrap();
        driver.close(id, None).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::PeerClosed);
        assert_eq!(client.receive(4), b"late");
        client.expect_end();
    });
}

pub(crate) fn a_graceful_close_has_a_deadline(level: &Level) {
    drive(level, |driver| {
        // The peer does not read, so the close never gets to the end of the stream.
        let (mut client, id) = driver.new_pair();
        driver.send(id, Bytes::from(vec![1; 8 << 20]), Token(1)).unwrap();
        close_by_deadline(driver, id, Duration::from_millis(30));
        client.expect_reset();

        // The peer does not end its direction. If the machine was so busy that the time was over before the turn that
        // ends ours, nothing is learnt but that; with more of it that cannot be.
        let times = [30, 500, 10_000].map(Duration::from_millis);
        let ended = times.into_iter().any(|deadline| {
            let (mut client, id) = driver.new_pair();
            close_by_deadline(driver, id, deadline);
            client.wait_reset();
            let (bytes, end) = client.receive_rest();
            assert!(bytes.is_empty());
            assert!(client.write(b"x").is_err(), "the peer's socket has been reset");
            end.is_ok()
        });
        assert!(ended, "the end of the stream comes before the reset");
    });
}

/// Closes a connection whose peer keeps it open.
fn close_by_deadline(driver: &mut Driver, id: ConnectionId, deadline: Duration) {
    let begun = Instant::now();
    driver.close(id, Some(deadline)).unwrap();
    assert_eq!(driver.wait_closed(id), CloseReason::Timeout);
    assert!(begun.elapsed() >= deadline, "never early");
}

/// A process that holds the client's socket is killed: with received bytes unread, which makes a reset, and
/// without, which makes an end of stream.
const SHORT: Duration = Duration::from_millis(10);

fn looks_often(config: &mut Config) {
    config.close_deadline = SHORT;
}

/// Lets the loop look once at what it closes.
fn wait_for_a_look(driver: &mut Driver) {
    let before = driver.event_loop.counters().timers_fired;
    driver.until("it looks", |driver| {
        driver.event_loop.counters().timers_fired > before
    });
}

/// However often the loop looks, as long as something is taken between two looks.
pub(crate) fn a_slow_reader_gets_all(level: &Level) {
    const BYTES: usize = 8 << 20;
    if level.config().kernel_poll.is_some() {
        // The kernel's thread sends when it comes to it, which may be after two looks.
        return;
    }
    drive_with(level, looks_often, |driver| {
        let (mut client, id) = driver.new_pair();
        let bytes = Bytes::from(pattern(1, BYTES));
        driver.send(id, bytes, Token::NONE).unwrap();
        driver.close(id, None).unwrap();
        let mut received = Vec::new();
        let mut looks = 0;
        while received.len() < BYTES / 2 {
            wait_for_a_look(driver);
            looks += 1;
            let before = received.len();
            client.receive_queued(&mut received);
            assert!(received.len() > before, "cut after {looks} looks");
        }
        driver.until("all is received", |driver| {
            driver.turn(Duration::ZERO);
            client.receive_queued(&mut received);
            received.len() == BYTES
        });
        assert!(received == pattern(1, BYTES));
        client.expect_end();
        // By either end: the loop may have left the rest to the kernel.
        client.shutdown();
        driver.wait_closed(id);
    });
}

/// A peer that reads late, and never ends its direction, costs the process nothing once the kernel has all.
pub(crate) fn what_the_kernel_has_is_left_to_it(level: &Level) {
    drive_with(level, looks_often, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.send(id, &pattern(1, 1000)[..], Token::NONE).unwrap();
        driver.wait_flushed(id);
        driver.close(id, None).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Timeout);
        driver.until_quiet();
        assert_eq!(client.receive(1000), pattern(1, 1000));
        client.expect_end();
    });
}

pub(crate) fn who_takes_nothing_is_reset(level: &Level) {
    drive_with(level, looks_often, |driver| {
        let (mut client, id) = driver.new_pair();
        driver
            .send(id, Bytes::from(vec![1; 64 << 20]), Token::NONE)
            .unwrap();
        driver.close(id, None).unwrap();
        assert_eq!(driver.wait_closed(id), CloseReason::Timeout);
        client.expect_reset();
    });
}

pub(crate) fn a_drain_leaves_to_the_kernel_what_it_has(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.send(id, &pattern(1, 1000)[..], Token::NONE).unwrap();
        driver.close(id, None).unwrap();
        driver.wait_flushed(id);
        driver.turn_with([Command::Drain { within: SHORT }], Duration::ZERO);
        driver.until("it has drained", |driver| driver.drained);
        assert_eq!(driver.seen(id).closed, Some(CloseReason::Local));
        assert_eq!(client.receive(1000), pattern(1, 1000));
        client.expect_end();
    });
}

pub(crate) fn a_killed_peer(level: &Level) {
    drive(level, |driver| {
        for unread in [true, false] {
            let (client, id) = driver.new_pair();
            let mut holder = Process::new("sleep")
                .arg("600")
                .stdin(Stdio::from(OwnedFd::from(client)))
                .spawn()
                .unwrap();
            if unread {
                driver.send(id, b"unread", Token::NONE).unwrap();
                driver.wait_flushed(id);
            }
            holder.kill().unwrap();
            holder.wait().unwrap();
            if unread {
                assert_eq!(driver.wait_closed(id), CloseReason::Reset);
            } else {
                driver.wait_ended(id);
            }
        }
    });
}

fn refusals(driver: &mut Driver, id: ConnectionId) -> Vec<Refusal> {
    [
        driver.event_loop.send(id, b"x", Token(1)),
        driver.event_loop.send(id, Bytes::from_static(b"x"), Token(1)),
        driver.event_loop.shutdown(id),
        driver.event_loop.close(id, None),
        driver.event_loop.abort(id),
        driver.event_loop.pause(id),
        driver.event_loop.resume(id),
        driver.event_loop.set_deadline(id, Some(Duration::ZERO)),
    ]
    .into_iter()
    .filter_map(Result::err)
    .collect()
}

pub(crate) fn stale_ids_are_refused(level: &Level) {
    drive(level, |driver| {
        let address = driver.listen();
        let (client, id) = driver.pair(&address);
        drop(client);
        driver.wait_ended(id);
        driver.shutdown(id).unwrap();
        driver.wait_closed(id);
        // Its slot is another's now.
        let (mut client, other) = driver.pair(&address);
        assert_eq!(id.slot(), other.slot());
        assert_eq!(refusals(driver, id), [Refusal::Stale; 8]);
        assert!(driver.event_loop.descriptor(id).is_none());
        assert_eq!(driver.event_loop.queued(id), 0);

        let foreign = ConnectionId::from_bits(other.to_bits() | 1 << 52);
        assert_ne!(foreign.loop_index(), other.loop_index());
        assert_eq!(refusals(driver, foreign), [Refusal::Stale; 8]);
        let nothing = ConnectionId::from_bits(0);
        assert_eq!(refusals(driver, nothing), [Refusal::Stale; 8]);

        let send = |token| Command::Send {
            connection: id,
            payload: Payload::Bytes(Bytes::from_static(b"x")),
            token: Token(token),
        };
        driver.turn_with(
            [send(4), Command::Abort { connection: id }, send(5)],
            Duration::ZERO,
        );
        let stale = |token| (Token(token), Some(id), Refusal::Stale);
        assert_eq!(driver.refusals, [stale(4), stale(0), stale(5)]);

        driver.send(other, b"whole", Token::NONE).unwrap();
        driver.wait_flushed(other);
        assert_eq!(client.receive(5), b"whole");

        let (listener, _) = driver.listen_as(quoit::Accept::Connections);
        driver.event_loop.stop_listening(listener).unwrap();
        driver.until("it is closed", |driver| driver.listeners_closed.len() == 1);
        assert_eq!(driver.event_loop.stop_listening(listener), Err(Refusal::Stale));
        assert!(driver.event_loop.listener_address(listener).is_none());
    });
}

pub(crate) fn nothing_is_sent_after_the_end(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.shutdown(id).unwrap();
        assert_eq!(driver.send(id, b"x", Token::NONE), Err(Refusal::Closing));
        assert_eq!(driver.shutdown(id), Err(Refusal::Closing));
        driver.until_quiet();
        assert_eq!(driver.send(id, b"x", Token::NONE), Err(Refusal::Closing));
        client.expect_end();

        let (mut client, id) = driver.new_pair();
        driver.close(id, None).unwrap();
        assert_eq!(driver.send(id, b"x", Token::NONE), Err(Refusal::Closing));
        assert_eq!(
            driver.send(id, Bytes::from_static(b"x"), Token(1)),
            Err(Refusal::Closing)
        );
        assert_eq!(driver.close(id, None), Err(Refusal::Closing));
        driver.until_quiet();
        client.expect_end();
    });
}

pub(crate) fn send_or_abort_aborts_for_want_of_room(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        assert!(driver.event_loop.send_or_abort(id, b"taken", Token::NONE));
        driver.wait_flushed(id);
        assert_eq!(client.receive(5), b"taken");
        let larger_than_the_mark = vec![1; driver.event_loop.config().high_water as usize + 1];
        driver.send_or_abort_refused(id, &larger_than_the_mark[..]);
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        client.expect_reset();
        assert!(!driver.event_loop.send_or_abort(id, b"stale", Token::NONE));

        let (mut client, id) = driver.new_pair();
        let queued = Bytes::from(vec![2; 8 << 20]);
        driver.send(id, queued.clone(), Token(1)).unwrap();
        driver.until_quiet();
        assert!(driver.event_loop.is_full(id), "the peer does not read");
        let refused = Bytes::from(vec![3; 5000]);
        driver.send_or_abort_refused(id, refused.clone());
        assert!(refused.is_unique(), "what is refused is not kept");
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
        client.expect_reset();
        assert!(driver.seen(id).sent.is_empty());
        assert!(queued.is_unique());
    });
}

pub(crate) fn send_or_abort_leaves_what_is_ending(level: &Level) {
    drive(level, |driver| {
        let last = pattern(0, 3 << 20);
        let (mut client, id) = driver.new_pair();
        driver.send(id, Bytes::from(last.clone()), Token::NONE).unwrap();
        driver.close(id, None).unwrap();
        assert!(!driver.event_loop.send_or_abort(id, b"more", Token::NONE));
        let reader = driver.beside(move || client.receive_rest());
        let (received, end) = driver.join(reader);
        end.unwrap();
        assert!(received == last, "what was queued before still leaves");
        assert_eq!(driver.wait_closed(id), CloseReason::Local);

        // With its sending direction ended, it goes on receiving.
        let (mut client, id) = driver.new_pair();
        driver.shutdown(id).unwrap();
        assert!(!driver.event_loop.send_or_abort(id, b"more", Token::NONE));
        driver.until_quiet();
        client.expect_end();
        client.send(b"question");
        driver.wait_received(id, 8);
        drop(client);
        assert_eq!(driver.wait_closed(id), CloseReason::Local);
    });
}

pub(crate) fn drain_under_load(level: &Level) {
    // All slots have a multiple of it, and so does what is received at once while slots are scarce: a request is never cut.
    const LENGTH: usize = 256;
    drive(level, |driver| {
        driver.on_data = OnData::Echo;
        let address = driver.listen();
        let clients: Vec<_> = (0..20)
            .map(|index| {
                let address = address.clone();
                driver.beside(move || {
                    let mut client = Client::connect(&address);
                    let message = pattern(index, LENGTH);
                    let mut rounds = 0;
                    let mut back = vec![0; message.len()];
                    while client.write_all(&message).is_ok() {
                        // All of it, or the end before any of it: a request is not half answered.
                        match client.read(&mut back[..1]) {
                            Ok(1) => client.read_exact(&mut back[1..]).unwrap(),
                            _ => break,
                        }
                        assert_eq!(back, message);
                        rounds += 1;
                    }
                    rounds
                })
            })
            .collect();
        driver.until("all are busy", |driver| {
            let served = |id: &ConnectionId| driver.seen(*id).total >= 2 * LENGTH as u64;
            driver.accepted.len() == 20 && driver.accepted.iter().all(served)
        });
        driver.event_loop.drain(Duration::from_secs(20));
        driver.until("it says so", |driver| driver.draining);
        for id in std::mem::take(&mut driver.accepted) {
            // One whose client has ended already is as good.
            let _ = driver.close(id, None);
        }
        driver.until("it has drained", |driver| driver.drained);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
        let Err(error) = std::net::TcpStream::connect(address.to_string()) else {
            panic!("nobody listens any more");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    });
}

pub(crate) fn drain_aborts_at_its_deadline(level: &Level) {
    drive(level, |driver| {
        let (mut client, id) = driver.new_pair();
        driver.turn_with(
            [Command::Drain {
                within: Duration::from_millis(20),
            }],
            Duration::ZERO,
        );
        driver.until("it has drained", |driver| driver.drained);
        assert_eq!(driver.seen(id).closed, Some(CloseReason::Local));
        client.expect_reset();
    });
}

/// The time of a drain is over for what has come since it began, too.
pub(crate) fn a_listener_made_during_a_drain_ends_with_it(level: &Level) {
    drive(level, |driver| {
        driver.event_loop.drain(Duration::from_millis(20));
        let address = driver.listen();
        let mut client = Client::connect(&address);
        driver.until("it has drained", |driver| driver.drained);
        assert_eq!(driver.listeners_closed.len(), 1);
        client.expect_reset();
    });
}
