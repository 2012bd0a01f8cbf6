//! What idle connections cost: little memory, no lease and no turn.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "support/counting.rs"]
mod counting;
mod support;

use std::sync::mpsc;
use std::thread;

use quoit::{Config, ConnectionId, Counters, Errno, Handler, Lease, Loop, Runtime, RuntimeConfig};
use quoit::{Listen, ListenerOptions};
use quoit_skipped::skip_this;
use support::{Echo, client, config, echo, engines, guard, listening, tcp};

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

const CONNECTIONS: usize = 2_000;
const BYTES_PER_CONNECTION: i64 = 1024;

/// Echoes, and reports the counters and the live bytes of its thread when it is woken.
struct Reporting {
    echo: Echo,
    report: mpsc::Sender<(Counters, i64)>,
}

impl Handler for Reporting {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        self.echo.on_data(event_loop, connection, data);
    }

    fn on_woken(&mut self, event_loop: &mut Loop) {
        let live = counting::allocated().live;
        // The test has failed if nobody listens any more.
        let _ = self.report.send((event_loop.counters(), live));
    }
}

/// Whether this process may have the descriptors for both ends; says so if not.
fn enough_descriptors() -> bool {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let wanted = CONNECTIONS as u64 * 2 + 200;
    // SAFETY: both calls get a valid structure.
    unsafe {
        Errno::check(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit)).unwrap();
        limit.rlim_cur = limit.rlim_cur.max(wanted.min(limit.rlim_max));
        Errno::check(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)).unwrap();
    }
    if limit.rlim_cur < wanted {
        skip_this(format_args!(
            "this process may have only {} descriptors, and not {wanted}",
            limit.rlim_cur
        ));
    }
    limit.rlim_cur >= wanted
}

#[test]
fn idle_connections_cost_little_memory_and_no_turns() {
    guard(120);
    if !enough_descriptors() {
        return;
    }
    for engine in engines() {
        let config = Config {
            connections: CONNECTIONS as u32,
            ..config(engine)
        };
        let (made, remotes) = mpsc::channel();
        let (report, reports) = mpsc::channel();
        let (first, second, before, live) = thread::scope(|scope| {
            let server = scope.spawn(move || {
                let before = counting::allocated().live;
                let (mut event_loop, address) = listening(config);
                made.send((event_loop.remote(), address, before)).unwrap();
                let echo = Echo::default();
                event_loop.run(&mut Reporting { echo, report }).unwrap();
            });
            let (remote, address, before) = remotes.recv().unwrap();
            let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| client(address)).collect();
            for client in &mut clients {
                echo(client, &[42; 3000]);
            }

            remote.wake();
            let (first, _) = reports.recv().unwrap();
            // Time passes, as this takes some: another loop serves.
            let busy = Runtime::start(
                RuntimeConfig {
                    config: support::config(engine),
                    listeners: vec![(
                        Listen::Address("127.0.0.1:0".parse().unwrap()),
                        ListenerOptions::default(),
                    )],
                    ..RuntimeConfig::default()
                },
                |_| Echo::default(),
            )
            .unwrap();
            let mut elsewhere = client(tcp(&busy.addresses()[0]));
            for _ in 0..5_000 {
                echo(&mut elsewhere, b"busy");
            }
            remote.wake();
            let (second, live) = reports.recv().unwrap();

            drop(clients);
            let within = support::PATIENCE;
            remote.post(quoit::Command::Drain { within }).unwrap();
            server.join().unwrap();
            (first, second, before, live)
        });
        assert_eq!(second.connections, CONNECTIONS as u64, "{engine}");
        assert_eq!(second.pool_leased, 0, "{engine}: idle connections hold leases");
        let turns = second.turns - first.turns;
        assert!(turns <= 2, "{engine}: {turns} turns while all was idle");
        // Everything that the loop has on the heap, its tables included; the pool and the memory for copied
        // sends are mappings.
        let each = (live - before) / CONNECTIONS as i64;
        println!("{engine}: {each} bytes per connection");
        assert!(
            each <= BYTES_PER_CONNECTION,
            "{engine}: {each} bytes per connection"
        );
    }
}
