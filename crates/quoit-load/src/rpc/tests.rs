//! The load's streams against the logic of the server, without sockets.

use proptest::prelude::*;
use proptest::sample::Index;
use quoit_serve::rpc::{Environment, RpcConnection};
use quoit_workload::rpc::frame::Pace;

use super::{Rpc, RpcStreams};
use crate::protocol::{Outcomes, Protocol, Then, WrongKind};

/// What was reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    right: u64,
    with_latency: u64,
    streams: u64,
    wrong: Vec<String>,
}

impl Outcomes for Found {
    fn right(&mut self, start: Option<u64>, count: u32) {
        self.right += u64::from(count);
        self.with_latency += u64::from(count) * u64::from(start.is_some());
    }

    fn stream(&mut self, _start: u64) {
        self.streams += 1;
    }

    fn wrong(&mut self, _kind: WrongKind, what: String) {
        self.wrong.push(what);
    }

    fn unexpected(&mut self, what: String) {
        self.wrong.push(what);
    }
}

const RESPONSES: RpcStreams = RpcStreams {
    messages: 20,
    size: 100,
    credit: 8,
    pace: None,
    timed: true,
};

/// A client and a server.
struct Pair {
    rpc: Rpc,
    state: <Rpc as Protocol>::State,
    server: RpcConnection,
    environment: Environment,
    found: Found,
    then: Then,
}

impl Pair {
    fn new(streams: RpcStreams, concurrent: u32) -> Self {
        let rpc = Rpc::new(streams, concurrent);
        Self {
            state: rpc.connection(7, 1_000),
            rpc,
            server: RpcConnection::new(),
            environment: Environment::new(100),
            found: Found::default(),
            then: Then::GoOn,
        }
    }

    /// What the client writes when `begin` streams are due.
    fn client_writes(&mut self, begin: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.rpc.respond(&mut self.state, &mut bytes);
        for _ in 0..begin {
            self.rpc.begin(&mut self.state, 1_000, &mut bytes);
        }
        bytes
    }

    fn server_takes(&mut self, bytes: &[u8]) {
        assert_eq!(self.server.receive(bytes, 0, &mut self.environment), bytes.len());
    }

    fn server_writes(&mut self, room: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.server.produce(&mut bytes, room, 500, &mut self.environment);
        bytes
    }

    fn client_takes(&mut self, bytes: &[u8]) {
        if self.then == Then::GoOn && !bytes.is_empty() {
            self.then = self.rpc.take(&mut self.state, bytes, 2_000, &mut self.found);
        }
    }

    fn open(&self) -> u32 {
        self.rpc.outstanding(&self.state)
    }
}

/// The frames of a well-formed stream of bytes.
fn frames(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    let mut rest = bytes;
    while let Some(length) = rest.first_chunk() {
        let (frame, after) = rest.split_at(4 + u32::from_be_bytes(*length) as usize);
        frames.push(frame.to_vec());
        rest = after;
    }
    frames
}

proptest! {
    #[test]
    fn all_that_was_begun_is_completed_however_bytes_move(
        (messages, size, credit) in (1_u64..40, 24_u32..600, 1_u32..20),
        concurrent in 1_u32..6,
        total in 1_u32..20,
        pieces in prop::collection::vec(1_usize..2_000, 1..20),
    ) {
        let streams = RpcStreams { messages, size, credit, ..RESPONSES };
        let mut pair = Pair::new(streams, concurrent);
        let mut begun = 0;
        let mut pieces = pieces.iter().cycle();
        let mut piece = || *pieces.next().expect("it never ends");
        let mut to_server = Vec::new();
        while begun < total || pair.open() > 0 {
            let begin = (concurrent - pair.open()).min(total - begun);
            begun += begin;
            to_server.extend(pair.client_writes(begin));
            let taken = piece().min(to_server.len());
            pair.server_takes(&to_server[..taken]);
            to_server.drain(..taken);
            let from_server = pair.server_writes(piece());
            from_server.chunks(piece()).for_each(|chunk| pair.client_takes(chunk));
            prop_assert_eq!(&pair.found.wrong, &Vec::<String>::new());
            prop_assert!(pair.open() <= concurrent);
        }
        let completed = u64::from(total) * messages;
        prop_assert_eq!(pair.found.right, completed);
        prop_assert_eq!(pair.found.with_latency, completed);
        prop_assert_eq!(pair.found.streams, u64::from(total));
        prop_assert_eq!(pair.environment.totals.streams, 0);
    }

    #[test]
    fn a_server_that_answers_wrongly_is_found(place in any::<Index>(), change in 1_u8.., how in 0_u8..4) {
        let mut pair = Pair::new(RPC_OF_ONE_ANSWER, 3);
        let request = pair.client_writes(3);
        pair.server_takes(&request);
        let answer = pair.server_writes(1 << 20);
        let mut frames = frames(&answer);
        let at = place.index(frames.len());
        match how {
            // A byte of the content or the head, but for the length, which may leave the rest to be waited for.
            0 => {
                let byte = 4 + place.index(frames[at].len() - 4);
                frames[at][byte] ^= change;
            }
            1 => drop(frames.remove(at)),
            2 => frames.insert(at, frames[at].clone()),
            _ => {
                let other = (at + usize::from(change)) % frames.len();
                if frames[at] == frames[other] {
                    return Ok(());
                }
                // Frames of different streams may come in any order.
                if frames[at][4..8] != frames[other][4..8] {
                    frames[at][4..8].copy_from_slice(&[0, 0, 0, 77]);
                } else {
                    frames.swap(at, other);
                }
            }
        }
        pair.client_takes(&frames.concat());
        let all = pair.found.streams == 3 && pair.found.wrong.is_empty();
        prop_assert!(!all, "{:?}", pair.found);
    }
}

/// Streams that need one exchange, and carry no times, of which any value would be right.
const RPC_OF_ONE_ANSWER: RpcStreams = RpcStreams {
    messages: 5,
    timed: false,
    ..RESPONSES
};

#[test]
fn a_message_of_another_size_than_its_streams_is_found() {
    let mut pair = Pair::new(RPC_OF_ONE_ANSWER, 1);
    let request = pair.client_writes(1);
    pair.server_takes(&request);
    let answer = pair.server_writes(1 << 20);
    let size = RPC_OF_ONE_ANSWER.size + 1;
    let mut strict = Pair::new(
        RpcStreams {
            size,
            ..RPC_OF_ONE_ANSWER
        },
        1,
    );
    strict.client_writes(1);
    strict.client_takes(&answer);
    assert_eq!((strict.found.right, strict.then), (0, Then::GiveUp));
    assert!(strict.found.wrong[0].contains("bytes, not"), "{:?}", strict.found);
}

#[test]
fn an_endless_stream_goes_on_by_credit_until_it_is_cancelled() {
    let streams = RpcStreams {
        messages: 0,
        ..RESPONSES
    };
    let mut pair = Pair::new(streams, 1);
    let request = pair.client_writes(1);
    pair.server_takes(&request);
    for round in 1..=50 {
        let answer = pair.server_writes(1 << 20);
        pair.client_takes(&answer);
        // Half of the credit is granted as soon as half is used; what came in between is granted with it.
        assert_eq!(pair.found.right, 8 * round);
        let grant = pair.client_writes(0);
        assert_eq!(frames(&grant).len(), 1);
        pair.server_takes(&grant);
    }
    let mut cancel = Vec::new();
    pair.rpc.wind_down(&mut pair.state, &mut cancel);
    pair.server_takes(&cancel);
    let answer = pair.server_writes(1 << 20);
    pair.client_takes(&answer);
    assert_eq!((pair.open(), pair.then), (0, Then::GoOn));
    assert_eq!(pair.found.wrong, Vec::<String>::new());
    assert_eq!(pair.found.streams, 0);
}

#[test]
fn messages_beyond_the_credit_are_found() {
    let mut pair = Pair::new(RPC_OF_ONE_ANSWER, 1);
    let request = pair.client_writes(1);
    pair.server_takes(&request);
    let answer = pair.server_writes(1 << 20);
    let streams = RpcStreams {
        credit: 2,
        ..RPC_OF_ONE_ANSWER
    };
    let mut strict = Pair::new(streams, 1);
    strict.client_writes(1);
    strict.client_takes(&answer);
    assert_eq!((strict.found.right, strict.then), (2, Then::GiveUp));
    assert!(strict.found.wrong[0].contains("no credit"), "{:?}", strict.found);
}

#[test]
fn a_refused_stream_is_an_error() {
    let mut pair = Pair::new(RESPONSES, 1);
    pair.environment.max_streams = 0;
    let request = pair.client_writes(1);
    pair.server_takes(&request);
    let answer = pair.server_writes(1 << 20);
    pair.client_takes(&answer);
    assert!(
        pair.found.wrong[0].contains("too many streams"),
        "{:?}",
        pair.found
    );
    let mut lost = Vec::new();
    pair.rpc
        .withdraw(&mut pair.state, &mut |start, count| lost.push((start, count)));
    assert_eq!((lost, pair.open()), (vec![(1_000, 1)], 0));
}

#[test]
fn the_pause_between_batches_is_no_wait() {
    let pace = Some(Pace {
        batch: 1,
        period: 5_000_000,
    });
    let mut pair = Pair::new(RpcStreams { pace, ..RESPONSES }, 1);
    assert_eq!(pair.rpc.waiting_since(&pair.state), None);
    pair.client_writes(1);
    assert_eq!(pair.rpc.waiting_since(&pair.state), Some(5_001_000));
}
