//! Datagram sockets of tasks, taken from those that the seed has for a handler of events.

use std::net::SocketAddr;

use quoit::{Address, DatagramOptions};
use quoit_sim_kernel::kernel::DatagramPeerPlan;
use quoit_sim_kernel::random::Random;

use super::super::plan::PURPOSE;
use crate::datagrams::plan::DatagramPlan;

/// Streams of random numbers of sockets begin here.
const PURPOSE_OF_SOCKETS: u64 = PURPOSE + 6000;

/// One socket.
#[derive(Clone, Debug)]
pub struct SocketPlan {
    /// Where it is bound.
    pub address: SocketAddr,
    /// How it is set up.
    pub options: DatagramOptions,
    /// Tasks that receive from it.
    pub receivers: u32,
    /// Tasks that send by it.
    pub senders: u32,
    /// Things that each of them does.
    pub acts: u32,
    /// Bytes that one sends, at most.
    pub longest: u64,
    /// Bytes that there is room for in a receive by copying, at most.
    pub gulp: u64,
    /// Chances, out of 1,024, on an occasion: that a future waits only for a while, or not at all.
    pub drops: u32,
    /// That a task rests.
    pub rests: u32,
    /// That it keeps what it has received.
    pub keeps: u32,
    /// That it ends early.
    pub ends: u32,
}

/// The datagram sockets of one run.
#[derive(Clone, Default, Debug)]
pub struct AsyncDatagrams {
    /// The sockets.
    pub sockets: Vec<SocketPlan>,
    /// Who sends to them, and is sent to; each with the socket that it belongs to.
    pub peers: Vec<(usize, DatagramPeerPlan)>,
    /// Whom they send to.
    pub targets: Vec<SocketAddr>,
}

impl AsyncDatagrams {
    /// Those of a seed: what sockets for tasks have of `plan`.
    #[must_use]
    pub fn draw(seed: u64, turns: u32, plan: &DatagramPlan) -> Self {
        let mut own = Self::default();
        for (number, planned) in plan.sockets.iter().enumerate() {
            let Address::Tcp(address) = planned.address else {
                continue;
            };
            if planned.sharing.is_some() {
                continue;
            }
            let is_its = |&&(of, ref peer): &&(usize, DatagramPeerPlan)| {
                of == number && peer.target == planned.address
            };
            let place = own.sockets.len();
            own.peers.extend(
                plan.peers
                    .iter()
                    .filter(is_its)
                    .map(|(_, peer)| (place, peer.clone())),
            );
            let random = &mut Random::new(seed, PURPOSE_OF_SOCKETS + number as u64);
            own.sockets.push(SocketPlan {
                address,
                options: DatagramOptions {
                    paused: false,
                    groups: Vec::new(),
                    ..planned.options.clone()
                },
                receivers: *random.choose(&[1, 1, 2, 3]),
                senders: *random.choose(&[0, 1, 1, 2]),
                acts: random.magnitude(u64::from(turns.min(100))) as u32,
                longest: *random.choose(&[1, 50, 1500, 20_000, 65_507]),
                gulp: *random.choose(&[1, 100, 2000, 65_536]),
                drops: *random.choose(&[0, 200, 600, 900]),
                rests: *random.choose(&[0, 100, 400]),
                keeps: *random.choose(&[0, 0, 300, 1024]),
                ends: *random.choose(&[0, 0, 0, 20]),
            });
        }
        let addresses = own.sockets.iter().map(|socket| Address::from(socket.address));
        let peers = own.peers.iter().map(|(_, peer)| peer.address.clone());
        let targets = addresses.chain(peers).chain(plan.nowhere.iter().cloned());
        own.targets = targets
            .filter_map(|address| match address {
                Address::Tcp(address) => Some(address),
                _ => None,
            })
            .collect();
        own
    }
}
