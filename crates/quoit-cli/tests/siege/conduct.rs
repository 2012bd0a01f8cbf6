//! How a server is besieged.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use quoit_skipped::skip_for;

use crate::cable::{Cable, ENTERED, SERVER};
use crate::caller::Caller;
use crate::kinds::Kind;
use crate::peers::{Peers, gather};
use crate::results::{self, Found};
use crate::servers::{Besieged, ROWS, Row};
use crate::support::{connect, engines, reset};
use crate::watched::{Scraper, figure_in};
use crate::wire::Service;

const LOCAL: &str = "127.0.0.1";
/// Turns in which a request is answered. Among a few hundred peers that are all ready, of which a turn takes 64, some tens
/// of turns pass before each has had its own. Many more pass while who asks, or the thread of a door's application that
/// answers, waits for a processor: peers that are never done and the loop use all there are. A turn with next to nothing to
/// do takes some 23 us then, by 33,417 that were counted in 0.78 s, so that so many make about a second. A client that is
/// kept out is never answered at all.
const TURNS: u64 = 50_000;
/// Requests of the client that behaves, while the peers are there.
const REQUESTS: usize = 20;
/// All kinds come so often, one after the other: memory that was used once is kept, and must suffice the next time.
const ROUNDS: usize = 2;
/// Descriptors that a server may open which is to use them up, beyond those that it has at rest. The program keeps some
/// back, and runtimes open some while they come up.
const ROOM: usize = 96;
/// Connections within which descriptors are used up.
const MOST_CONNECTIONS: usize = 1_000;
/// Times that a probe of the metrics asks, where peers come so fast that it may be given up as the oldest connection.
const TRIES: usize = 20;

/// One at a time, so that the sieges have the machine to themselves.
static ALONE: Mutex<()> = Mutex::new(());

/// Besieges the server of this name on this engine.
pub(crate) fn siege(name: &str, engine: &'static str) {
    // It is poisoned when another siege has failed, which is no matter here.
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let row = ROWS.iter().find(|row| row.name == name).expect("a row");
    if !row.is_there() || !engines().contains(&engine) {
        return;
    }
    results::forget(name, engine);
    let mut turns = BTreeMap::new();
    let (resident_kib, at_rest) = among_peers(row, engine, &mut turns);
    if row.name != "serve_metrics" {
        if Kind::Vanished.concerns(row.service)
            && let Some(worst) = among_vanished(row, engine)
        {
            turns.insert(Kind::Vanished, worst);
        }
        turns.insert(Kind::Descriptors, without_descriptors(row, engine, at_rest));
    }
    println!("{name} on {engine}: held; turns at most {turns:?}; resident KiB {resident_kib:?}");
    results::write(name, engine, Found::new(turns, resident_kib));
}

/// All kinds of peers that are active, round after round. Returns the most memory that was
/// resident after a siege of each, and how many descriptors are open at rest.
fn among_peers(
    row: &'static Row,
    engine: &'static str,
    turns: &mut BTreeMap<Kind, u64>,
) -> ([u64; ROUNDS], usize) {
    let mut target = row.start(engine, LOCAL, None);
    let kinds: Vec<_> = Kind::ALL
        .into_iter()
        .filter(|&kind| kind.concerns(row.service) && !matches!(kind, Kind::Vanished | Kind::Descriptors))
        .collect();
    let resident_kib = std::array::from_fn(|_| {
        target.watched.resident_kib.clear();
        for &kind in &kinds {
            tell(&target, kind);
            let worst = if row.name == "serve_metrics" {
                among_probes(&target, kind)
            } else {
                let mut scraper = Scraper::new(&target.watched);
                besiege(
                    gather(kind, row.service, target.address()),
                    || scraper.figures("quoit_turns_total"),
                    |number| target.ask(number),
                )
            };
            target.all_given_back();
            let most = turns.entry(kind).or_default();
            *most = worst.max(*most);
        }
        *target.watched.resident_kib.iter().max().expect("there are kinds")
    });
    let [first, second] = resident_kib;
    let base = first.max(row.heap_kib);
    assert!(
        second <= base + base / 10 + row.growth_kib,
        "{target}: memory grows: {first} KiB after the first round, {second} KiB after the second"
    );
    let at_rest = target.watched.descriptors;
    target.drain();
    (resident_kib, at_rest)
}

fn tell(target: &Besieged, kind: Kind) {
    let count = kind.count().map_or_else(String::new, |count| format!("{count} "));
    println!("{target}, among {count}peers that {}", kind.description());
}

/// Has the peers do what they do until the client that behaves has been answered often enough, and answers the most turns
/// that one of its requests took.
fn besiege(peers: Vec<Peers>, mut turns: impl FnMut() -> u64, mut ask: impl FnMut(usize)) -> u64 {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _until_then = Over(&over);
        for peers in peers {
            let over = &over;
            scope.spawn(move || peers.go_on(over));
        }
        let taken = (0..REQUESTS).map(|number| {
            let before = turns();
            ask(number);
            let taken = turns() - before;
            assert!(taken <= TURNS, "request {number} took {taken} turns");
            taken
        });
        taken.max().expect("there are requests")
    })
}

/// Ends the peers, also where an assertion fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Peers at the metrics: probes must be answered there, and clients at the server's own address within its turns.
fn among_probes(target: &Besieged, kind: Kind) -> u64 {
    let metrics = &target.watched.metrics;
    besiege(
        gather(kind, Service::Http, metrics),
        || figure_in(&probe(metrics, "/metrics"), "quoit_turns_total"),
        |number| {
            assert!(probe(metrics, "/healthz").ends_with("\r\n\r\nok"));
            target.ask(number);
        },
    )
}

/// Asks as often as an impatient prober does.
fn probe(address: &str, path: &str) -> String {
    let ask = || -> io::Result<String> {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    };
    let mut answers = (0..TRIES).map(|_| ask());
    let found = answers.find(|answer| {
        answer
            .as_ref()
            .is_ok_and(|text| text.starts_with("HTTP/1.1 200 "))
    });
    found
        .expect("a probe is answered, if not at once")
        .expect("it was looked for")
}

/// Peers that are half open: the cable to them is cut while the server has bytes for them. Nothing comes of them any more,
/// until the kernel gives up what it cannot deliver.
fn among_vanished(row: &'static Row, engine: &'static str) -> Option<u64> {
    const GIVES_UP: &str = "/proc/sys/net/ipv4/tcp_retries2";
    let what = format!("half-open peers in the siege of {}", row.name);
    let cable = Cable::or_skip(&what)?;
    let kind = Kind::Vanished;
    let inside = || {
        let patient = fs::read_to_string(GIVES_UP).unwrap();
        fs::write(GIVES_UP, &patient)
            .inspect_err(|error| skip_for(&what, error, "a writable /proc/sys"))
            .ok()?;
        let mut target = row.start(engine, SERVER, None);
        tell(&target, kind);
        let address = target.address();
        let peers = cable
            .clients
            .within(|| gather(kind, row.service, address))
            .expect(ENTERED);
        cable.clients.run("ip link set far down").unwrap();
        let mut scraper = Scraper::new(&target.watched);
        let count = kind.count().expect("it is said");
        let worst = besiege(
            Vec::new(),
            || scraper.figures("quoit_turns_total"),
            |number| {
                target.ask(number);
                // A server may have a limit of its own on peers that take nothing, but not so soon.
                assert!(number > 0 || target.watched.figures("quoit_connections") >= count as u64);
            },
        );
        drop(scraper);
        drop(peers);
        fs::write(GIVES_UP, "1").unwrap();
        target.all_given_back();
        target.drain();
        Some(worst)
    };
    cable.server.within(inside).expect(ENTERED)
}

/// Peers that use up all descriptors. Who is connected goes on being served; who waits is when they have gone.
fn without_descriptors(row: &'static Row, engine: &'static str, at_rest: usize) -> u64 {
    // From the start: io_uring takes the limit that was in force when an accept operation began (io_uring/net.c).
    let mut target = row.start(engine, LOCAL, Some((at_rest + ROOM) as u64));
    tell(&target, Kind::Descriptors);
    let address = target.address();
    let mut kept = Caller::connect(row.service, address);
    if row.service != Service::Sink {
        kept.ask(0);
    }
    let mut scraper = Scraper::new(&target.watched);
    let mut refused = || {
        scraper.figures("quoit_accept_paused_full_total")
            + scraper.figures("quoit_accept_paused_resources_total")
    };
    let before = refused();
    let mut peers = Vec::new();
    while refused() == before {
        assert!(peers.len() < MOST_CONNECTIONS, "{target} accepts for ever");
        peers.push(connect(address));
    }
    let worst = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| target.ask(1));
        let worst = besiege(
            Vec::new(),
            || scraper.figures("quoit_turns_total"),
            |number| match row.service {
                Service::Sink => kept.sent_is_taken(&target.watched),
                _ => kept.ask(number),
            },
        );
        peers.into_iter().for_each(reset);
        waiting.join().unwrap();
        worst
    });
    for number in 0..4 {
        target.ask(number);
    }
    drop(kept);
    drop(scraper);
    target.all_given_back();
    target.drain();
    worst
}
