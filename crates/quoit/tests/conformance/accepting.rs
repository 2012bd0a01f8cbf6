//! Listeners.

use std::time::Duration;

use quoit::{
    Accept, Address, CloseReason, Command, ConnectOptions, Keepalive, ListenOptions, ListenerOptions,
    Refusal, StreamOptions, Token,
};
use quoit_skipped::skip_this;

use crate::driver::{Driver, drive, drive_with};
use crate::levels::Level;
use crate::sockets::{Client, option, pattern};

macro_rules! accepting {
    ($level:ident) => {
        tests! { $level, accepting:
            every_family
            options_of_both_ends
            a_second_server_gets_an_error
            paused_until_resumed
            stopped_while_paused
            stopped_while_connections_are_queued
            stopped_with_all_slots_taken
            stopped_with_more_accepted_than_slots
            its_address_is_free_when_it_is_closed
            paused_at_the_connection_limit
            a_listener_to_which_nobody_connects_keeps_no_slot
            accepted_paused
            handed_out_and_attached_to_another_loop
            the_address_of_a_peer_that_has_reset
            attached_only_if_it_can_be_used
        }
    };
}

/// A question and its answer over a connection to `target`, which a listener at `address` accepts.
fn serve_one(
    driver: &mut Driver,
    address: &Address,
    options: &ListenerOptions,
    target: fn(&Address) -> Address,
) {
    let (listener, bound) = driver.listen_on(address, options);
    let (mut client, id) = driver.pair(&target(&bound));
    assert_eq!(driver.seen(id).listener, Some(listener));
    client.send(&pattern(0, 5000));
    driver.wait_received(id, 5000);
    assert_eq!(driver.seen(id).received, pattern(0, 5000));
    driver.send(id, b"answer", Token::NONE).unwrap();
    driver.wait_flushed(id);
    assert_eq!(client.receive(6), b"answer");
    client.shutdown();
    driver.wait_ended(id);
    driver.close(id, None).unwrap();
    assert_eq!(driver.wait_closed(id), CloseReason::PeerClosed);
    client.expect_end();
}

pub(crate) fn every_family(level: &Level) {
    drive(level, |driver| {
        let default = ListenerOptions::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        serve_one(driver, &Address::UnixPath(path), &default, Address::clone);
        let name = format!("quoit-conformance-{}-{:p}", std::process::id(), driver);
        let name = name.into_bytes().into_boxed_slice();
        serve_one(driver, &Address::UnixAbstract(name), &default, Address::clone);
        serve_one(driver, &crate::driver::loopback(), &default, Address::clone);
        if std::net::TcpListener::bind("[::1]:0").is_err() {
            skip_this("IPv6: this machine has no IPv6 loopback address");
            return;
        }
        let to_v4 = |bound: &Address| {
            let Address::Tcp(bound) = bound else {
                panic!("a TCP address")
            };
            Address::Tcp(([127, 0, 0, 1], bound.port()).into())
        };
        serve_one(driver, &"[::1]:0".parse().unwrap(), &default, Address::clone);
        serve_one(driver, &"[::]:0".parse().unwrap(), &default, to_v4);
        let only_v6 = ListenerOptions {
            listen: ListenOptions {
                ipv6_only: true,
                ..ListenOptions::default()
            },
            ..ListenerOptions::default()
        };
        // The port is free for IPv4, unless others have just that one: hardly of all of them.
        let free = (0..16).any(|_| {
            let (_, bound) = driver.listen_on(&"[::]:0".parse().unwrap(), &only_v6);
            std::net::TcpListener::bind(to_v4(&bound).to_string()).is_ok()
        });
        assert!(free, "the listener takes IPv4 as well");
    });
}

/// Accepted and outgoing sockets have the options that were asked for, and otherwise the documented ones.
pub(crate) fn options_of_both_ends(level: &Level) {
    drive(level, |driver| {
        let asked = StreamOptions {
            no_delay: false,
            keepalive: Some(Keepalive {
                idle: Duration::from_secs(77),
                interval: Duration::from_secs(5),
                probes: 3,
            }),
            receive_buffer: Some(30_000),
            send_buffer: Some(40_000),
        };
        let default_values = vec![
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0),
        ];
        let asked_values = vec![
            (libc::IPPROTO_TCP, libc::TCP_NODELAY, 0),
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
            (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, 5),
            (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3),
            // The kernel doubles both (`socket(7)`).
            (libc::SOL_SOCKET, libc::SO_RCVBUF, 60_000),
            (libc::SOL_SOCKET, libc::SO_SNDBUF, 80_000),
        ];
        for (stream, values) in [(StreamOptions::default(), default_values), (asked, asked_values)] {
            let options = ListenerOptions {
                stream: stream.clone(),
                ..ListenerOptions::default()
            };
            let (_, address) = driver.listen_on(&crate::driver::loopback(), &options);
            let options = ConnectOptions {
                socket: stream,
                ..ConnectOptions::default()
            };
            let connected = driver.connect(&address, &options, 1);
            let accepted = driver.accept();
            for id in [connected, accepted] {
                let socket = driver.event_loop.descriptor(id).unwrap();
                for (kind, name, value) in &values {
                    assert_eq!(option(socket, *kind, *name), *value, "{id:?}: option {name}");
                }
            }
        }
    });
}

pub(crate) fn a_second_server_gets_an_error(level: &Level) {
    drive(level, |driver| {
        let address = driver.listen();
        let second = driver.event_loop.listen(&address, &ListenerOptions::default());
        let message = second.unwrap_err().to_string();
        assert!(message.contains(&address.to_string()), "{message}");
    });
}

/// What comes to a paused listener waits in the kernel, however often it is paused and resumed.
pub(crate) fn paused_until_resumed(level: &Level) {
    drive(level, |driver| {
        let (listener, address) = driver.listen_as(Accept::Connections);
        let (mut first, id) = driver.pair(&address);
        driver.until_quiet();
        driver.event_loop.pause_listening(listener).unwrap();
        driver.event_loop.pause_listening(listener).unwrap();
        driver.until_quiet();
        let mut clients: Vec<_> = (0..20).map(|_| Client::connect(&address)).collect();
        driver.until_quiet();
        assert_eq!(driver.accepted.len(), 0);
        assert_eq!(driver.event_loop.counters().accepted, 1);
        // Those that it has are served.
        first.send(b"hello");
        driver.wait_received(id, 5);
        driver.event_loop.resume_listening(listener).unwrap();
        driver.event_loop.pause_listening(listener).unwrap();
        driver.event_loop.resume_listening(listener).unwrap();
        driver.event_loop.resume_listening(listener).unwrap();
        driver.until("all are accepted", |driver| driver.accepted.len() == 20);
        for (client, id) in clients.iter_mut().zip(std::mem::take(&mut driver.accepted)) {
            client.send(b"hello");
            driver.wait_received(id, 5);
        }
        // By commands, while an accept is under way that is to be cancelled.
        let remote = driver.event_loop.remote();
        remote.post(Command::PauseListening { listener }).unwrap();
        remote.post(Command::ResumeListening { listener }).unwrap();
        driver.until_quiet();
        driver.pair(&address);
        assert!(driver.refusals.is_empty());
    });
}

pub(crate) fn stopped_while_paused(level: &Level) {
    drive(level, |driver| {
        let (listener, address) = driver.listen_as(Accept::Connections);
        driver.event_loop.pause_listening(listener).unwrap();
        driver.until_quiet();
        let mut client = Client::connect(&address);
        driver.until_quiet();
        driver.event_loop.stop_listening(listener).unwrap();
        // It is gone already, or as good as gone.
        assert!(driver.event_loop.resume_listening(listener).is_err());
        // Who was queued has not come in vain.
        let id = driver.accept();
        driver.until("the listener is closed", |driver| {
            driver.listeners_closed == [(listener, None)]
        });
        client.send(b"hello");
        driver.wait_received(id, 5);
        assert_eq!(driver.event_loop.pause_listening(listener), Err(Refusal::Stale));
        assert_eq!(driver.event_loop.resume_listening(listener), Err(Refusal::Stale));
    });
}

pub(crate) fn stopped_while_connections_are_queued(level: &Level) {
    drive(level, |driver| {
        for turns_before in [0, 1] {
            let (listener, address) = driver.listen_as(Accept::Connections);
            if turns_before > 0 {
                driver.until_quiet();
            }
            let mut clients: Vec<_> = (0..50).map(|_| Client::connect(&address)).collect();
            driver.event_loop.stop_listening(listener).unwrap();
            assert_eq!(driver.event_loop.stop_listening(listener), Err(Refusal::Closing));
            driver.until("the listener is closed", |driver| {
                driver.listeners_closed.last() == Some(&(listener, None))
            });
            assert_eq!(driver.accepted.len(), 50);
            for (client, id) in clients.iter_mut().zip(std::mem::take(&mut driver.accepted)) {
                client.send(b"hello");
                driver.wait_received(id, 5);
            }
            let refused = std::net::TcpStream::connect(address.to_string());
            assert!(refused.is_err());
        }
    });
}

pub(crate) fn stopped_with_all_slots_taken(level: &Level) {
    drive_with(
        level,
        |config| config.connections = 3,
        |driver| {
            let (listener, address) = driver.listen_as(Accept::Connections);
            let _clients: Vec<_> = (0..6).map(|_| Client::connect(&address)).collect();
            driver.until("all slots are taken", |driver| driver.accepted.len() == 3);
            driver.until_quiet();
            driver.event_loop.stop_listening(listener).unwrap();
            driver.until("the listener is closed", |driver| {
                driver.listeners_closed == [(listener, None)]
            });
            assert_eq!(driver.accepted.len(), 3);
        },
    );
}

/// A connection that was accepted while attached ones took its slot is its own listener's, also when that has
/// been stopped.
pub(crate) fn stopped_with_more_accepted_than_slots(level: &Level) {
    drive_with(
        level,
        |config| config.connections = 2,
        |driver| {
            let (listener, address) = driver.listen_as(Accept::Connections);
            driver.until_quiet();
            let attached: Vec<_> = (0..2)
                .map(|_| {
                    let (client, descriptor) = Client::tcp_pair();
                    (client, driver.attach(descriptor, false))
                })
                .collect();
            let mut client = Client::connect(&address);
            driver.until_quiet();
            driver.event_loop.stop_listening(listener).unwrap();
            driver.until_quiet();
            driver.listen();
            driver.until_quiet();
            assert_eq!(driver.accepted.len(), 0);
            if !driver.listeners_closed.is_empty() {
                // Without multishot accepts the one in flight is taken back when the slots are, and brings nothing.
                assert!(level.is_uring());
                return;
            }
            driver.abort(attached[0].1).unwrap();
            let id = driver.accept();
            assert_eq!(driver.seen(id).listener, Some(listener));
            driver.until("the listener is closed", |driver| {
                driver.listeners_closed == [(listener, None)]
            });
            client.send(b"hello");
            driver.wait_received(id, 5);
        },
    );
}

pub(crate) fn its_address_is_free_when_it_is_closed(level: &Level) {
    drive(level, |driver| {
        let mut address = crate::driver::loopback();
        for round in 0..10 {
            let (listener, bound) = driver.listen_on(&address, &ListenerOptions::default());
            address = bound;
            if round % 2 == 0 {
                let (mut client, id) = driver.pair(&address);
                client.send(b"hello");
                driver.wait_received(id, 5);
            }
            driver.event_loop.stop_listening(listener).unwrap();
            driver.until("the listener is closed", |driver| {
                driver.listeners_closed.last() == Some(&(listener, None))
            });
        }
    });
}

pub(crate) fn paused_at_the_connection_limit(level: &Level) {
    drive_with(
        level,
        |config| config.connections = 4,
        |driver| {
            let address = driver.listen();
            let mut clients: Vec<_> = (0..12).map(|_| Client::connect(&address)).collect();
            driver.until("all slots are taken", |driver| driver.accepted.len() == 4);
            driver.until_quiet();
            assert_eq!(driver.accepted.len(), 4);
            let waiting = driver.event_loop.counters();
            for _ in 0..10 {
                assert_eq!(driver.turn(Duration::from_millis(1)), 0);
            }
            assert_eq!(driver.event_loop.counters().accept_arms, waiting.accept_arms);
            for client in &mut clients {
                let id = driver.accept();
                client.send(b"hello");
                driver.wait_received(id, 5);
                driver.send(id, b"served", Token::NONE).unwrap();
                driver.close(id, None).unwrap();
                driver.wait_flushed(id);
                assert_eq!(client.receive(6), b"served");
                assert!(driver.event_loop.connections() <= 4);
                client.shutdown();
            }
            driver.until("all are closed", |driver| driver.event_loop.connections() == 0);
            assert_eq!(driver.event_loop.counters().accepted, 12);
        },
    );
}

/// Whatever others might accept, all free slots are for who connects.
pub(crate) fn a_listener_to_which_nobody_connects_keeps_no_slot(level: &Level) {
    const SLOTS: usize = 5;
    drive_with(
        level,
        |config| config.connections = SLOTS as u32,
        |driver| {
            let idle: Vec<_> = (0..3).map(|_| driver.listen()).collect();
            let busy = driver.listen();
            driver.until_quiet();
            for _ in 0..3 {
                let clients: Vec<_> = (0..SLOTS).map(|_| Client::connect(&busy)).collect();
                driver.until("all slots are taken", |driver| driver.accepted.len() == SLOTS);
                // One of each listener more than there is room for.
                let late: Vec<_> = idle.iter().chain([&busy]).map(Client::connect).collect();
                driver.until_quiet();
                assert_eq!(driver.accepted.len(), SLOTS);
                for id in std::mem::take(&mut driver.accepted) {
                    driver.abort(id).unwrap();
                }
                driver.until("the others are accepted", |driver| {
                    driver.accepted.len() == late.len()
                });
                for id in std::mem::take(&mut driver.accepted) {
                    driver.abort(id).unwrap();
                    driver.wait_closed(id);
                }
                drop(clients);
            }
        },
    );
}

pub(crate) fn accepted_paused(level: &Level) {
    drive(level, |driver| {
        let (_, address) = driver.listen_as(Accept::Paused);
        let (mut client, id) = driver.pair(&address);
        client.send(b"wait for it");
        client.shutdown();
        driver.until_quiet();
        assert!(driver.seen(id).total == 0 && !driver.seen(id).ended);
        driver.resume(id).unwrap();
        driver.wait_ended(id);
        assert_eq!(driver.seen(id).received, b"wait for it");
    });
}

pub(crate) fn handed_out_and_attached_to_another_loop(level: &Level) {
    drive(level, |driver| {
        let (_, address) = driver.listen_as(Accept::Descriptors);
        let mut client = Client::connect(&address);
        driver.until("it is handed out", |driver| driver.descriptors.len() == 1);
        let descriptor = driver.descriptors.pop().unwrap();
        client.send(b"early");
        let mut other = Driver::numbered(1, level.config());
        let id = other.attach(descriptor, true);
        other.until_quiet();
        assert_eq!(other.seen(id).total, 0);
        other.resume(id).unwrap();
        other.wait_received(id, 5);
        other.send(id, b"late", Token::NONE).unwrap();
        other.wait_flushed(id);
        assert_eq!(client.receive(4), b"late");
        client.reset();
        assert_eq!(other.wait_closed(id), CloseReason::Reset);
        assert_eq!(driver.event_loop.connections(), 0);
        assert_eq!(driver.send(id, b"x", Token::NONE), Err(Refusal::Stale));
    });
}

pub(crate) fn attached_only_if_it_can_be_used(level: &Level) {
    drive(level, |driver| {
        let file = tempfile::tempfile().unwrap();
        let options = quoit::AttachOptions::default();
        let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for descriptor in [file.into(), listening.into()] {
            let result = driver.event_loop.attach(descriptor, &options, Token(1));
            assert!(matches!(result, Err(Refusal::Error(_))), "{result:?}");
        }
        let (mut client, descriptor) = Client::tcp_pair();
        let id = driver.attach(descriptor, false);
        client.send(b"hello");
        driver.wait_received(id, 5);
        assert_eq!(
            driver.event_loop.peer_address(id),
            Some(client.local_address().into())
        );
    });
}

/// As `accept4(2)` tells it: whoever logs who was there asks after the reset.
pub(crate) fn the_address_of_a_peer_that_has_reset(level: &Level) {
    drive(level, |driver| {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let (_, address) = driver.listen_on(&address.parse().unwrap(), &ListenerOptions::default());
            let client = Client::connect(&address);
            let expected = client.local_address();
            client.reset();
            let id = driver.accept();
            assert_eq!(driver.event_loop.peer_address(id), Some(expected.into()));
            driver.wait_closed(id);
        }
    });
}
