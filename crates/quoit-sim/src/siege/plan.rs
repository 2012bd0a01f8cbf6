//! What one siege consists of, drawn from its seed.

use quoit::{Address, Config, WaitMode};
use quoit_sim_kernel::faults::Fault;
use quoit_sim_kernel::kernel::{Answer, Ending, Manner, PeerPlan};
use quoit_sim_kernel::random::Random;

use crate::options::Options;

/// How the handler serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Service {
    /// It sends back what it gets, in the memory in which it came.
    Echo,
    /// It sends a copy of it back.
    Copies,
    /// It keeps what it gets of those who besiege, as if they had not said all yet, and lets go of nothing.
    Keeps,
    /// It sends without end to those who besiege, as fast as they take it.
    Source,
}

/// What a peer does that might keep others from being served.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// It sends all it can, and reads nothing.
    NeverReads,
    /// So it does, and then resets.
    Resets,
    /// It sends all it can, and reads a little now and then.
    ReadsSlowly,
    /// It sends all it can, and takes at once whatever comes.
    TakesAll,
    /// It sends byte by byte.
    Trickles,
}

impl Kind {
    const ALL: [Self; 5] = [
        Self::NeverReads,
        Self::Resets,
        Self::ReadsSlowly,
        Self::TakesAll,
        Self::Trickles,
    ];
}

/// One siege.
#[derive(Clone, Debug)]
pub struct SiegePlan {
    /// How the handler serves.
    pub service: Service,
    /// The peers: first those that besiege, then those that behave.
    pub peers: Vec<PeerPlan>,
    /// How many of them besiege.
    pub besieging: usize,
    /// Where all connect to.
    pub address: Address,
    /// Bytes of one send of an endless response.
    pub chunk: usize,
}

/// Faults that keep a connection from being served by themselves: by which it, or all of accepting, ends, or that last for
/// hundreds of turns of a loop that has something to do.
pub const LEFT_OUT: [Fault; 11] = [
    Fault::ShortReceive,
    Fault::ShortSend,
    Fault::EmptyReceive,
    Fault::FullSend,
    Fault::Delay,
    Fault::LateNotification,
    Fault::NoDescriptors,
    Fault::NoMemory,
    Fault::TransferFails,
    Fault::AcceptAborted,
    Fault::AcceptForbidden,
];

impl SiegePlan {
    /// The siege of a seed; the loop's configuration becomes what it is then.
    #[must_use]
    pub fn draw(options: &Options, config: &mut Config) -> Self {
        let random = &mut Random::new(options.seed, 241);
        let address = if random.chance(700) {
            Address::Tcp(([127, 0, 0, 1], 7999).into())
        } else {
            Address::UnixAbstract((&b"besieged"[..]).into())
        };
        let service = *random.choose(&[Service::Echo, Service::Copies, Service::Keeps, Service::Source]);
        let besieging = random.between(2, 60) as usize;
        let behaving = random.between(1, 4) as usize;
        // Mostly they are of one kind; some meet several.
        let kinds = random.between(1, 3);
        let kinds: Vec<_> = (0..kinds).map(|_| *random.choose(&Kind::ALL)).collect();
        let mut peers: Vec<_> = (0..besieging)
            .map(|_| draw_besieging(random, &kinds, &address))
            .collect();
        peers.extend((0..behaving).map(|_| draw_behaving(random, &address)));
        draw_config(random, config, besieging as u32);
        Self {
            service,
            peers,
            besieging,
            address,
            chunk: *random.choose(&[50, 1000, 20_000]),
        }
    }
}

fn draw_besieging(random: &mut Random, kinds: &[Kind], address: &Address) -> PeerPlan {
    let kind = *random.choose(kinds);
    let acts = random.magnitude(60) as u32;
    let slow = matches!(kind, Kind::ReadsSlowly);
    PeerPlan {
        address: address.clone(),
        start: Some(random.magnitude(3_000_000)),
        answer: Answer::Never,
        total: u64::MAX,
        piece: if matches!(kind, Kind::Trickles) { 1 } else { 8000 },
        gulp: if slow { 50 } else { 16_384 },
        pause: if slow { 2_000_000 } else { 20_000 },
        slow,
        ending: if matches!(kind, Kind::Resets) {
            Ending::Reset(acts)
        } else {
            Ending::ReadFirst
        },
        manner: match kind {
            Kind::NeverReads | Kind::Resets => Manner::NeverReads,
            Kind::TakesAll => Manner::TakesAll,
            Kind::ReadsSlowly | Kind::Trickles => Manner::Ordinary,
        },
    }
}

fn draw_behaving(random: &mut Random, address: &Address) -> PeerPlan {
    let size = *random.choose(&[1, 17, 200, 3000]);
    PeerPlan {
        address: address.clone(),
        start: Some(random.magnitude(6_000_000)),
        answer: Answer::Never,
        total: size * random.between(1, 8),
        piece: size,
        gulp: 16_384,
        pause: 10_000,
        slow: false,
        ending: Ending::ReadFirst,
        manner: Manner::Requests { size },
    }
}

/// A loop with room for all those peers, and memory that they can use up: as much for each as the defaults have.
fn draw_config(random: &mut Random, config: &mut Config, peers: u32) {
    config.connections = 256;
    config.timers = None;
    config.receive_slots = *random.choose(&[16, 64, 256]);
    config.receive_slot_size = *random.choose(&[512, 2048]);
    config.leases_per_connection = *random.choose(&[4, 16, 64]);
    config.close_at_lease_limit = false;
    config.buffer_ring = *random.choose(&[8, 32]);
    config.buffer_ring = config.buffer_ring.min(config.receive_slots);
    config.completions_per_turn = *random.choose(&[2, 16, 64, 1024]);
    config.send_pieces = 1024;
    // With room for the completions of all: where they overflow for ever, nobody knows which buffers are used.
    config.submission_queue = *random.choose(&[2, 8, 64]);
    config.completion_queue = 512;
    config.send_chunk_size = *random.choose(&[256, 1024]);
    // Each that besieges holds a slot or two more than its share, by what was on the way when it had that; a copy of it
    // counts as 2 KiB at least.
    config.send_chunks = (peers + 16) * 8 * config.receive_slot_size.max(2048) / config.send_chunk_size;
    // Beside a thread of the kernel's, a turn may take no time at all, and says little.
    config.kernel_poll = None;
    config.wait = WaitMode::Block;
    config.pollable = false;
}
