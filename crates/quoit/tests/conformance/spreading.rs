//! Several loops behind one address.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use std::os::unix::net::UnixStream;

use quoit::{
    Accept, Address, AttachOptions, Config, ConnectionId, Event, Events, Handler, Lease, Listen, ListenerId,
    ListenerOptions, Loop, LoopIndex, Runtime, RuntimeConfig, Spread, Token,
};

use crate::driver::loopback;
use crate::levels::Level;
use crate::sockets::{Client, PATIENCE, pattern};

macro_rules! spreading {
    ($level:ident) => {
        tests! { $level, spreading: handed_over shared a_port_for_each the_runtime_drains
        what_is_queued_at_a_drain_goes_where_there_is_room a_loop_that_drains_is_handed_nothing
        a_loop_that_drains_is_passed_over who_finds_all_loops_full_waits_until_one_has_room
        who_finds_all_loops_full_at_a_stop_waits_until_one_has_room }
    };
}

const LOOPS: u16 = 3;
const CLIENTS: usize = 60;

#[derive(Clone, Default)]
struct Counts {
    accepted: Arc<[AtomicU32; LOOPS as usize]>,
    closed: Arc<AtomicU32>,
}

struct Echo(Counts);

impl Handler for Echo {
    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, _: ListenerId) {
        assert_eq!(connection.loop_index(), event_loop.index());
        let index = usize::from(event_loop.index().get());
        self.0.accepted[index].fetch_add(1, Ordering::SeqCst);
    }

    fn on_data(&mut self, event_loop: &mut Loop, connection: ConnectionId, data: Lease) {
        event_loop.send(connection, data, Token::NONE).unwrap();
    }

    fn on_closed(&mut self, _: &mut Loop, _: ConnectionId, _: Token, _: quoit::CloseReason) {
        self.0.closed.fetch_add(1, Ordering::SeqCst);
    }
}

fn start(level: &Level, address: Address, spread: Spread) -> Result<(Runtime, Counts), quoit::StartError> {
    let counts = Counts::default();
    let config = RuntimeConfig {
        loops: LOOPS,
        config: Config {
            connections: 256,
            ..level.config()
        },
        listeners: vec![(Listen::Address(address), ListenerOptions::default())],
        spread,
        ..RuntimeConfig::default()
    };
    let shared = counts.clone();
    let runtime = Runtime::start(config, move |_| Echo(shared.clone()))?;
    Ok((runtime, counts))
}

/// All clients are served, all at once; returns how many connections each loop has accepted.
fn serve(level: &Level, spread: Spread) -> Vec<u32> {
    let (runtime, counts) = start(level, loopback(), spread).unwrap();
    let address = runtime.addresses()[0].clone();
    let mut clients = Vec::new();
    for index in 0..CLIENTS {
        let mut client = Client::connect(&address);
        client.send(&pattern(index, 500));
        assert_eq!(client.receive(500), pattern(index, 500));
        clients.push(client);
    }
    for (index, client) in clients.iter_mut().enumerate() {
        client.send(&pattern(index, 500));
        client.shutdown();
        let (bytes, result) = client.receive_rest();
        result.unwrap();
        assert_eq!(bytes, pattern(index, 500));
    }
    let second = start(level, address, spread);
    assert_eq!(second.is_ok(), spread == Spread::ReusePort);
    drop(second);
    runtime.drain(Duration::from_secs(20));
    runtime.join().unwrap();
    assert_eq!(counts.closed.load(Ordering::SeqCst), CLIENTS as u32);
    let accepted = counts.accepted.iter();
    accepted.map(|count| count.load(Ordering::SeqCst)).collect()
}

pub(crate) fn handed_over(level: &Level) {
    // Each connection is open when the next comes, so they are dealt out in turn.
    let share = CLIENTS as u32 / u32::from(LOOPS);
    assert_eq!(serve(level, Spread::HandOver), vec![share; LOOPS as usize]);
}

pub(crate) fn shared(level: &Level) {
    let accepted = serve(level, Spread::Shared);
    assert_eq!(accepted.iter().sum::<u32>(), CLIENTS as u32);
}

pub(crate) fn a_port_for_each(level: &Level) {
    let accepted = serve(level, Spread::ReusePort);
    assert_eq!(accepted.iter().sum::<u32>(), CLIENTS as u32);
}

/// Dropping a runtime aborts; draining waits for the clients.
pub(crate) fn the_runtime_drains(level: &Level) {
    let (runtime, _) = start(level, loopback(), Spread::HandOver).unwrap();
    let mut client = Client::connect(&runtime.addresses()[0]);
    client.send(b"hello");
    assert_eq!(client.receive(5), b"hello");
    runtime.drain(Duration::from_secs(20));
    client.send(b"still");
    assert_eq!(client.receive(5), b"still");
    client.shutdown();
    client.expect_end();
    runtime.join().unwrap();

    let (runtime, counts) = start(level, loopback(), Spread::HandOver).unwrap();
    let mut client = Client::connect(&runtime.addresses()[0]);
    client.send(b"hello");
    assert_eq!(client.receive(5), b"hello");
    drop(runtime);
    client.expect_reset();
    assert_eq!(counts.closed.load(Ordering::SeqCst), 1);
}

/// Connections that say nothing, and their peers' ends.
fn fill(event_loop: &mut Loop, connections: u32) -> Vec<UnixStream> {
    let attach = |_| {
        let (near, far) = UnixStream::pair().unwrap();
        event_loop
            .attach(near.into(), &AttachOptions::default(), Token::NONE)
            .unwrap();
        far
    };
    (0..connections).map(attach).collect()
}

/// A loop that drains may end at any moment, and what it was handed would be reset.
pub(crate) fn a_loop_that_drains_is_handed_nothing(level: &Level) {
    let indices = [0, 1].map(|index| LoopIndex::new(index).unwrap());
    let [mut accepting, mut draining] = indices.map(|index| Loop::new(index, level.config()).unwrap());
    let mut events = Events::with_capacity(64);
    let options = ListenerOptions {
        // The one that drains has fewer connections for all of the test.
        accept: Accept::Spread([draining.remote(), accepting.remote()].into()),
        ..ListenerOptions::default()
    };
    let listener = accepting.listen(&loopback(), &options).unwrap();
    let address = accepting.listener_address(listener).unwrap();
    draining.drain(PATIENCE);
    while !events.drain().any(|event| matches!(event, Event::Drained)) {
        draining.turn([], &mut events, Some(PATIENCE)).unwrap();
    }
    let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&address)).collect();
    let mut accepted = 0;
    let begin = Instant::now();
    while accepted < clients.len() {
        assert!(
            begin.elapsed() < PATIENCE,
            "{accepted} of {} are accepted",
            clients.len()
        );
        accepting.turn([], &mut events, Some(PATIENCE)).unwrap();
        for event in events.drain() {
            if let Event::Accepted { connection, .. } = event {
                accepting.send(connection, b"hello", Token::NONE).unwrap();
                accepted += 1;
            }
        }
    }
    drop(draining);
    accepting.turn([], &mut events, Some(Duration::ZERO)).unwrap();
    for client in &mut clients {
        assert_eq!(client.receive(5), b"hello");
    }
}

/// The loop that accepts is full, the one with the fewest connections drains, and a third has room.
pub(crate) fn a_loop_that_drains_is_passed_over(level: &Level) {
    const ROOM: u32 = 4;
    let config = Config {
        connections: ROOM,
        ..level.config()
    };
    let indices = [0, 1, 2].map(|index| LoopIndex::new(index).unwrap());
    let [mut accepting, mut draining, mut third] =
        indices.map(|index| Loop::new(index, config.clone()).unwrap());
    let mut events = Events::with_capacity(64);
    let _peers = (fill(&mut accepting, ROOM), fill(&mut third, 1));
    draining.drain(PATIENCE);
    while !events.drain().any(|event| matches!(event, Event::Drained)) {
        draining.turn([], &mut events, Some(PATIENCE)).unwrap();
    }
    let options = ListenerOptions {
        accept: Accept::Spread([accepting.remote(), draining.remote(), third.remote()].into()),
        ..ListenerOptions::default()
    };
    let listener = accepting.listen(&loopback(), &options).unwrap();
    let address = accepting.listener_address(listener).unwrap();
    let mut clients: Vec<_> = (1..ROOM).map(|_| Client::connect(&address)).collect();
    let mut accepted = 0;
    let begin = Instant::now();
    while accepted < clients.len() {
        assert!(
            begin.elapsed() < PATIENCE,
            "{accepted} of {} are accepted",
            clients.len()
        );
        accepting
            .turn([], &mut events, Some(Duration::from_millis(1)))
            .unwrap();
        third
            .turn([], &mut events, Some(Duration::from_millis(1)))
            .unwrap();
        for event in events.drain() {
            if let Event::Accepted { connection, .. } = event {
                assert_eq!(connection.loop_index(), indices[2]);
                third.send(connection, b"hello", Token::NONE).unwrap();
                accepted += 1;
            }
        }
    }
    third.turn([], &mut events, Some(Duration::ZERO)).unwrap();
    for client in &mut clients {
        assert_eq!(client.receive(5), b"hello");
    }
}

/// The loop that accepts is full when it stops, and another is not.
pub(crate) fn what_is_queued_at_a_drain_goes_where_there_is_room(level: &Level) {
    const ROOM: u32 = 4;
    let config = Config {
        connections: ROOM,
        ..level.config()
    };
    let indices = [0, 1].map(|index| LoopIndex::new(index).unwrap());
    let mut loops = indices.map(|index| Loop::new(index, config.clone()).unwrap());
    let mut events = Events::with_capacity(64);
    let _peers = fill(&mut loops[0], ROOM);
    let accept = Accept::Spread(loops.iter().map(Loop::remote).collect());
    let options = ListenerOptions {
        accept,
        ..ListenerOptions::default()
    };
    let listener = loops[0].listen(&loopback(), &options).unwrap();
    let address = loops[0].listener_address(listener).unwrap();
    let mut clients: Vec<_> = (0..ROOM).map(|_| Client::connect(&address)).collect();
    loops[0].stop_listening(listener).unwrap();
    let mut accepted = 0;
    let begin = Instant::now();
    while accepted < ROOM {
        assert!(begin.elapsed() < PATIENCE, "{accepted} of {ROOM} are accepted");
        for one in &mut loops {
            one.turn([], &mut events, Some(Duration::from_millis(1))).unwrap();
            for event in events.drain() {
                if let Event::Accepted { connection, .. } = event {
                    assert_eq!(connection.loop_index(), indices[1]);
                    accepted += 1;
                }
            }
        }
    }
    for client in &mut clients {
        client.send(b"hello");
    }
    let mut received = 0;
    while received < ROOM {
        loops[1].turn([], &mut events, Some(PATIENCE)).unwrap();
        received += events
            .drain()
            .filter(|event| matches!(event, Event::Data { .. }))
            .count() as u32;
    }
}

/// Several loops that turn one after the other, and what they have accepted.
struct Turned {
    loops: Vec<Loop>,
    events: Events,
    accepted: Vec<ConnectionId>,
    listeners_closed: usize,
}

impl Turned {
    fn new(config: &Config) -> Self {
        let new = |index| Loop::new(LoopIndex::new(index).unwrap(), config.clone()).unwrap();
        Self {
            loops: [0, 1].map(new).into(),
            events: Events::with_capacity(64),
            accepted: Vec::new(),
            listeners_closed: 0,
        }
    }

    /// Listens at the first loop, for all.
    fn listen(&mut self) -> (ListenerId, Address) {
        let options = ListenerOptions {
            accept: Accept::Spread(self.loops.iter().map(Loop::remote).collect()),
            ..ListenerOptions::default()
        };
        let listener = self.loops[0].listen(&loopback(), &options).unwrap();
        (listener, self.loops[0].listener_address(listener).unwrap())
    }

    fn turn(&mut self) {
        for one in &mut self.loops {
            one.turn([], &mut self.events, Some(Duration::from_millis(1)))
                .unwrap();
            for event in self.events.drain() {
                match event {
                    Event::Accepted { connection, .. } => {
                        one.send(connection, b"hello", Token::NONE).unwrap();
                        self.accepted.push(connection);
                    }
                    Event::ListenerClosed { error: None, .. } => self.listeners_closed += 1,
                    Event::Refused { refusal, .. } => panic!("{refusal:?}"),
                    _ => {}
                }
            }
        }
    }

    fn turn_until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !done(self) {
            assert!(begin.elapsed() < PATIENCE, "{what}: {:?}", self.accepted);
            self.turn();
        }
    }

    /// Closes one connection of the second loop, whose end no other is told.
    fn make_room(&mut self) {
        let last = self.loops.len() - 1;
        let is_its = |one: &ConnectionId| one.loop_index() == self.loops[last].index();
        let at = self.accepted.iter().position(is_its).expect("each has its share");
        let connection = self.accepted.swap_remove(at);
        self.loops[last].abort(connection).unwrap();
    }
}

/// Accepting goes on at one listener until all is taken, and at the other it was allowed before.
pub(crate) fn who_finds_all_loops_full_waits_until_one_has_room(level: &Level) {
    const ROOM: usize = 3;
    let config = Config {
        connections: ROOM as u32,
        ..level.config()
    };
    let mut turned = Turned::new(&config);
    let (_, first) = turned.listen();
    let (_, second) = turned.listen();
    turned.turn();
    let mut clients: Vec<_> = (0..2 * ROOM).map(|_| Client::connect(&first)).collect();
    turned.turn_until("all that there is room for", |turned| {
        turned.accepted.len() == 2 * ROOM
    });
    turned.turn();
    for client in &mut clients {
        assert_eq!(client.receive(5), b"hello");
    }
    let mut late: Vec<_> = [&second, &first, &second].map(Client::connect).into();
    for round in 0..late.len() {
        for _ in 0..100 {
            turned.turn();
        }
        assert_eq!(turned.accepted.len(), 2 * ROOM, "in round {round}");
        assert!(late.iter().all(Client::is_silent), "in round {round}");
        // It is one pause, however often it is tried again meanwhile.
        let before = turned.loops[0].counters();
        assert!(before.accept_paused_full > 0);
        turned.turn_until("another try", |turned| {
            turned.loops[0].counters().timers_fired > before.timers_fired
        });
        let paused = turned.loops[0].counters().accept_paused_full;
        assert_eq!(paused, before.accept_paused_full, "in round {round}");
        turned.make_room();
        let served = |late: &Vec<Client>| late.iter().position(|client| !client.is_silent());
        turned.turn_until("one more", |_| served(&late).is_some());
        let at = served(&late).expect("it was there just now");
        assert_eq!(late.swap_remove(at).receive(5), b"hello");
    }
}

/// The listener stops while all are full, but for one that it has accepted already: it goes on when there is room.
pub(crate) fn who_finds_all_loops_full_at_a_stop_waits_until_one_has_room(level: &Level) {
    const ROOM: usize = 2;
    let config = Config {
        connections: ROOM as u32,
        ..level.config()
    };
    let mut turned = Turned::new(&config);
    let (listener, address) = turned.listen();
    let mut clients: Vec<_> = (1..2 * ROOM).map(|_| Client::connect(&address)).collect();
    turned.turn_until("all but one", |turned| turned.accepted.len() == clients.len());
    // The kernel accepts it, and the place that there was is given away before the loop hears of it.
    clients.push(Client::connect(&address));
    let _peers: Vec<_> = turned
        .loops
        .iter_mut()
        .flat_map(|one| fill(one, ROOM as u32 - one.remote().connections()))
        .collect();
    turned.loops[0].stop_listening(listener).unwrap();
    for _ in 0..100 {
        turned.turn();
    }
    assert_eq!(turned.accepted.len(), 2 * ROOM - 1);
    if !level.is_uring() {
        // Nobody accepts for it while it does not turn. There were no slots when it stopped, so the peer is reset.
        assert_eq!(turned.listeners_closed, 1);
        return;
    }
    turned.make_room();
    turned.turn_until("the one that waits, and the end of the listener", |turned| {
        turned.accepted.len() == 2 * ROOM - 1 && turned.listeners_closed == 1
    });
}
