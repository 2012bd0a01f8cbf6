//! What one run of tasks consists of, drawn from its seed.

use std::net::SocketAddr;

use quoit::{Address, Config};
use quoit_sim_kernel::faults::{Fault, Profile};
use quoit_sim_kernel::kernel::{Answer, Ending, PeerPlan};
use quoit_sim_kernel::random::Random;

use super::datagrams::plan::AsyncDatagrams;
use super::race::{Race, draw_race};
use crate::datagrams::plan::DatagramPlan;
use crate::options::Options;

/// Bytes for sends that are more than copies take, which count as 2 KiB at least.
const AMPLE: u32 = 512 * 1024;
/// The most lives of one run.
const MOST_LIVES: u64 = 24;
/// The most lives with Unix sockets that are added to them.
const MOST_UNIX_LIVES: u64 = 12;
/// How many runs have any of those, out of 1,024, and how many connect to several addresses.
const SHARE_WITH_UNIX: u32 = 300;
const SHARE_WITH_RACES: u32 = 400;
/// Streams of random numbers of these runs begin here.
pub(super) const PURPOSE: u64 = 400;

/// Whether the tasks of a seed are in a runtime on the loop's thread, as with `serve`; if not, they are on another thread, as
/// beside `Loops`.
#[must_use]
pub fn is_in_a_runtime(seed: u64) -> bool {
    Random::new(seed, PURPOSE).chance(512)
}

/// Mostly the loop has more memory for sends than copies of what was received can take of it.
pub fn draw_memory(seed: u64, config: &mut Config) {
    if Random::new(seed, PURPOSE + 4).chance(700) {
        config.send_chunks = AMPLE / config.send_chunk_size;
    }
}

/// Whether it has not: then those who hold what they have received may keep others from sending, until the stall limit.
#[must_use]
pub fn is_tight(config: &Config) -> bool {
    config.send_chunks * config.send_chunk_size < AMPLE
}

/// How a task treats its stream.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// Things that it does before it sends its end and reads to that of the peer.
    pub acts: u32,
    /// Bytes of one write, at most.
    pub longest: u64,
    /// Bytes of one read, at most.
    pub gulp: u64,
    /// Chances, out of 1,024, on an occasion: that it writes, and not reads.
    pub talk: u32,
    /// That it lets a future wait only for a while, or not at all.
    pub drops: u32,
    /// That it rests.
    pub rests: u32,
    /// That it keeps a lease.
    pub keeps: u32,
    /// That it ends its stream early, in whatever way.
    pub ends: u32,
    /// That it goes on as another task, or as two.
    pub moves: u32,
}

/// One connection's life.
#[derive(Clone, Debug)]
pub struct Life {
    /// What the other end does.
    pub peer: PeerPlan,
    /// How the task treats its stream.
    pub style: Style,
    /// A task connects after so many nanoseconds, if one is to.
    pub connect_after: Option<u64>,
    /// And gives up after so many more.
    pub patience: Option<u64>,
    /// It has other addresses to connect to beside the one of the peer.
    pub race: Option<Race>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct AsyncPlan {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where it listens for Unix connections, if it does.
    pub unix_address: Option<Address>,
    /// Connections that the kernel queues.
    pub backlog: u32,
    /// Tasks that accept.
    pub acceptors: u32,
    /// The lives.
    pub lives: Vec<Life>,
    /// Chances, out of 1,024, in a turn: that a task is ended wherever it is.
    pub aborts: u32,
    /// That the listener is dropped.
    pub stops_listening: u32,
    /// That the loop is drained.
    pub drains: u32,
    /// That something is posted to the loop from another thread.
    pub posts: u32,
    /// The datagram sockets, whose lives are numbered behind those.
    pub datagrams: AsyncDatagrams,
}

impl AsyncPlan {
    /// How many peers there are, those of which a connection may be had at once.
    pub(super) fn peers(&self) -> usize {
        let others = self.lives.iter().filter_map(|life| life.race.as_ref());
        self.lives.len() + others.map(|race| race.others.len()).sum::<usize>()
    }

    /// The run of a seed.
    #[must_use]
    pub fn draw(options: &Options, turns: u32, profile: &Profile, datagrams: &DatagramPlan) -> Self {
        let random = &mut Random::new(options.seed, PURPOSE + 1);
        let address = ([127, 0, 0, 1], 8000).into();
        let count = random.magnitude(MOST_LIVES);
        let mut plan = Self {
            address,
            unix_address: None,
            datagrams: AsyncDatagrams::draw(options.seed, turns, datagrams),
            backlog: random.magnitude(64) as u32,
            acceptors: *random.choose(&[1, 1, 2, 3]),
            aborts: *random.choose(&[0, 0, 5, 40]),
            stops_listening: *random.choose(&[0, 0, 0, 10]),
            drains: *random.choose(&[0, 0, 0, 10]),
            posts: *random.choose(&[0, 50, 500]),
            lives: (0..count)
                .map(|number| draw_life(options, number, turns, profile, address.into()))
                .collect(),
        };
        // What came later has numbers of its own, so that the rest of a seed is as it was.
        let random = &mut Random::new(options.seed, PURPOSE + 5);
        if random.chance(SHARE_WITH_RACES) {
            for (number, life) in plan.lives.iter_mut().enumerate() {
                life.race = draw_race(options, number as u64, life, profile);
            }
        }
        if random.chance(SHARE_WITH_UNIX) {
            let listener = Address::UnixAbstract((*b"tasks").into());
            plan.lives.extend(
                (count..count + random.magnitude(MOST_UNIX_LIVES))
                    .map(|number| draw_life(options, number, turns, profile, listener.clone())),
            );
            plan.unix_address = Some(listener);
        }
        plan
    }
}

fn draw_life(options: &Options, number: u64, turns: u32, profile: &Profile, listener: Address) -> Life {
    let random = &mut Random::new(options.seed, PURPOSE + 1000 + number);
    let style = Style {
        acts: random.magnitude(60) as u32,
        longest: *random.choose(&[20, 1500, 20_000]),
        gulp: *random.choose(&[1, 300, 16_384]),
        talk: *random.choose(&[100, 400, 700]),
        drops: *random.choose(&[0, 200, 600, 900]),
        rests: *random.choose(&[0, 30, 200]),
        keeps: *random.choose(&[0, 0, 300]),
        ends: *random.choose(&[0, 0, 20, 100]),
        moves: *random.choose(&[0, 20, 100]),
    };
    let has =
        |random: &mut Random, fault| random.chance(profile.chance(fault)) && !options.without.contains(fault);
    let acts = random.magnitude(60) as u32;
    // Each is drawn whether or not it is used, so that leaving a fault out changes nothing else.
    let endings = [
        has(random, Fault::PeerReset).then_some(Ending::Reset(acts)),
        has(random, Fault::PeerClose).then_some(Ending::Close(acts)),
        has(random, Fault::PeerLost).then_some(Ending::Lost(acts, libc::ETIMEDOUT)),
        has(random, Fault::PeerSilent).then_some(Ending::Silent(acts)),
        random.chance(400).then_some(Ending::EndFirst),
    ];
    let ending = endings.into_iter().flatten().next().unwrap_or(Ending::ReadFirst);
    let slow = has(random, Fault::PeerSlow);
    let after = random.magnitude(2_000_000);
    let answers = [
        Answer::Refuse,
        Answer::Never,
        Answer::Lose {
            after,
            error: libc::EHOSTUNREACH,
        },
    ];
    let answer = *random.choose(&answers);
    let answer = if has(random, Fault::ConnectFails) {
        answer
    } else {
        Answer::Accept { after }
    };
    let incoming = random.chance(800);
    let start = random.magnitude(u64::from(turns) * 10_000);
    let own = if listener.is_unix() {
        Address::UnixAbstract(format!("peer-{number}").into_bytes().into())
    } else {
        Address::Tcp(([10, 0, 0, number as u8], 80).into())
    };
    let patience = random.chance(300).then(|| random.magnitude(4_000_000_000));
    Life {
        peer: PeerPlan::draw_ordinary(
            random,
            if incoming { listener } else { own },
            incoming.then_some(start),
            answer,
            (slow, ending),
        ),
        style,
        connect_after: (!incoming).then_some(start),
        patience,
        race: None,
    }
}
