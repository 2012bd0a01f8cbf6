//! What one run consists of, drawn from its seed: the loop's configuration, the listeners, the lives of connections.

use std::time::Duration;

use quoit::{Address, Config, Feature, FeatureSet, WaitMode};
use quoit_sim_kernel::faults::{Fault, Profile};
use quoit_sim_kernel::kernel::{Answer, Ending, PeerPlan};
use quoit_sim_kernel::random::Random;

use crate::asynchronous::plan::{self as asynchronous, AsyncPlan};
use crate::datagrams::plan::DatagramPlan;
use crate::options::{Options, Workload};
use crate::siege::plan::{self as siege, SiegePlan};
use crate::style::Style;

/// The most lives of one run.
pub const MOST_LIVES: u64 = 50;

/// One connection's life.
#[derive(Clone, Debug)]
pub struct Life {
    /// What the other end does.
    pub peer: PeerPlan,
    /// How the handler treats it.
    pub style: Style,
    /// The handler connects at this turn, if it is to.
    pub connect_at: Option<u32>,
}

/// What becomes of accepted connections: [`quoit::Accept`] without its handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accepted {
    /// They become connections.
    Connections,
    /// They become connections, paused at first.
    Paused,
    /// They are handed out as descriptors.
    Descriptors,
    /// They go to whichever loop has the fewest: this one, or one that has ended and takes none.
    Spread,
}

/// The stream of random numbers that says which runs send pieces at once; none of the seeds that were kept then did.
const PURPOSE_OF_GATHERING: u64 = 234;
/// How many do, out of 1,024.
const SHARE_THAT_GATHERS: u32 = 300;

/// As that, of pausing and resuming listeners; none of the seeds that are kept does.
const PURPOSE_OF_PAUSING: u64 = 280;
const SHARE_THAT_PAUSES: u32 = 200;

/// As those, of how the loop waits: for more than the first event in so many runs of 1,024.
const PURPOSE_OF_WAITING: u64 = 235;
const SHARE_THAT_WAITS_FOR_MORE: u32 = 100;

/// As those, of whose loop waits in a poller of another library.
const PURPOSE_OF_PARKING: u64 = 238;
const SHARE_THAT_PARKS: u32 = 150;

/// As those, of which parked loops are told each write of their notifier once.
const PURPOSE_OF_EDGES: u64 = 241;
const SHARE_THAT_IS_TOLD_EDGES: u32 = 512;

/// As those, of which loops are besieged.
const PURPOSE_OF_SIEGES: u64 = 240;
const SHARE_THAT_IS_BESIEGED: u32 = 20;

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The loop's configuration.
    pub config: Config,
    /// What io_uring has.
    pub features: FeatureSet,
    /// Let the probe find out instead of being told.
    pub probes: bool,
    /// A second loop lives, to which the first listener hands some of what it accepts.
    pub partner: bool,
    /// Where to listen, with what becomes of connections, and the backlog.
    pub listeners: Vec<(Address, Accepted, u32)>,
    /// Pieces are sent at once, behind and before other sends.
    pub gathers: bool,
    /// Listeners are paused and resumed.
    pub pauses_listening: bool,
    /// The lives.
    pub lives: Vec<Life>,
    /// The datagram sockets, whose lives are numbered behind those.
    pub datagrams: DatagramPlan,
    /// How likely faults are.
    pub profile: Profile,
    /// Descriptors that the process may have.
    pub descriptors: usize,
    /// Turns before everything becomes fair.
    pub turns: u32,
    /// Room for events in a turn, at most.
    pub events: u64,
    /// Events reach the handler one by one, as the drivers hand them out, and not all after the turn.
    pub one_by_one: bool,
    /// Whoever waits for a parked loop is told each write of its notifier once, and not that it is readable.
    pub edges: bool,
    /// In place of all those lives, peers that besiege the loop, and some that behave.
    pub siege: Option<SiegePlan>,
    /// In place of the handler, tasks with sockets.
    pub asynchronous: Option<AsyncPlan>,
}

impl Plan {
    /// The run of a seed.
    #[must_use]
    pub fn draw(options: &Options) -> Self {
        let mut random = Random::new(options.seed, 2);
        let mut profile = Profile::draw(&mut random, options.without);
        let mut config = draw_config(&mut random);
        config.wait = draw_wait(&mut Random::new(options.seed, PURPOSE_OF_WAITING));
        let is_async = options.workload == Workload::Async;
        config.pollable = if is_async {
            asynchronous::is_in_a_runtime(options.seed)
        } else {
            Random::new(options.seed, PURPOSE_OF_PARKING).chance(SHARE_THAT_PARKS)
        };
        let mut features = draw_features(&mut random);
        if config.pollable {
            features.remove(Feature::DeferTaskrun);
        }
        // It costs as much as some runs, and does the same each time.
        let probes = random.chance(10);
        let mut listeners = draw_listeners(&mut random);
        let partner = Random::new(options.seed, 11).chance(120);
        if partner {
            listeners[0].1 = Accepted::Spread;
        }
        let count = random.magnitude(MOST_LIVES);
        let turns = random.magnitude(400) as u32;
        let events = *random.choose(&[1, 3, 16, 64, 64]);
        let one_by_one = random.chance(300);
        let descriptors = match random.below(6) {
            0 => 8 + random.magnitude(32) as usize,
            _ => 4096,
        };
        let lives = (0..count)
            .map(|life| draw_life(options, life, turns, &profile, &listeners))
            .collect();
        let datagrams = DatagramPlan::draw(options, turns, &mut profile);
        profile.draw_lasting(&mut Random::new(options.seed, 9), options.without);
        if is_async {
            asynchronous::draw_memory(options.seed, &mut config);
        }
        let asynchronous = is_async.then(|| AsyncPlan::draw(options, turns, &profile, &datagrams));
        let besieged =
            !is_async && Random::new(options.seed, PURPOSE_OF_SIEGES).chance(SHARE_THAT_IS_BESIEGED);
        let siege = besieged.then(|| {
            profile.leave_out(&siege::LEFT_OUT);
            SiegePlan::draw(options, &mut config)
        });
        Self {
            asynchronous,
            siege,
            datagrams,
            gathers: Random::new(options.seed, PURPOSE_OF_GATHERING).chance(SHARE_THAT_GATHERS),
            pauses_listening: Random::new(options.seed, PURPOSE_OF_PAUSING).chance(SHARE_THAT_PAUSES),
            config,
            features,
            probes,
            partner,
            listeners,
            lives,
            profile,
            descriptors,
            edges: Random::new(options.seed, PURPOSE_OF_EDGES).chance(SHARE_THAT_IS_TOLD_EDGES),
            turns: options.turns.map_or(turns, |most| turns.min(most)),
            events,
            one_by_one,
        }
    }
}

impl Plan {
    /// How many lives there are, those of datagram sockets included.
    #[must_use]
    pub fn all_lives(&self) -> usize {
        if let Some(siege) = &self.siege {
            return siege.peers.len();
        }
        if let Some(plan) = &self.asynchronous {
            return plan.lives.len() + plan.datagrams.sockets.len();
        }
        self.lives.len() + self.datagrams.sockets.len()
    }
}

fn draw_wait(random: &mut Random) -> WaitMode {
    if random.chance(SHARE_THAT_WAITS_FOR_MORE) {
        WaitMode::Coalesce(Duration::from_micros(random.magnitude(1000).max(1)))
    } else {
        WaitMode::Block
    }
}

fn draw_config(random: &mut Random) -> Config {
    let submission_queue = *random.choose(&[1, 2, 8, 64]);
    let high_water = 64 + random.magnitude(32_768) as u32;
    Config {
        connections: *random.choose(&[2, 8, 40, 80, 80]),
        listeners: 4,
        timers: *random.choose(&[None, None, Some(3)]),
        receive_slots: *random.choose(&[1, 2, 8, 64, 64]),
        receive_slot_size: *random.choose(&[64, 100, 512, 2048]),
        leases_per_connection: *random.choose(&[1, 2, 4, 16, 64]),
        close_at_lease_limit: random.chance(60),
        high_water,
        low_water: random.below(u64::from(high_water)) as u32,
        send_pieces: *random.choose(&[1, 4, 64, 1024]),
        send_chunk_size: *random.choose(&[64, 256, 1024]),
        send_chunks: *random.choose(&[1, 8, 128]),
        zero_copy_threshold: *random.choose(&[None, None, Some(1), Some(200)]),
        submission_queue,
        completion_queue: submission_queue * random.choose(&[1, 2, 8]),
        buffer_ring: *random.choose(&[1, 2, 8, 32]),
        completions_per_turn: *random.choose(&[1, 5, 64, 1024]),
        receives_per_turn: *random.choose(&[1, 3, 16]),
        inbox: *random.choose(&[1, 4, 64]),
        connect_timeout: Duration::from_nanos(1_000_000 + random.magnitude(5_000_000_000)),
        close_deadline: Duration::from_nanos(1_000_000 + random.magnitude(5_000_000_000)),
        register_pool: random.chance(200),
        kernel_poll: random
            .chance(150)
            .then(|| Duration::from_millis(random.between(1, 50))),
        ..Config::default()
    }
}

fn draw_features(random: &mut Random) -> FeatureSet {
    let features = match random.below(4) {
        0 => FeatureSet::ALL,
        1 => FeatureSet::OLDEST,
        2 => {
            let missing: FeatureSet = [*random.choose(Feature::ALL)].into_iter().collect();
            FeatureSet::ALL.without(missing)
        }
        _ => Feature::ALL
            .iter()
            .copied()
            .filter(|_| random.chance(700))
            .collect(),
    };
    features.usable()
}

fn draw_listeners(random: &mut Random) -> Vec<(Address, Accepted, u32)> {
    let mut listeners = Vec::new();
    for number in 0..random.between(1, 3) {
        let address = if random.chance(650) {
            Address::Tcp(([127, 0, 0, 1], 8000 + number as u16).into())
        } else {
            Address::UnixAbstract(format!("listener-{number}").into_bytes().into())
        };
        let accept = match random.below(8) {
            0 => Accepted::Paused,
            1 => Accepted::Descriptors,
            2 => Accepted::Spread,
            _ => Accepted::Connections,
        };
        listeners.push((address, accept, random.magnitude(64) as u32));
    }
    listeners
}

fn draw_life(
    options: &Options,
    number: u64,
    turns: u32,
    profile: &Profile,
    listeners: &[(Address, Accepted, u32)],
) -> Life {
    let random = &mut Random::new(options.seed, 1000 + number);
    let style = Style {
        echo: *random.choose(&[0, 0, 300, 1024]),
        keep: *random.choose(&[0, 0, 100, 500]),
        elsewhere: *random.choose(&[0, 0, 100, 700]),
        talk: *random.choose(&[0, 50, 300]),
        longest: *random.choose(&[50, 1500, 20_000]),
        meddle: *random.choose(&[0, 20, 150]),
        end: *random.choose(&[0, 50, 400]),
    };
    let has =
        |random: &mut Random, fault| random.chance(profile.chance(fault)) && !options.without.contains(fault);
    let acts = random.magnitude(60) as u32;
    // Each is drawn whether or not it is used, so that leaving a fault out changes nothing else.
    let endings = [
        has(random, Fault::PeerReset).then_some(Ending::Reset(acts)),
        has(random, Fault::PeerClose).then_some(Ending::Close(acts)),
        has(random, Fault::PeerLost).then_some(Ending::Lost(
            acts,
            *random.choose(&[libc::ETIMEDOUT, libc::EHOSTUNREACH]),
        )),
        has(random, Fault::PeerSilent).then_some(Ending::Silent(acts)),
        has(random, Fault::PeerHalfClose).then_some(Ending::EndFirst),
    ];
    let ending = endings.into_iter().flatten().next().unwrap_or(Ending::ReadFirst);
    let slow = has(random, Fault::PeerSlow);
    let after = random.magnitude(2_000_000);
    let answers = [
        Answer::Refuse,
        Answer::Never,
        Answer::Lose {
            after,
            error: *random.choose(&[libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ECONNRESET]),
        },
    ];
    let answer = *random.choose(&answers);
    let answer = if has(random, Fault::ConnectFails) {
        answer
    } else {
        Answer::Accept { after }
    };
    let incoming = random.chance(700);
    let start = random.magnitude(u64::from(turns) * 10_000);
    let listener = random.choose(listeners).0.clone();
    let own = if random.chance(700) {
        Address::Tcp(([10, 0, 0, number as u8], 80).into())
    } else {
        Address::UnixAbstract(format!("peer-{number}").into_bytes().into())
    };
    let connect_at = random.below(u64::from(turns)) as u32;
    Life {
        peer: PeerPlan::draw_ordinary(
            random,
            if incoming { listener } else { own },
            incoming.then_some(start),
            answer,
            (slow, ending),
        ),
        style,
        connect_at: (!incoming).then_some(connect_at),
    }
}
