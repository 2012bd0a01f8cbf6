//! What a whole process has: descriptors. Each of these runs in a process of its own.

use std::time::Duration;

use quoit::{
    Address, AttachOptions, CloseReason, Command, ConnectOptions, FileRange, OnShort, Refusal, Token,
};

use crate::driver::{Driver, OnData, drive, drive_with};
use crate::levels::{Level, alone};
use crate::sockets::Client;

macro_rules! resources {
    ($level:ident) => {
        tests! { $level, resources:
            nothing_is_left_of_thousands_of_connections
            nothing_is_left_of_refused_commands
            accepting_out_of_descriptors
            stopping_out_of_descriptors
            nothing_is_left_of_many_loops
        }
    };
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

pub(crate) fn nothing_is_left_of_thousands_of_connections(level: &Level) {
    alone(|| {
        drive(level, |driver| {
            driver.on_data = OnData::Echo;
            let address = driver.listen();
            driver.until_quiet();
            let before = open_descriptors();
            for round in 0..250 {
                let pairs: Vec<_> = (0..12).map(|_| driver.pair(&address)).collect();
                for (index, (mut client, id)) in pairs.into_iter().enumerate() {
                    client.send(b"hello");
                    match index % 4 {
                        0 => drop(client),
                        1 => client.reset(),
                        2 => {
                            driver.close(id, None).unwrap();
                            client.shutdown();
                        }
                        _ if round % 2 == 0 => driver.abort(id).unwrap(),
                        _ => {
                            driver.wait_received(id, 5);
                            driver.abort(id).unwrap();
                        }
                    }
                }
                driver.until("all have closed", |driver| driver.event_loop.connections() == 0);
            }
            // A kernel that polls closes them when it comes to it.
            driver.until("the descriptors are closed", |driver| {
                driver.until_quiet();
                open_descriptors() == before
            });
            let counters = driver.event_loop.counters();
            assert_eq!(counters.accepted, 3000);
            assert_eq!((counters.pool_leased, counters.queued_bytes), (0, 0));
            let closed = counters.closed_local
                + counters.closed_peer
                + counters.closed_reset
                + counters.closed_timeout
                + counters.closed_limit
                + counters.closed_error;
            assert_eq!(closed, 3000);
            assert_eq!(
                counters.closed_timeout + counters.closed_limit + counters.closed_error,
                0
            );
        });
    });
}

/// A refusal closes the descriptor that came with the command: whoever gave it away has none to close any more.
pub(crate) fn nothing_is_left_of_refused_commands(level: &Level) {
    alone(|| {
        drive_with(
            level,
            |config| config.connections = 1,
            |driver| {
                let (_client, id) = driver.new_pair();
                driver.until_quiet();
                driver.shutdown(id).unwrap();
                let listening = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
                let address = Address::from(listening.local_addr().unwrap());
                let attach = |descriptor, token| Command::Attach {
                    descriptor,
                    options: AttachOptions::default(),
                    token: Token(token),
                };
                let send_file = |connection, token| Command::SendFile {
                    connection,
                    range: FileRange {
                        file: tempfile::tempfile().unwrap(),
                        offset: 0,
                        length: 0,
                        on_short: OnShort::Abort,
                    },
                    token: Token(token),
                };
                let stale = quoit::ConnectionId::from_bits(0);
                let commands = || {
                    let connect = Command::Connect {
                        address: address.clone(),
                        options: Box::new(ConnectOptions::default()),
                        token: Token(1),
                    };
                    [
                        connect,
                        attach(Client::tcp_pair().1, 2),
                        attach(tempfile::tempfile().unwrap().into(), 3),
                        attach(listening.try_clone().unwrap().into(), 4),
                        send_file(stale, 5),
                        send_file(id, 6),
                    ]
                };
                let before = open_descriptors();
                driver.turn_with(commands(), Duration::ZERO);
                driver.until("all are refused", |driver| driver.refusals.len() == 6);
                assert_eq!(open_descriptors(), before);
                let remote = driver.event_loop.remote();
                for command in commands() {
                    remote.post(command).unwrap();
                }
                driver.until("all are refused again", |driver| driver.refusals.len() == 12);
                assert_eq!(open_descriptors(), before);
                let (first, second) = driver.refusals.split_at(6);
                assert_eq!(first, second);
                assert_eq!(
                    first[..2],
                    [1, 2].map(|token| (Token(token), None, Refusal::Limit))
                );
                assert_eq!(first[4], (Token(5), Some(stale), Refusal::Stale));
                assert_eq!(first[5], (Token(6), Some(id), Refusal::Closing));
            },
        );
    });
}

pub(crate) fn nothing_is_left_of_many_loops(level: &Level) {
    alone(|| {
        // What is opened once for the process is open after this.
        drop(Driver::new(level.config()));
        let before = open_descriptors();
        for round in 0..40 {
            let mut driver = Driver::new(level.config());
            let (mut client, id) = driver.new_pair();
            client.send(b"hello");
            if round % 2 == 0 {
                driver.wait_received(id, 5);
            }
        }
        assert_eq!(open_descriptors(), before);
    });
}

/// Leaves room for `count` more descriptors at most.
fn limit_descriptors(count: u64) {
    let lowest = std::fs::File::open("/dev/null").unwrap();
    let lowest = std::os::fd::AsRawFd::as_raw_fd(&lowest) as u64;
    let limit = libc::rlimit {
        rlim_cur: lowest + count,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limits are readable for the time of the call, and null asks for no answer.
    let result = unsafe { libc::prlimit(0, libc::RLIMIT_NOFILE, &raw const limit, std::ptr::null_mut()) };
    if result != 0 {
        let mut now = limit;
        // SAFETY: as above, with room for the answer; then without.
        let result = unsafe {
            libc::prlimit(0, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut now);
            now.rlim_cur = limit.rlim_cur;
            libc::prlimit(0, libc::RLIMIT_NOFILE, &raw const now, std::ptr::null_mut())
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }
}

pub(crate) fn accepting_out_of_descriptors(level: &Level) {
    alone(|| {
        drive(level, |driver| {
            let address = driver.listen();
            let mut clients: Vec<_> = (0..12).map(|_| Client::connect(&address)).collect();
            limit_descriptors(3);
            driver.until("accepting fails", |driver| {
                driver.event_loop.counters().accept_paused_resources > 0
            });
            let accepted = driver.accepted.len();
            assert!(accepted <= 3, "{accepted}");
            // It is tried again by and by, not in every turn.
            let before = driver.event_loop.counters();
            for _ in 0..100 {
                driver.turn(Duration::from_micros(100));
            }
            let after = driver.event_loop.counters();
            assert!(after.accept_paused_resources - before.accept_paused_resources < 20);
            for client in &mut clients {
                let id = driver.accept();
                driver.send(id, b"served", Token::NONE).unwrap();
                driver.wait_flushed(id);
                assert_eq!(client.receive(6), b"served");
                client.shutdown();
                driver.wait_ended(id);
                driver.close(id, None).unwrap();
                assert_eq!(driver.wait_closed(id), CloseReason::PeerClosed);
            }
            assert_eq!(driver.event_loop.counters().accepted, 12);
        });
    });
}

/// Clients whose connections the kernel has queued are not lost when the listener is stopped with no descriptor
/// left for them.
pub(crate) fn stopping_out_of_descriptors(level: &Level) {
    alone(|| {
        drive(level, |driver| {
            let (listener, address) = driver.listen_as(quoit::Accept::Connections);
            let mut clients: Vec<_> = (0..12).map(|_| Client::connect(&address)).collect();
            limit_descriptors(3);
            driver.until("accepting fails", |driver| {
                driver.event_loop.counters().accept_paused_resources > 0
            });
            driver.event_loop.stop_listening(listener).unwrap();
            for client in &mut clients {
                let id = driver.accept();
                client.shutdown();
                driver.wait_ended(id);
                driver.close(id, None).unwrap();
                assert_eq!(driver.wait_closed(id), CloseReason::PeerClosed);
            }
            driver.until("the listener is closed", |driver| {
                driver.listeners_closed == [(listener, None)]
            });
            assert_eq!(driver.event_loop.counters().accepted, 12);
        });
    });
}
