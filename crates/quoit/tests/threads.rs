//! Other threads: wakes, posts, leases that travel, loops that change hands, and runtimes.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use quoit::{
    Command, Config, ConnectionId, EngineKind, Event, Events, Handler, Lease, Listen, ListenerOptions, Loop,
    LoopIndex, PostError, Refusal, Runtime, RuntimeConfig, Spread, Token, TurnError,
};
use support::{Echo, client, config, echo, end_of, engines, guard, listening, tcp};

fn new(engine: EngineKind) -> Loop {
    Loop::new(LoopIndex::default(), config(engine)).unwrap()
}

/// A command whose effect can be seen: it names no connection, so it is refused, with its token.
fn marker(token: u64) -> Command<'static> {
    Command::Send {
        connection: ConnectionId::from_bits(1),
        payload: vec![1u8].into(),
        token: Token(token),
    }
}

/// Each of several threads posts numbered commands into a small inbox as fast as it takes them, while others
/// wake the loop. Every accepted post is refused once by an event, in its thread's order.
#[test]
fn every_post_takes_effect_once_and_in_order() {
    const THREADS: u64 = 4;
    const POSTS: u64 = 20_000;
    guard(60);
    for engine in engines() {
        let mut event_loop = Loop::new(
            LoopIndex::default(),
            Config {
                inbox: 64,
                ..config(engine)
            },
        )
        .unwrap();
        let full = AtomicU64::new(0);
        let remote = event_loop.remote();
        thread::scope(|scope| {
            for producer in 0..THREADS {
                let (remote, full) = (&remote, &full);
                scope.spawn(move || {
                    for number in 0..POSTS {
                        let token = producer << 32 | number;
                        let mut command = marker(token);
                        while let Err(error) = remote.post(command) {
                            let PostError::Full(back) = error else {
                                panic!("the loop lives: {error}");
                            };
                            let Command::Send { token: same, .. } = &back else {
                                panic!("another command came back: {back:?}");
                            };
                            assert_eq!(*same, Token(token), "what was refused comes back");
                            full.fetch_add(1, Ordering::Relaxed);
                            command = back;
                            thread::yield_now();
                        }
                    }
                });
                scope.spawn(move || (0..POSTS).for_each(|_| remote.wake()));
            }
            let mut next = [0; THREADS as usize];
            let mut events = Events::with_capacity(100);
            let mut woken = 0u64;
            while next.iter().sum::<u64>() < THREADS * POSTS {
                event_loop.turn([], &mut events, None).unwrap();
                for event in events.drain() {
                    match event {
                        Event::Refused {
                            token,
                            refusal: Refusal::Stale,
                            ..
                        } => {
                            let (producer, number) = ((token.0 >> 32) as usize, token.0 & 0xffff_ffff);
                            assert_eq!(number, next[producer], "{engine}: thread {producer}");
                            next[producer] += 1;
                        }
                        Event::Woken => woken += 1,
                        other => panic!("{engine}: {other:?}"),
                    }
                }
            }
            assert!(woken <= THREADS * POSTS);
        });
        // The wakes may have gone on after the last post; after them there is nothing more.
        let mut events = Events::with_capacity(100);
        for _ in 0..2 {
            event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            assert!(events.drain().all(|event| matches!(event, Event::Woken)));
        }
        assert_eq!(event_loop.counters().posted_commands, THREADS * POSTS);
        assert!(
            full.load(Ordering::Relaxed) > 0,
            "{engine}: the inbox was never full"
        );
    }
}

/// Rounds of wakes by several threads at once, each answered before the next round: the loop sleeps without a
/// time limit, so a wake that is lost hangs.
#[test]
fn no_wake_is_lost_and_a_storm_is_one() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 5_000;
    guard(60);
    for engine in engines() {
        let mut event_loop = new(engine);
        let remote = event_loop.remote();
        let barrier = Barrier::new(THREADS + 1);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        barrier.wait();
                        remote.wake();
                        barrier.wait();
                    }
                });
            }
            let mut events = Events::with_capacity(8);
            for round in 0..ROUNDS {
                barrier.wait();
                let mut woken = 0;
                while woken == 0 {
                    event_loop.turn([], &mut events, None).unwrap();
                    woken += events
                        .drain()
                        .filter(|event| matches!(event, Event::Woken))
                        .count();
                }
                barrier.wait();
                // All have called wake by now; those that came later are one more at most each.
                event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
                woken += events.drain().count();
                assert!(woken <= THREADS, "{engine}: {woken} wakes in round {round}");
            }
        });
        let before = event_loop.counters().wake_writes;
        (0..1000).for_each(|_| remote.wake());
        let mut events = Events::with_capacity(8);
        event_loop.turn([], &mut events, None).unwrap();
        assert!(
            matches!(events.iter().collect::<Vec<_>>()[..], [Event::Woken]),
            "{engine}: {events:?}"
        );
        assert_eq!(
            event_loop.counters().wake_writes,
            before,
            "{engine}: a loop that runs is woken without a system call"
        );
    }
}

#[test]
fn a_loop_that_is_gone_refuses_posts_and_ignores_wakes() {
    guard(60);
    for engine in engines() {
        for turns in 0..2 {
            let mut event_loop = new(engine);
            let remote = event_loop.remote();
            let mut events = Events::with_capacity(8);
            for _ in 0..turns {
                event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            }
            // One that was accepted and never looked at goes with the loop, and so does what it owns.
            let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
            remote
                .post(Command::Attach {
                    descriptor: near.into(),
                    options: quoit::AttachOptions::default(),
                    token: Token(1),
                })
                .unwrap();
            drop(event_loop);
            assert_eq!(far.read(&mut [0]).unwrap(), 0);
            remote.wake();
            match remote.post(marker(7)) {
                Err(PostError::Closed(Command::Send { token: Token(7), .. })) => {}
                other => panic!("{engine}: {other:?}"),
            }
            thread::spawn(move || {
                remote.wake();
                assert!(matches!(remote.post(marker(8)), Err(PostError::Closed(_))));
            })
            .join()
            .unwrap();
        }
    }
}

/// Posts race with the end of the loop: each is accepted or comes back, and whatever it owns is freed either way.
#[test]
fn posts_that_race_with_the_end_leak_nothing() {
    const THREADS: usize = 3;
    guard(60);
    for engine in engines() {
        for _ in 0..50 {
            let mut event_loop = new(engine);
            let remote = event_loop.remote();
            let owned = Arc::new(());
            let barrier = Barrier::new(THREADS + 1);
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| {
                        barrier.wait();
                        for _ in 0..200 {
                            let bytes = bytes::Bytes::from_owner(Owned(Arc::clone(&owned)));
                            let command = Command::Send {
                                connection: ConnectionId::from_bits(1),
                                payload: bytes.into(),
                                token: Token::NONE,
                            };
                            // Either outcome is right here.
                            let _ = remote.post(command);
                        }
                    });
                }
                barrier.wait();
                event_loop
                    .turn([], &mut Events::with_capacity(1000), Some(Duration::ZERO))
                    .unwrap();
                drop(event_loop);
            });
            assert_eq!(
                Arc::strong_count(&owned),
                1,
                "{engine}: a posted payload is left over"
            );
        }
    }
}

struct Owned(#[expect(dead_code, reason = "held for its count")] Arc<()>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        b"owned"
    }
}

/// Keeps what it receives, for another thread.
struct Hoard(mpsc::Sender<Lease>);

impl Handler for Hoard {
    fn on_data(&mut self, _: &mut Loop, _: ConnectionId, data: Lease) {
        self.0.send(data).unwrap();
    }
}

/// With a tiny pool, nothing goes on unless the leases that another thread returns wake the loop.
#[test]
fn leases_returned_by_another_thread_wake_a_loop_that_waits_for_them() {
    const TOTAL: usize = 1 << 20;
    guard(60);
    for engine in engines() {
        let config = Config {
            receive_slots: 4,
            receive_slot_size: 1024,
            buffer_ring: 4,
            ..config(engine)
        };
        let (mut event_loop, address) = listening(config);
        let remote = event_loop.remote();
        let (sender, leases) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut client = client(address);
                let bytes: Vec<u8> = (0..TOTAL).map(|index| (index % 251) as u8).collect();
                client.write_all(&bytes).unwrap();
                client
            });
            scope.spawn(move || {
                let mut received = 0;
                let mut held = Vec::new();
                while received < TOTAL {
                    let lease: Lease = leases.recv().unwrap();
                    for (offset, &byte) in lease.iter().enumerate() {
                        assert_eq!(byte, ((received + offset) % 251) as u8);
                    }
                    received += lease.len();
                    held.push(lease);
                    if held.len() == 4 || received == TOTAL {
                        // The whole pool is out: the loop has nothing left to receive into.
                        held.clear();
                    } else if let Ok(more) = leases.try_recv() {
                        drop(held.drain(..));
                        for (offset, &byte) in more.iter().enumerate() {
                            assert_eq!(byte, ((received + offset) % 251) as u8);
                        }
                        received += more.len();
                    }
                }
                remote
                    .post(Command::Drain {
                        within: Duration::ZERO,
                    })
                    .unwrap();
            });
            event_loop.run(&mut Hoard(sender)).unwrap();
        });
        let mut events = Events::with_capacity(8);
        event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
        let counters = event_loop.counters();
        assert_eq!(counters.pool_leased, 0, "{engine}");
        assert_eq!(counters.received_bytes, TOTAL as u64, "{engine}");
    }
}

#[test]
fn leases_stay_readable_after_their_loop() {
    guard(60);
    for engine in engines() {
        let (mut event_loop, address) = listening(config(engine));
        let mut peer = client(address);
        peer.write_all(b"kept").unwrap();
        let mut events = Events::with_capacity(8);
        let lease = loop {
            event_loop.turn([], &mut events, None).unwrap();
            let data = events.drain().find_map(|event| match event {
                Event::Data { data, .. } => Some(data),
                _ => None,
            });
            if let Some(data) = data {
                break data;
            }
        };
        drop(event_loop);
        assert_eq!(&*lease, b"kept");
        thread::spawn(move || assert_eq!(&*lease, b"kept"))
            .join()
            .unwrap();
    }
}

#[test]
fn a_loop_made_here_runs_there_and_is_dropped_elsewhere() {
    guard(60);
    for engine in engines() {
        let (event_loop, address) = listening(config(engine));
        let remote = event_loop.remote();
        let mut peer = TcpStream::connect(address).unwrap();
        let event_loop = thread::spawn(move || {
            let mut event_loop = event_loop;
            let mut events = Events::with_capacity(8);
            let mut handler = Echo::default();
            // Until the client's bytes are on their way back; then this thread ends, the connection does not.
            while event_loop.counters().sent_bytes < 5 {
                // Not for ever: the end of a send of which nobody wants to hear does not end a wait.
                let moment = Some(Duration::from_millis(1));
                event_loop.run_turn(&mut handler, &mut events, moment).unwrap();
            }
            event_loop
        });
        echo(&mut peer, b"first");
        let mut event_loop = event_loop.join().unwrap();
        let result = event_loop.turn([], &mut Events::with_capacity(1), Some(Duration::ZERO));
        assert_eq!(result, Err(TurnError::WrongThread), "{engine}");
        thread::spawn(move || drop(event_loop)).join().unwrap();
        assert!(matches!(remote.post(marker(1)), Err(PostError::Closed(_))));
        // The kernel has let go of the connection: its end is seen, be it by FIN or by reset.
        peer.set_read_timeout(Some(support::PATIENCE)).unwrap();
        let _ = end_of(&mut peer);
        // So has it of the listener, though a ring without its thread is taken down in the background.
        while TcpStream::connect(address).is_ok() {
            thread::yield_now();
        }
    }
}

#[test]
fn a_turn_from_the_wrong_thread_is_refused_and_does_nothing() {
    guard(60);
    for engine in engines() {
        let mut event_loop = new(engine);
        let mut events = Events::with_capacity(8);
        event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
        let turns = event_loop.counters().turns;
        thread::scope(|scope| {
            scope
                .spawn(|| {
                    let timer = Command::SetTimer {
                        after: Duration::ZERO,
                        token: Token(9),
                    };
                    let mut events = Events::with_capacity(8);
                    let result = event_loop.turn([timer], &mut events, Some(Duration::ZERO));
                    assert_eq!(result, Err(TurnError::WrongThread));
                })
                .join()
                .unwrap();
        });
        assert_eq!(event_loop.counters().turns, turns);
        event_loop
            .turn([], &mut events, Some(Duration::from_millis(1)))
            .unwrap();
        assert!(events.is_empty(), "{engine}: {events:?}");
    }
}

/// What a loop has counted is seen at once, though it neither sleeps nor turns again.
#[test]
fn others_read_the_figures_as_they_are() {
    const SENT: usize = 100;
    guard(60);
    for engine in engines() {
        let (mut event_loop, address) = listening(config(engine));
        let remote = event_loop.remote();
        client(address).write_all(&[7; SENT]).unwrap();
        let mut events = Events::with_capacity(8);
        let mut received = 0;
        while received < SENT {
            event_loop.turn([], &mut events, None).unwrap();
            received += events
                .drain()
                .map(|event| match event {
                    Event::Data { data, .. } => data.len(),
                    _ => 0,
                })
                .sum::<usize>();
        }
        let seen = thread::scope(|scope| scope.spawn(|| remote.counters()).join().unwrap());
        let (bytes, turns) = (seen.received_bytes, seen.turns);
        assert_eq!(
            (bytes, turns),
            (SENT as u64, event_loop.counters().turns),
            "{engine}"
        );
    }
}

fn runtime(engine: EngineKind, loops: u16, spread: Spread) -> RuntimeConfig {
    RuntimeConfig {
        loops,
        config: Config {
            connections: 256,
            ..config(engine)
        },
        listeners: vec![(
            Listen::Address("127.0.0.1:0".parse().unwrap()),
            ListenerOptions::default(),
        )],
        spread,
        ..RuntimeConfig::default()
    }
}

#[test]
fn runtimes_start_and_drain_under_load_again_and_again() {
    guard(60);
    for engine in engines() {
        for round in 0..50 {
            let spread = [Spread::HandOver, Spread::Shared, Spread::ReusePort][round % 3];
            let runtime = Runtime::start(runtime(engine, 2, spread), |_| Echo::default()).unwrap();
            assert_eq!(runtime.engine(), engine);
            let address = tcp(&runtime.addresses()[0]);
            thread::scope(|scope| {
                let clients: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(move || {
                            let mut client = client(address);
                            for number in 0..20u32 {
                                echo(&mut client, &number.to_ne_bytes());
                            }
                            client
                        })
                    })
                    .collect();
                // Draining begins while they are all connected and talking, or about to close.
                let clients: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
                runtime.drain(support::PATIENCE);
                for mut client in clients {
                    echo(&mut client, b"in flight");
                    client.shutdown(std::net::Shutdown::Write).unwrap();
                    end_of(&mut client).unwrap();
                }
            });
            runtime.join().unwrap();
            assert!(TcpStream::connect(address).is_err());
        }
    }
}

#[test]
fn dropping_a_runtime_aborts_its_connections_even_while_it_drains() {
    guard(60);
    for engine in engines() {
        for patient in [false, true] {
            let runtime = Runtime::start(runtime(engine, 2, Spread::HandOver), |_| Echo::default()).unwrap();
            let address = tcp(&runtime.addresses()[0]);
            let mut clients: Vec<_> = (0..4).map(|_| client(address)).collect();
            for client in &mut clients {
                echo(client, b"hello");
            }
            if patient {
                runtime.drain(Duration::from_secs(100_000));
            }
            drop(runtime);
            for mut client in clients {
                let _ = end_of(&mut client);
            }
        }
    }
}

/// Panics when it receives `!`.
struct Fragile;

impl Handler for Fragile {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        assert_ne!(&*data, b"!", "a handler's own fault");
        event_loop.send(connection, data, Token::NONE).unwrap();
    }
}

/// Starts two loops and makes the one that serves a client of ours panic. Answers the other clients.
fn broken_runtime(engine: EngineKind) -> (Runtime, Vec<TcpStream>) {
    let runtime = Runtime::start(runtime(engine, 2, Spread::HandOver), |_| Fragile).unwrap();
    let address = tcp(&runtime.addresses()[0]);
    let mut clients: Vec<_> = (0..4).map(|_| client(address)).collect();
    for client in &mut clients {
        echo(client, b"well");
    }
    clients[0].write_all(b"!").unwrap();
    // Its loop is dropped, and with it the connection.
    let _ = end_of(&mut clients[0]);
    (runtime, clients)
}

#[test]
fn a_panic_in_a_handler_is_reported_by_join_and_ends_the_other_loops() {
    guard(60);
    for engine in engines() {
        let (runtime, clients) = broken_runtime(engine);
        let remotes: Vec<_> = runtime.remotes().cloned().collect();
        runtime.drain(Duration::ZERO);
        let panic = catch_unwind(AssertUnwindSafe(|| runtime.join())).unwrap_err();
        let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        assert!(text.contains("a handler's own fault"), "{engine}: {text:?}");
        for remote in remotes {
            assert!(
                matches!(remote.post(marker(1)), Err(PostError::Closed(_))),
                "{engine}: a loop runs on after join"
            );
        }
        drop(clients);
    }
}

#[test]
fn dropping_a_runtime_with_a_panicked_loop_does_not_hang() {
    guard(60);
    for engine in engines() {
        let (runtime, clients) = broken_runtime(engine);
        drop(runtime);
        drop(clients);
    }
}

thread_local! {
    /// Which loop each thread of the runtime runs.
    static SEEN: RefCell<HashMap<u16, usize>> = RefCell::default();
}

/// Counts, on its own thread, which loop's connections it is told of.
struct Own;

impl Handler for Own {
    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        assert_eq!(connection.loop_index(), event_loop.index());
        let loops = SEEN.with_borrow_mut(|seen| {
            *seen.entry(event_loop.index().get()).or_default() += 1;
            seen.len()
        });
        assert_eq!(loops, 1, "a thread runs one loop");
        event_loop
            .send(connection, &event_loop.index().get().to_ne_bytes(), Token::NONE)
            .unwrap();
        drop(data);
    }
}

/// Handed-over connections end up on the loop with the fewest, and stay there.
#[test]
fn handed_over_connections_are_spread_evenly() {
    guard(60);
    for engine in engines() {
        let runtime = Runtime::start(runtime(engine, 3, Spread::HandOver), |_| Own).unwrap();
        let address = tcp(&runtime.addresses()[0]);
        let mut clients: Vec<_> = (0..30).map(|_| client(address)).collect();
        let mut served = [0; 3];
        for client in &mut clients {
            let mut first = None;
            for _ in 0..3 {
                client.write_all(b"?").unwrap();
                let mut index = [0; 2];
                client.read_exact(&mut index).unwrap();
                let index = u16::from_ne_bytes(index);
                assert_eq!(*first.get_or_insert(index), index, "a connection never migrates");
            }
            served[usize::from(first.unwrap())] += 1;
        }
        assert!(
            served.iter().all(|&count| count >= 5),
            "{engine}: {served:?} connections on the loops"
        );
        drop(clients);
        drop(runtime);
    }
}
