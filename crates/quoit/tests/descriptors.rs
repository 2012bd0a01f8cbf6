//! Accepting when descriptors run out, or fails for another reason that lasts: in children of this process, which have
//! a small limit or a filter.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use quoit::{CloseReason, ConnectionId, EngineKind, Errno, Event, Events, ListenerId, Loop, Token};
use seccompiler::{SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};
use support::{PATIENCE, case, client, config, deny, deny_if, end_of, engines, guard, listening, run_child};

const CLIENTS: usize = 20;

/// This process may have so many descriptors from now on.
fn limit_descriptors(count: u64) {
    let limit = libc::rlimit {
        rlim_cur: count,
        rlim_max: count,
    };
    // SAFETY: the limit is a valid structure.
    Errno::check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).unwrap();
}

/// Takes descriptors until there are none, then gives `spare` back.
fn hoard(spare: usize) -> Vec<File> {
    let mut hoard = Vec::new();
    let error = loop {
        match File::open("/dev/null") {
            Ok(file) => hoard.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(Errno::from_io(&error), Errno::EMFILE);
    hoard.truncate(hoard.len() - spare);
    hoard
}

/// A loop, clients that the kernel has accepted and the loop cannot yet, and everything else that is open.
struct Scene {
    event_loop: Loop,
    events: Events,
    clients: Vec<TcpStream>,
    hoard: Vec<File>,
    listener: ListenerId,
    served: Vec<ConnectionId>,
    closed: Vec<CloseReason>,
    /// With what error, once it has.
    listener_closed: Option<Option<Errno>>,
    /// Times that it told of accepting that failed.
    failures: u64,
    drained: bool,
}

impl Scene {
    /// All clients have sent their number and are queued; the loop has room for `spare` of them.
    fn new(engine: EngineKind, spare: usize) -> Self {
        limit_descriptors(256);
        let (event_loop, address) = listening(config(engine));
        let (listener, _) = event_loop.listeners().next().unwrap();
        let events = Events::with_capacity(256);
        // No turn before the descriptors are gone: where an accept takes one connection at a time (before Linux 5.19), the
        // one that is in flight has its descriptor as soon as the first client comes.
        let clients: Vec<_> = (0..CLIENTS).map(|number| numbered(address, number)).collect();
        let hoard = hoard(spare);
        Self {
            event_loop,
            events,
            clients,
            hoard,
            listener,
            served: Vec::new(),
            closed: Vec::new(),
            listener_closed: None,
            failures: 0,
            drained: false,
        }
    }

    /// One turn; echoes.
    fn turn(&mut self, timeout: Option<Duration>) {
        self.event_loop.turn([], &mut self.events, timeout).unwrap();
        for event in self.events.drain() {
            match event {
                Event::Accepted { connection, .. } => self.served.push(connection),
                // With a token, as a turn may wait on while it alone knows that a send has ended.
                Event::Data { connection, data } => self.event_loop.send(connection, data, Token(1)).unwrap(),
                Event::Closed { reason, .. } => self.closed.push(reason),
                Event::ListenerClosed { listener, error } => {
                    assert_eq!(listener, self.listener);
                    assert!(self.listener_closed.replace(error).is_none(), "it closes once");
                }
                Event::AcceptFailed { listener, error } => {
                    assert_eq!((listener, error), (self.listener, Errno::EMFILE));
                    self.failures += 1;
                }
                Event::Drained => self.drained = true,
                Event::Sent { .. } | Event::EndOfStream { .. } | Event::Draining => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Turns until `wanted` connections were accepted.
    fn serve(&mut self, wanted: usize) {
        while self.served.len() < wanted {
            self.turn(None);
        }
        assert_eq!(self.served.len(), wanted);
    }

    /// Turns until accepting has failed once more than `before`.
    fn starve(&mut self, before: u64) {
        while self.event_loop.counters().accept_paused_resources <= before {
            self.turn(None);
        }
        assert!(self.failures > 0, "it is told of");
    }

    /// Every client has its answer: turns as long as one of them has not.
    fn all_answered(&mut self) {
        self.serve(CLIENTS);
        let mut clients = std::mem::take(&mut self.clients);
        let expected = (CLIENTS * size_of::<u64>()) as u64;
        while self.event_loop.counters().sent_bytes < expected {
            self.turn(None);
        }
        for (number, client) in clients.iter_mut().enumerate() {
            let mut answer = [0; size_of::<u64>()];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(u64::from_ne_bytes(answer), number as u64);
        }
    }
}

fn numbered(address: SocketAddr, number: usize) -> TcpStream {
    let mut client = client(address);
    client.write_all(&(number as u64).to_ne_bytes()).unwrap();
    client
}

/// Runs `child` in a process of its own for each engine.
fn in_children(test: &str, child: impl FnOnce(EngineKind)) {
    guard(60);
    match case() {
        None => engines()
            .into_iter()
            .for_each(|engine| run_child(test, &format!("{test} {engine}"))),
        Some(case) => {
            if let Some(name) = case.strip_prefix(&format!("{test} ")) {
                let engines = [EngineKind::Epoll, EngineKind::Uring];
                child(engines.into_iter().find(|engine| engine.name() == name).unwrap());
            }
        }
    }
}

#[test]
fn accepting_goes_on_when_the_loop_closes_something() {
    in_children("accepting_goes_on_when_the_loop_closes_something", |engine| {
        let mut scene = Scene::new(engine, 3);
        scene.serve(3);
        scene.starve(0);
        // Each close makes room for one more, at once: these waits are not for the back-off, which is put out of reach
        // first, of all but a very slow machine.
        while scene.event_loop.counters().accept_paused_resources < 8 {
            scene.turn(None);
        }
        let (mut closes, mut by_timer) = (0, 0);
        while scene.served.len() < CLIENTS {
            let served = scene.served.len();
            let received = (served * size_of::<u64>()) as u64;
            while scene.event_loop.counters().sent_bytes < received {
                scene.turn(None);
            }
            let connection = scene.served[served - 1];
            scene.event_loop.abort(connection).unwrap();
            let timers = scene.event_loop.counters().timers_fired;
            scene.serve(served + 1);
            closes += 1;
            by_timer += u32::from(scene.event_loop.counters().timers_fired != timers);
        }
        assert!(
            by_timer < closes / 2,
            "{engine}: of {closes} closes, {by_timer} needed the back-off's timer"
        );
    });
}

#[test]
fn accepting_goes_on_by_itself_when_others_close() {
    in_children("accepting_goes_on_by_itself_when_others_close", |engine| {
        let mut scene = Scene::new(engine, 2);
        scene.serve(2);
        scene.starve(0);
        // A turn waits here for nothing but the back-off: each one is either that timer or an answer of a
        // client that was accepted before. A spinning loop makes thousands.
        let before = scene.event_loop.counters();
        let begin = Instant::now();
        while scene.event_loop.counters().accept_paused_resources < before.accept_paused_resources + 5 {
            scene.turn(None);
        }
        let turns = scene.event_loop.counters().turns - before.turns;
        assert!(turns <= 40, "{engine}: {turns} turns for 5 attempts");
        // 10 ms, then twice as long each time. Timers never come early, so this holds on any machine.
        let waited = begin.elapsed();
        assert!(
            waited >= Duration::from_millis(150),
            "{engine}: 5 attempts in {waited:?}"
        );
        assert_eq!(scene.served.len(), 2);
        // Room is made elsewhere in the process, of which nobody tells the loop.
        drop(std::mem::take(&mut scene.hoard));
        scene.all_answered();
    });
}

/// Whatever the reason, accepting that fails again and again is tried less and less often once nothing is left to be
/// closed: five more pauses begin with one that has begun already, then take 20 ms, 40 ms and so on at least. Timers
/// never come early.
fn is_tried_without_a_spin(event_loop: &mut Loop) {
    let mut events = Events::with_capacity(256);
    let mut turns = 0;
    let mut turn = |event_loop: &mut Loop| {
        turns += 1;
        assert!(turns <= 200, "it spins");
        event_loop.turn([], &mut events, None).unwrap();
        for event in events.drain() {
            assert!(!matches!(event, Event::ListenerClosed { .. }), "{event:?}");
        }
        event_loop.counters()
    };
    let mut now = turn(event_loop);
    while now.connections > 0 || now.accept_paused_resources == 0 {
        now = turn(event_loop);
    }
    let before = now.accept_paused_resources;
    let begin = Instant::now();
    while now.accept_paused_resources < before + 5 {
        now = turn(event_loop);
    }
    assert!(begin.elapsed() >= Duration::from_millis(150));
}

#[test]
fn accepting_that_is_forbidden_does_not_spin() {
    in_children("accepting_that_is_forbidden_does_not_spin", |engine| {
        let (mut event_loop, address) = listening(config(engine));
        let mut events = Events::with_capacity(1);
        event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
        if engine == EngineKind::Epoll {
            // As a security module does; what is queued stays there (`accept(2)`).
            deny([libc::SYS_accept4], libc::EPERM);
            let _client = client(address);
            is_tried_without_a_spin(&mut event_loop);
        }
    });
}

/// What is queued for a stopped listener cannot be taken either: that is not taken for an empty queue.
#[test]
fn a_stopped_listener_that_may_not_accept_says_so() {
    in_children("a_stopped_listener_that_may_not_accept_says_so", |engine| {
        if engine != EngineKind::Epoll {
            // Accepts inside the kernel, where no filter reaches: nothing would be queued.
            return;
        }
        let mut scene = Scene::new(engine, 0);
        scene.starve(0);
        deny([libc::SYS_accept4], libc::EPERM);
        scene.hoard.clear();
        scene.event_loop.stop_listening(scene.listener).unwrap();
        while scene.listener_closed.is_none() {
            scene.turn(None);
        }
        assert_eq!(scene.listener_closed, Some(Some(Errno::new(libc::EPERM))));
        assert!(scene.served.is_empty());
        // The descriptor itself is closed with the next submission.
        scene.turn(Some(Duration::ZERO));
        all_reset(&mut scene.clients);
    });
}

/// The user's limit on epoll registrations is used up (`epoll(7)`, `max_user_watches`). A loop registers its listener
/// anew every now and then, and cannot.
#[test]
fn registrations_used_up_do_not_make_the_loop_spin() {
    in_children("registrations_used_up_do_not_make_the_loop_spin", |engine| {
        let (mut event_loop, address) = listening(config(engine));
        let mut events = Events::with_capacity(1);
        event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
        if engine == EngineKind::Epoll {
            let adds = SeccompCondition::new(
                1,
                SeccompCmpArgLen::Dword,
                SeccompCmpOp::Eq,
                libc::EPOLL_CTL_ADD as u64,
            );
            let rule = SeccompRule::new(vec![adds.unwrap()]).unwrap();
            deny_if([(libc::SYS_epoll_ctl, vec![rule])], libc::ENOSPC);
            let _clients: Vec<_> = (0..CLIENTS).map(|_| client(address)).collect();
            is_tried_without_a_spin(&mut event_loop);
        }
    });
}

/// Not even one connection was accepted: there is nothing that the loop itself could close.
#[test]
fn nothing_is_lost_without_any_room() {
    in_children("nothing_is_lost_without_any_room", |engine| {
        let mut scene = Scene::new(engine, 0);
        scene.starve(2);
        assert!(scene.served.is_empty());
        drop(scene.hoard.pop());
        scene.serve(1);
        let failures = scene.event_loop.counters().accept_paused_resources;
        scene.starve(failures);
        scene.hoard.clear();
        scene.all_answered();
    });
}

/// Every client that was queued and not accepted is told so.
fn all_reset(clients: &mut [TcpStream]) {
    for client in clients {
        let error = end_of(client).unwrap_err();
        assert_eq!(Errno::from_io(&error).code(), libc::ECONNRESET);
    }
}

#[test]
fn a_stopped_listener_gives_up_after_its_tries() {
    in_children("a_stopped_listener_gives_up_after_its_tries", |engine| {
        let mut scene = Scene::new(engine, 0);
        scene.starve(0);
        let before = scene.event_loop.counters().accept_paused_resources;
        scene.event_loop.stop_listening(scene.listener).unwrap();
        while scene.listener_closed.is_none() {
            scene.turn(None);
        }
        assert_eq!(scene.listener_closed, Some(Some(Errno::EMFILE)), "{engine}");
        // The first, ten tries again, and one that may have been in flight when it was stopped.
        let tries = scene.event_loop.counters().accept_paused_resources - before;
        assert!((11..=12).contains(&tries), "{engine}: {tries} tries");
        assert!(scene.served.is_empty());
        // The descriptor itself is closed with the next submission.
        scene.turn(Some(Duration::ZERO));
        all_reset(&mut scene.clients);
    });
}

#[test]
fn a_stopped_listener_takes_what_is_queued_once_there_is_room() {
    in_children(
        "a_stopped_listener_takes_what_is_queued_once_there_is_room",
        |engine| {
            let mut scene = Scene::new(engine, 0);
            scene.starve(0);
            scene.event_loop.stop_listening(scene.listener).unwrap();
            let failures = scene.event_loop.counters().accept_paused_resources;
            scene.starve(failures + 2);
            assert_eq!(scene.listener_closed, None);
            // Room for some: the count of tries begins anew with each that is accepted.
            scene.hoard.truncate(scene.hoard.len() - 2);
            scene.serve(2);
            let failures = scene.event_loop.counters().accept_paused_resources;
            scene.starve(failures + 2);
            assert_eq!(scene.listener_closed, None);
            scene.hoard.clear();
            scene.all_answered();
            while scene.listener_closed.is_none() {
                scene.turn(None);
            }
            assert_eq!(scene.listener_closed, Some(None), "{engine}");
        },
    );
}

/// Its deadline passes with connections that do not end and a listener that cannot take what is queued.
#[test]
fn an_overdue_drain_aborts_what_is_left_and_says_that_it_has_drained() {
    in_children(
        "an_overdue_drain_aborts_what_is_left_and_says_that_it_has_drained",
        |engine| {
            let mut scene = Scene::new(engine, 3);
            scene.serve(3);
            scene.starve(0);
            let begin = Instant::now();
            scene.event_loop.drain(Duration::from_millis(50));
            while !scene.drained {
                scene.turn(None);
            }
            assert!(begin.elapsed() < PATIENCE);
            assert_eq!(scene.event_loop.counters().connections, 0);
            assert_eq!(
                scene.closed,
                vec![CloseReason::Local; scene.served.len()],
                "{engine}"
            );
            assert!(scene.listener_closed.is_some());
            scene.turn(Some(Duration::ZERO));
            let mut clients = std::mem::take(&mut scene.clients);
            for client in &mut clients {
                // Those that were served have their answer first.
                let mut answer = Vec::new();
                let error = client.read_to_end(&mut answer).unwrap_err();
                assert_eq!(Errno::from_io(&error).code(), libc::ECONNRESET, "{engine}");
                assert!(answer.is_empty() || answer.len() == size_of::<u64>());
            }
        },
    );
}
