//! What many ends in one turn cost, counted in entries of lists that are looked at: as much for each, however many there are.

use std::time::Duration;

use quoit::internals::LoopMemory;
use quoit::internals::engine::Engine;
use quoit::internals::engine::epoll::{EpollEngine, EpollSettings};
use quoit::{Config, Event, Events, ListenerOptions, Loop, LoopIndex, Refusal, Token};
use quoit_sim_kernel::faces::{SimEpoll, SimSockets};
use quoit_sim_kernel::faults::Profile;
use quoit_sim_kernel::kernel::{self, Answer, Ending, Kernel, Manner, PeerPlan};
use quoit_sim_kernel::random::Random;

/// Ends so many connections in one turn, most of which wait for memory to send from, and counts.
fn cost_of_ending(many: u32, engine: impl Engine, memory: LoopMemory, config: Config) -> u64 {
    let mut event_loop = Loop::with_engine(
        LoopIndex::default(),
        config,
        memory,
        engine,
        String::new(),
        SimSockets,
    );
    let address: std::net::SocketAddr = ([127, 0, 0, 1], 8000).into();
    let mut options = ListenerOptions::default();
    options.listen.backlog = many;
    event_loop
        .listen(&address.into(), &options)
        .expect("nothing is in the way");
    for number in 0..many {
        let peer = PeerPlan {
            address: address.into(),
            start: Some(u64::from(number)),
            answer: Answer::Accept { after: 0 },
            total: 1,
            piece: 1,
            gulp: 1,
            pause: 1,
            slow: false,
            ending: Ending::ReadFirst,
            manner: Manner::NeverReads,
        };
        kernel::with(|kernel| kernel.add_peer(peer, Random::new(u64::from(number), 0)));
    }
    let (mut events, mut opened, mut refused) = (Events::with_capacity(1024), Vec::new(), 0);
    while opened.len() < many as usize {
        event_loop
            .turn([], &mut events, Some(Duration::from_millis(1)))
            .expect("nothing is in the way");
        for event in events.drain() {
            if let Event::Accepted { connection, .. } = event {
                opened.push(connection);
            }
        }
    }
    let bytes = vec![0; 200_000];
    for &connection in &opened {
        let sent = event_loop.send(connection, &bytes[..], Token::NONE);
        refused += u32::from(matches!(sent, Err(Refusal::Full)));
    }
    assert!(refused > many * 9 / 10, "{refused} of {many} wait for memory");
    let before = event_loop.entries_looked_at();
    for &connection in &opened {
        event_loop.abort(connection).expect("nothing is in the way");
    }
    let mut closed = 0;
    while closed < many {
        event_loop
            .turn([], &mut events, Some(Duration::from_millis(1)))
            .expect("nothing is in the way");
        let ends = |event: &Event| matches!(event, Event::Closed { .. });
        closed += events.drain().filter(ends).count() as u32;
    }
    event_loop.entries_looked_at() - before
}

fn config(many: u32) -> Config {
    Config {
        connections: many,
        send_chunks: 64,
        ..Config::default()
    }
}

fn on_epoll(many: u32) -> u64 {
    in_kernel(|| {
        let config = config(many);
        let memory = LoopMemory::new(LoopIndex::default(), &config).expect("nothing is in the way");
        let engine = EpollEngine::<SimEpoll, _>::new(EpollSettings::default(), SimSockets)
            .expect("nothing is in the way");
        cost_of_ending(many, engine, memory, config)
    })
}

fn in_kernel<T>(body: impl FnOnce() -> T) -> T {
    kernel::install(Kernel::new(1, Profile::kind(), 65_536, false));
    let result = body();
    kernel::remove();
    result
}

#[test]
fn many_ends_in_one_turn_cost_as_much_each_as_a_few() {
    let (few, many) = (on_epoll(1000), on_epoll(10_000));
    assert!(
        many > 0 && many <= 11 * few,
        "1,000 cost {few}, 10,000 cost {many}"
    );
}
