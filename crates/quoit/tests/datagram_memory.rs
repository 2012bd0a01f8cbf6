//! The memory that datagrams are received into is what was configured, from the moment on at which a socket is open, and
//! no flood changes it. One test alone in its process, whose address space it measures.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::net::UdpSocket;
use std::time::Duration;

use quoit::datagram::MAX_UDP_PAYLOAD;
use quoit::{DatagramOptions, DatagramSocketId, Event, Events, Gro, Loop, LoopIndex, Token};
use support::{config, engines, guard, tcp};

/// Bytes of this process's address space (`VmSize`, proc_pid_status(5)).
fn mapped() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:"))
        .unwrap();
    let kibibytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    kibibytes * 1024
}

/// What is described of each datagram, documented as about 200 bytes.
const DESCRIPTION: u64 = 256;

/// What else a socket may reserve: its queue, the place for what is discarded, descriptions, the buffer ring, pages begun.
const BESIDE: u64 = 1024 * 1024;

struct Flooded {
    event_loop: Loop,
    events: Events,
    received: u64,
    socket: DatagramSocketId,
    client: UdpSocket,
}

impl Flooded {
    /// Far more than the kernel keeps at once, while the handler is slow and holds what it has.
    fn flood(&mut self, size: usize) {
        let mut held = Vec::new();
        for _ in 0..20 {
            for _ in 0..100 {
                self.client.send(&vec![7; size]).unwrap();
            }
            self.turn(&mut held);
        }
        held.clear();
        // Until nothing waits any more: two turns in a row bring nothing.
        while self.turn(&mut held) + self.turn(&mut held) > 0 {
            held.clear();
        }
    }

    fn turn(&mut self, held: &mut Vec<quoit::Datagrams>) -> usize {
        let patience = Some(Duration::from_millis(5));
        let count = self.event_loop.turn([], &mut self.events, patience).unwrap();
        for event in self.events.drain() {
            if let Event::Datagrams { datagrams, .. } = event {
                self.received += datagrams.iter().count() as u64;
                held.push(datagrams);
            }
        }
        count
    }
}

#[test]
fn pools_are_as_large_as_configured_and_stay_so_in_a_flood() {
    guard(120);
    for engine in engines() {
        for (slots, gro, max_datagram, room) in [
            (64, Gro::Off, MAX_UDP_PAYLOAD, u64::from(MAX_UDP_PAYLOAD)),
            (200, Gro::Off, MAX_UDP_PAYLOAD, u64::from(MAX_UDP_PAYLOAD)),
            (4096, Gro::Off, 1500, 1500),
            (64, Gro::Transparent, 1500, 65_535),
        ] {
            let mut event_loop = Loop::new(LoopIndex::default(), config(engine)).unwrap();
            let mut events = Events::with_capacity(1024);
            event_loop.turn([], &mut events, Some(Duration::ZERO)).unwrap();
            let before = mapped();
            let options = DatagramOptions {
                slots,
                gro,
                max_datagram,
                ..DatagramOptions::default()
            };
            let socket = event_loop
                .bind_datagram(&"127.0.0.1:0".parse().unwrap(), &options, Token::NONE)
                .unwrap();
            let grown = mapped() - before;
            let configured = u64::from(slots) * room;
            assert!(
                (configured..=configured + u64::from(slots) * DESCRIPTION + BESIDE).contains(&grown),
                "{engine}, {options:?}: {grown} bytes for {configured}"
            );

            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            client
                .connect(tcp(event_loop.datagram_address(socket).unwrap()))
                .unwrap();
            let mut flooded = Flooded {
                event_loop,
                events,
                received: 0,
                socket,
                client,
            };
            let sizes = [1, 1400, 60_000];
            // Lists of events and the like find their length.
            sizes.into_iter().for_each(|size| flooded.flood(size));
            let full_size = mapped();
            for _ in 0..5 {
                sizes.into_iter().for_each(|size| flooded.flood(size));
                assert_eq!(mapped(), full_size, "{engine}, {options:?}");
            }
            let counters = flooded.event_loop.datagram_counters(flooded.socket).unwrap();
            assert!(
                counters.kernel_drops > 0 && counters.received == flooded.received,
                "{counters:?}"
            );
            assert_eq!(counters.slots, u64::from(slots));
        }
    }
}
