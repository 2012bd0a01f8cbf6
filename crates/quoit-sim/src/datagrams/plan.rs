//! The datagram sockets of a run and their peers, drawn from the seed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use quoit::{Address, DatagramOptions, Gro, MulticastGroup, Steering};
use quoit_sim_kernel::faults::Profile;
use quoit_sim_kernel::kernel::{DatagramPeerPlan, MOST_GROUPS, NARROW_NETWORK};
use quoit_sim_kernel::random::Random;

use crate::options::Options;
use crate::style::Style;

/// The most sockets of one run.
const MOST_SOCKETS: u64 = 4;
/// How many runs have any, out of 1,024.
const SHARE: u32 = 320;
/// The stream of random numbers that says so; not those from which everything else of a run is drawn, so that runs
/// without datagrams are the same with and without this file.
const PURPOSE: u64 = 4;

/// Likewise for which sockets ask for errors from the network (`receive_errors`).
const PURPOSE_OF_ERRORS: u64 = 13;
/// How many are, out of 1,024.
const SHARE_WITH_ERRORS: u32 = 300;

/// Likewise for which sockets join and leave groups, and who sends to those.
const PURPOSE_OF_GROUPS: u64 = 17;
/// How many do, out of 1,024.
const SHARE_WITH_GROUPS: u32 = 300;

/// Likewise for which sockets share their port with others. None of those of the seeds that are kept does.
const PURPOSE_OF_SHARING: u64 = 101;
/// The same for those of the paths, which came later still.
const PURPOSE_OF_PATHS: u64 = 102;

/// Of 1,024 runs with datagrams over IPv4, so many send to receivers behind paths with a small MTU too.
const SHARE_WITH_PATHS: u32 = 200;
/// More of them than a loop holds against all others.
const NARROW_RECEIVERS: u8 = 40;
/// How many do, out of 1,024.
const SHARE_WITH_OTHERS: u32 = 300;
/// The most sockets on one port.
const MOST_SHARING: u64 = 4;

/// The sockets with which one shares its port.
#[derive(Clone, Debug)]
pub struct Sharing {
    /// Their numbers, its own among them, in the order in which they are bound.
    pub members: Vec<usize>,
    /// What decides which of them gets what.
    pub steering: Steering,
}

/// One datagram socket's life.
#[derive(Clone, Debug)]
pub struct SocketPlan {
    /// Where it is bound.
    pub address: Address,
    /// How it is set up.
    pub options: DatagramOptions,
    /// The turn at which it is opened.
    pub open_at: u32,
    /// How the handler treats it.
    pub style: Style,
    /// What the kernel has counted of drops before.
    pub drops: u32,
    /// Somebody sets an option on the descriptor that brings control messages for which there is no room.
    pub meddled_with: bool,
    /// The multicast groups that it joins and leaves, more than it may be in at once and one of the other family; most
    /// have none.
    pub groups: Vec<IpAddr>,
    /// Whom it shares its port with; most do with nobody.
    pub sharing: Option<Sharing>,
}

/// The datagram sockets of one run.
#[derive(Clone, Default, Debug)]
pub struct DatagramPlan {
    /// The sockets.
    pub sockets: Vec<SocketPlan>,
    /// Who sends to them, and is sent to; each with the socket that it belongs to.
    pub peers: Vec<(usize, DatagramPeerPlan)>,
    /// Addresses where nobody is.
    pub nowhere: Vec<Address>,
    /// The addresses of multicast groups.
    pub groups: Vec<Address>,
}

impl DatagramPlan {
    /// Those of a seed, which has `turns`. Adds their faults to the profile.
    #[must_use]
    pub fn draw(options: &Options, turns: u32, profile: &mut Profile) -> Self {
        let random = &mut Random::new(options.seed, PURPOSE);
        if !random.chance(SHARE) {
            return Self::default();
        }
        profile.draw_datagrams(random, options.without);
        let families: Vec<u64> = (0..random.magnitude(MOST_SOCKETS))
            .map(|_| random.below(4))
            .collect();
        let addresses: Vec<Address> = families
            .iter()
            .enumerate()
            .map(|(number, &family)| address(family, 1, number as u64))
            .collect();
        let mut peers = Vec::new();
        let mut sockets = Vec::new();
        for (number, &family) in families.iter().enumerate() {
            let count = random.below(4);
            let own: Vec<_> = (0..count)
                .map(|peer| address(family, 2 + number as u64, peer))
                .collect();
            for peer in &own {
                let plan = draw_peer(random, peer.clone(), addresses[number].clone(), turns);
                peers.push((number, plan));
            }
            let others: Vec<_> = addresses
                .iter()
                .zip(&families)
                .filter(|(other, family_of_other)| {
                    **other != addresses[number] && address(**family_of_other, 0, 0) == address(family, 0, 0)
                })
                .map(|(other, _)| other.clone())
                .collect();
            sockets.push(draw_socket(
                random,
                addresses[number].clone(),
                turns,
                &own,
                &others,
            ));
        }
        let random = &mut Random::new(options.seed, PURPOSE_OF_ERRORS);
        for socket in &mut sockets {
            socket.options.receive_errors = random.chance(SHARE_WITH_ERRORS);
        }
        let random = &mut Random::new(options.seed, PURPOSE_OF_GROUPS);
        let mut groups = Vec::new();
        for (number, socket) in sockets.iter_mut().enumerate() {
            let Address::Tcp(own) = socket.address else {
                continue;
            };
            if !random.chance(SHARE_WITH_GROUPS) {
                continue;
            }
            socket.groups = draw_groups(own.is_ipv4());
            // Is one from the start, as far as the options say.
            if random.chance(300) {
                let group = socket.groups[0];
                socket.options.groups.push(MulticastGroup { group, interface: 0 });
            }
            groups.extend(
                socket.groups[..2]
                    .iter()
                    .map(|&group| SocketAddr::new(group, own.port()).into()),
            );
            for sender in 0..random.magnitude(2) {
                let group = *random.choose(&socket.groups[..2]);
                let from = address(families[number], 60 + number as u64, sender);
                let to = SocketAddr::new(group, own.port()).into();
                peers.push((number, draw_peer(random, from, to, turns)));
            }
        }
        draw_sharing(options.seed, turns, &families, &mut sockets, &mut peers);
        let mut nowhere: Vec<_> = families.iter().map(|&family| address(family, 99, 0)).collect();
        nowhere.dedup();
        let random = &mut Random::new(options.seed, PURPOSE_OF_PATHS);
        if families.iter().any(|&family| family < 2) && random.chance(SHARE_WITH_PATHS) {
            let [first, second] = NARROW_NETWORK;
            nowhere.extend((1..=NARROW_RECEIVERS).map(|number| {
                let ip = Ipv4Addr::new(first, second, 0, number);
                Address::from(SocketAddr::new(ip.into(), 9999))
            }));
        }
        Self {
            sockets,
            peers,
            nowhere,
            groups,
        }
    }
}

/// Adds sockets on the ports of others, and more who send to those.
fn draw_sharing(
    seed: u64,
    turns: u32,
    families: &[u64],
    sockets: &mut Vec<SocketPlan>,
    peers: &mut Vec<(usize, DatagramPeerPlan)>,
) {
    let random = &mut Random::new(seed, PURPOSE_OF_SHARING);
    for (number, &family) in families.iter().enumerate() {
        if sockets[number].address.is_unix() || !random.chance(SHARE_WITH_OTHERS) {
            continue;
        }
        let more = random.between(1, MOST_SHARING - 1) as usize;
        let members = std::iter::once(number).chain(sockets.len()..sockets.len() + more);
        let sharing = Sharing {
            members: members.collect(),
            steering: *random.choose(&[Steering::Hash, Steering::Cpu]),
        };
        let first = &mut sockets[number];
        // One that is connected gets what its peer sends, and who it is connected to is the same for all.
        first.options.peer.take_if(|_| random.chance(900));
        first.options.reuse_port = true;
        first.sharing = Some(sharing);
        let first = first.clone();
        for _ in 0..more {
            sockets.push(SocketPlan {
                style: draw_style(random),
                meddled_with: false,
                groups: Vec::new(),
                ..first.clone()
            });
        }
        for sender in 0..random.between(2, 5) {
            let from = address(family, 80 + number as u64, sender);
            peers.push((number, draw_peer(random, from, first.address.clone(), turns)));
        }
    }
}

/// The groups of a socket, whose last is of the other family.
fn draw_groups(v4: bool) -> Vec<IpAddr> {
    let group = |v4: bool, number: u8| {
        if v4 {
            IpAddr::from([239, 1, 1, number])
        } else {
            Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, number.into()).into()
        }
    };
    let own = (1..=MOST_GROUPS as u8 + 1).map(|number| group(v4, number));
    own.chain([group(!v4, 1)]).collect()
}

/// An address of a family (0 and 1 are IPv4), by a group and a number.
fn address(family: u64, group: u64, number: u64) -> Address {
    let port = 9000 + (group * 16 + number) as u16;
    match family {
        0 | 1 => SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port).into(),
        2 => SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), port).into(),
        _ => Address::UnixAbstract(format!("datagrams-{group}-{number}").into_bytes().into()),
    }
}

fn draw_peer(random: &mut Random, address: Address, target: Address, turns: u32) -> DatagramPeerPlan {
    DatagramPeerPlan {
        address,
        target,
        start: random.magnitude(u64::from(turns) * 10_000),
        times: random.magnitude(40) as u32,
        burst: random.magnitude(40),
        longest: *random.choose(&[0, 1, 60, 1500, 9000]),
        pause: random.magnitude(500_000),
        answers: *random.choose(&[0, 300, 1024]),
        joined: random.chance(400),
    }
}

fn draw_socket(
    random: &mut Random,
    address: Address,
    turns: u32,
    own: &[Address],
    others: &[Address],
) -> SocketPlan {
    let high_water = 1 + random.magnitude(32_768) as u32;
    let buffer = |random: &mut Random| random.chance(300).then(|| random.magnitude(20_000) as u32);
    let peer = match random.below(5) {
        0 if !own.is_empty() => Some(random.choose(own).clone()),
        1 if !others.is_empty() => Some(random.choose(others).clone()),
        _ => None,
    };
    let options = DatagramOptions {
        max_datagram: *random.choose(&[1, 50, 1500, 65_527]),
        slots: *random.choose(&[1, 2, 3, 8, 32]),
        gro: *random.choose(&[Gro::Off, Gro::Off, Gro::Transparent, Gro::Raw]),
        receive_ecn: random.chance(400),
        receive_timestamps: random.chance(400),
        receive_local_address: random.chance(400),
        high_water,
        low_water: random.below(u64::from(high_water)) as u32,
        queued_sends: *random.choose(&[1, 2, 8, 128]),
        receive_buffer: buffer(random),
        send_buffer: buffer(random),
        peer,
        paused: random.chance(100),
        ..DatagramOptions::default()
    };
    let style = draw_style(random);
    let drops = match random.below(3) {
        0 => u32::MAX - random.magnitude(20) as u32,
        1 => random.bits() as u32,
        _ => 0,
    };
    SocketPlan {
        address,
        options,
        open_at: random.magnitude(u64::from(turns)) as u32 / 4,
        style,
        drops,
        meddled_with: random.chance(40),
        groups: Vec::new(),
        sharing: None,
    }
}

/// How the handler treats a socket.
fn draw_style(random: &mut Random) -> Style {
    Style {
        echo: *random.choose(&[0, 0, 300, 1024]),
        keep: *random.choose(&[0, 0, 100, 500, 1024]),
        elsewhere: *random.choose(&[0, 0, 100, 700]),
        talk: *random.choose(&[0, 100, 400]),
        longest: *random.choose(&[1, 50, 1500, 20_000, 65_536]),
        meddle: *random.choose(&[0, 20, 150]),
        end: *random.choose(&[0, 50, 200]),
    }
}
