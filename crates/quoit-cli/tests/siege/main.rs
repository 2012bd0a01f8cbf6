//! The siege (`make siege`): real servers on both engines, each among many peers of one kind that do what keeps others from
//! being served, and beside them a client that behaves. Each of its requests must be answered within a bound, counted in
//! turns of the loop; when the peers have gone, everything that they held must come back.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod peers;
#[path = "../program/support.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of the program, which use all of it"
)]
mod support;
#[path = "../soak/target.rs"]
#[allow(dead_code, reason = "shared with the soak, which uses all of it")]
mod target;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::peers::Kind;
use crate::support::{Client, Pattern, connect, engines};
use crate::target::{Service, Target};

/// Turns in which a request is answered. Among a few hundred peers that are all ready, of which a turn takes 64, some tens
/// pass before each has had its own; a client that is kept out is never answered at all.
const TURNS: u64 = 2000;
/// Requests of the client that behaves, while the peers are there.
const REQUESTS: usize = 20;

#[test]
#[ignore = "takes minutes: make siege"]
fn siege() {
    let mut lines = Vec::new();
    for &engine in engines() {
        for service in [Service::Echo, Service::Http] {
            let mut target = Target::start(engine, service);
            for kind in Kind::ALL {
                if !kind.concerns(service) {
                    continue;
                }
                let worst = besiege(&target, kind);
                target.all_given_back();
                let line = format!("{target}, {kind}: at most {worst} turns");
                println!("{line}");
                lines.push(line);
            }
            target.drain();
        }
    }
    println!(
        "HELD: {} sieges, each request answered within {TURNS} turns",
        lines.len()
    );
}

/// Answers the most turns that a request took.
fn besiege(target: &Target, kind: Kind) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let peers = kind.gather(target);
        let active: Vec<_> = peers
            .into_iter()
            .map(|peer| scope.spawn(|| peer.go_on(&over)))
            .collect();
        let mut worst = 0;
        for number in 0..REQUESTS {
            let before = target.figures("quoit_turns_total");
            answered(target, number);
            let turns = target.figures("quoit_turns_total") - before;
            assert!(turns <= TURNS, "{target}, {kind}: a request took {turns} turns");
            worst = worst.max(turns);
        }
        over.store(true, Ordering::Relaxed);
        for peer in active {
            peer.join().unwrap();
        }
        worst
    })
}

/// A request of the client that behaves, small or larger, on a connection of its own, whose every byte must be right.
fn answered(target: &Target, number: usize) {
    let mut stream = connect(target.address());
    if target.service == Service::Echo {
        let message: Vec<u8> = (0..[17, 30_000][number % 2])
            .map(|index| (index % 251) as u8)
            .collect();
        stream.write_all(&message).unwrap();
        let mut back = vec![0; message.len()];
        stream.read_exact(&mut back).unwrap();
        assert!(back == message, "{target}: other bytes came back");
        return;
    }
    let mut client = Client::<TcpStream>::new(stream);
    match number % 3 {
        0 => assert_eq!(client.get("/healthz").text(), "ok"),
        1 => assert_eq!(client.get("/plaintext").text(), "Hello, World!"),
        _ => {
            client.send("GET /bytes/200000 HTTP/1.1\r\nHost: x\r\n\r\n");
            client.head();
            Pattern::new().read(&mut client.stream, 200_000);
        }
    }
}
