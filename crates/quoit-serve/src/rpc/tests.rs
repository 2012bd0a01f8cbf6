//! The server's logic, driven without sockets.

use proptest::prelude::*;
use proptest::sample::Index;
use quoit_workload::rpc::content::{Checker, Content};
use quoit_workload::rpc::decoder::{Decoder, Part};
use quoit_workload::rpc::frame::{Control, End, ErrorCode, Kind, OpenRequest, OpenResponse, Pace, header};

use super::connection::Next;
use super::{Environment, RpcConnection};

const SECOND: u64 = 1_000_000_000;

fn response(messages: u64, size: u32, credit: u32) -> OpenResponse {
    OpenResponse {
        tag: 9,
        messages,
        size,
        credit,
        pace: None,
        timed: false,
    }
}

/// A connection, and what the client has got of it.
struct Fixture {
    rpc: RpcConnection,
    environment: Environment,
    output: Vec<u8>,
    decoder: Decoder,
    checker: Checker,
    /// Messages that came whole and right on each stream, by id.
    got: std::collections::BTreeMap<u32, u64>,
    /// The send times of the messages that carried one.
    times: Vec<u64>,
    ended: Vec<(u32, End)>,
    errors: Vec<(u32, u32)>,
}

impl Fixture {
    fn new() -> Self {
        Self {
            rpc: RpcConnection::new(),
            environment: Environment::new(100),
            output: Vec::new(),
            decoder: Decoder::new(),
            checker: Checker::default(),
            got: Default::default(),
            times: Vec::new(),
            ended: Vec::new(),
            errors: Vec::new(),
        }
    }

    fn send(&mut self, frames: &[(u32, Control)]) {
        let mut bytes = Vec::new();
        for (stream, control) in frames {
            control.append(*stream, &mut bytes);
        }
        self.receive(&bytes);
    }

    fn receive(&mut self, bytes: &[u8]) {
        let taken = self.rpc.receive(bytes, 0, &mut self.environment);
        assert_eq!(taken, bytes.len());
    }

    /// Lets it produce up to `room` bytes, and checks them.
    fn produce(&mut self, room: usize) -> Next {
        self.output.clear();
        let next = self
            .rpc
            .produce(&mut self.output, room, 77, &mut self.environment);
        let mut input = &self.output[..];
        while let Some(part) = self.decoder.next(&mut input).expect("well-formed frames") {
            match part {
                Part::Message {
                    stream,
                    size,
                    from,
                    bytes,
                } => {
                    let got = self.got.entry(stream).or_default();
                    let expected = Content {
                        sequence: *got,
                        stream,
                        tag: 9,
                        time: 0,
                    };
                    assert_eq!(self.checker.check(&expected, from as usize, bytes), Ok(()));
                    if from as usize + bytes.len() == size as usize {
                        *got += 1;
                        self.times.extend(self.checker.time());
                    }
                }
                Part::Control { stream, control } => match control {
                    Control::End(end) => self.ended.push((stream, end)),
                    Control::Error(code, _) => self.errors.push((stream, code)),
                    other => panic!("{other:?}"),
                },
            }
        }
        next
    }
}

#[test]
fn credit_bounds_what_is_sent() {
    let mut fixture = Fixture::new();
    fixture.send(&[
        (5, Control::OpenResponse(response(0, 100, 3))),
        (6, Control::OpenResponse(response(2, 100, 0))),
    ]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!(fixture.got[&5], 3);
    assert!(!fixture.got.contains_key(&6));
    fixture.send(&[
        (5, Control::Credit(4)),
        (6, Control::Credit(9)),
        (99, Control::Credit(1)),
    ]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!((fixture.got[&5], fixture.got[&6]), (7, 2));
    let end = |messages| End {
        messages,
        checksum: 0,
    };
    assert_eq!(fixture.ended, [(6, end(2))]);
    fixture.send(&[(5, Control::Cancel), (5, Control::Cancel), (99, Control::Cancel)]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!(fixture.ended, [(6, end(2)), (5, end(7))]);
    assert_eq!(fixture.environment.totals.streams, 0);
    assert_eq!(fixture.environment.totals.messages_sent, 9);
}

#[test]
fn streams_take_turns() {
    let mut fixture = Fixture::new();
    for id in 1..=4 {
        fixture.send(&[(id, Control::OpenResponse(response(0, 1_000, u32::MAX)))]);
    }
    assert_eq!(fixture.produce(400_000), Next::Produce);
    for id in 1..=4 {
        assert!((80..=105).contains(&fixture.got[&id]), "{:?}", fixture.got);
    }
}

#[test]
fn a_paced_stream_sends_its_batches_when_they_are_due() {
    let mut fixture = Fixture::new();
    let pace = Some(Pace {
        batch: 3,
        period: SECOND,
    });
    let open = OpenResponse {
        pace,
        timed: true,
        ..response(8, 64, 4)
    };
    fixture.send(&[(1, Control::OpenResponse(open))]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!(fixture.rpc.next_tick(), Some(SECOND));
    fixture.rpc.tick(SECOND);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!(fixture.got[&1], 3);
    // Only one message more has credit.
    fixture.rpc.tick(2 * SECOND + 5);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!(fixture.got[&1], 4);
    fixture.rpc.tick(3 * SECOND);
    assert_eq!(fixture.rpc.next_tick(), None);
    fixture.send(&[(1, Control::Credit(100))]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    // Each carries the time at which it was due, also those that had to wait.
    let times: Vec<u64> = fixture.times.iter().map(|time| time / SECOND).collect();
    assert_eq!(times, [1, 1, 1, 2, 2, 2, 3, 3]);
    assert_eq!(fixture.ended.len(), 1);
}

#[test]
fn times_are_those_of_producing_where_nothing_is_paced() {
    let mut fixture = Fixture::new();
    let open = OpenResponse {
        timed: true,
        ..response(2, 64, 2)
    };
    fixture.send(&[(1, Control::OpenResponse(open))]);
    fixture.produce(1 << 20);
    assert_eq!(fixture.times, [77, 77]);
}

#[test]
fn what_the_client_sends_is_summed_up() {
    let mut fixture = Fixture::new();
    let open = OpenRequest {
        tag: 1,
        messages: 2,
        size: 30,
    };
    fixture.send(&[(8, Control::OpenRequest(open))]);
    let contents = [[1; 30], [2; 30]];
    for content in contents {
        let message = [&header(8, Kind::Message, 30)[..], &content].concat();
        let (first, second) = message.split_at(20);
        fixture.receive(first);
        assert_eq!(fixture.produce(1 << 20), Next::Wait);
        fixture.receive(second);
    }
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    let end = End {
        messages: 2,
        checksum: crc32fast::hash(&contents.concat()),
    };
    assert_eq!(fixture.ended, [(8, end)]);
    assert_eq!(fixture.environment.totals.messages_received, 2);
}

#[test]
fn a_stream_out_of_range_is_refused_and_the_rest_goes_on() {
    let mut fixture = Fixture::new();
    fixture.environment.max_streams = 2;
    let request = |messages, size| {
        Control::OpenRequest(OpenRequest {
            tag: 0,
            messages,
            size,
        })
    };
    let paced = |batch, period| {
        Control::OpenResponse(OpenResponse {
            pace: Some(Pace { batch, period }),
            ..response(1, 64, 1)
        })
    };
    fixture.send(&[
        (1, Control::OpenResponse(response(1, 23, 1))),
        (2, Control::OpenResponse(response(1, u32::MAX, 1))),
        (3, request(0, 64)),
        (4, request(1, 16 << 20)),
        (5, paced(0, SECOND)),
        (6, paced(1, 999_999)),
        (7, request(1, 64)),
        (8, paced(1, SECOND)),
        (9, Control::OpenResponse(response(1, 64, 1))),
    ]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    let invalid = ErrorCode::Invalid as u32;
    let expected: Vec<_> = (1..=6).map(|id| (id, invalid)).collect();
    assert_eq!(fixture.errors[..6], expected);
    assert_eq!(fixture.errors[6..], [(9, ErrorCode::Limit as u32)]);
    assert_eq!(fixture.environment.totals.streams_refused, 7);
    assert_eq!(fixture.environment.totals.streams, 2);
    // Messages of a refused stream may be on their way.
    fixture.receive(&[&header(4, Kind::Message, 30)[..], &[0; 30]].concat());
    fixture.environment.draining = true;
    fixture.send(&[(10, Control::OpenResponse(response(1, 64, 1)))]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!(fixture.errors.last(), Some(&(10, ErrorCode::Draining as u32)));
}

#[test]
fn who_breaks_the_protocol_is_told_so_and_closed() {
    let message = |stream, size| [&header(stream, Kind::Message, size)[..], &vec![0; size as usize]].concat();
    let frame = |stream, control: Control| {
        let mut bytes = Vec::new();
        control.append(stream, &mut bytes);
        bytes
    };
    let end = End {
        messages: 0,
        checksum: 0,
    };
    for (bytes, code) in [
        (vec![0xff; 9], ErrorCode::Malformed),
        (frame(0, Control::Cancel), ErrorCode::Protocol),
        (frame(3, Control::End(end)), ErrorCode::Protocol),
        (frame(3, Control::Error(1, "no")), ErrorCode::Protocol),
        (message(1, 64), ErrorCode::Protocol),
        (message(2, 65), ErrorCode::Protocol),
        (frame(2, Control::Credit(1)), ErrorCode::Protocol),
        (
            frame(1, Control::OpenResponse(response(1, 64, 1))),
            ErrorCode::Protocol,
        ),
    ] {
        let mut fixture = Fixture::new();
        let request = OpenRequest {
            tag: 0,
            messages: 2,
            size: 64,
        };
        fixture.send(&[
            (1, Control::OpenResponse(response(10, 64, 10))),
            (2, Control::OpenRequest(request)),
        ]);
        // A message is cut: its rest comes first.
        assert_eq!(fixture.produce(100), Next::Produce);
        let after = [bytes.clone(), vec![0xaa; 1_000]].concat();
        fixture.receive(&after);
        assert_eq!(fixture.produce(1 << 20), Next::Close, "{bytes:?}");
        assert_eq!(fixture.errors, [(0, code as u32)], "{bytes:?}");
        assert_eq!(fixture.got[&1], 2);
        assert_eq!(fixture.environment.totals.streams, 0);
        assert_eq!(fixture.environment.totals.connections_failed, 1);
    }
}

#[test]
fn refusals_that_are_not_read_stop_the_intake() {
    let mut fixture = Fixture::new();
    let mut bytes = Vec::new();
    for id in 1..=1_000 {
        Control::OpenResponse(response(1, 0, 1)).append(id, &mut bytes);
    }
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let taken = fixture.rpc.receive(rest, 0, &mut fixture.environment);
        assert!(taken <= 64 * 42, "{taken}");
        rest = &rest[taken..];
        fixture.produce(1 << 20);
    }
    assert_eq!(fixture.errors.len(), 1_000);
}

#[test]
fn draining_ends_what_is_endless_and_finishes_the_rest() {
    let mut fixture = Fixture::new();
    fixture.send(&[
        (1, Control::OpenResponse(response(0, 64, 1))),
        (2, Control::OpenResponse(response(2, 64, 1))),
    ]);
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    fixture.environment.draining = true;
    fixture.rpc.drain();
    assert_eq!(fixture.produce(1 << 20), Next::Wait);
    assert_eq!(fixture.ended.len(), 1);
    fixture.send(&[(2, Control::Credit(1))]);
    assert_eq!(fixture.produce(1 << 20), Next::Close);
    assert_eq!(fixture.ended.len(), 2);
}

#[test]
fn a_client_that_ends_gets_what_its_credit_allows() {
    let mut fixture = Fixture::new();
    let paced = OpenResponse {
        pace: Some(Pace {
            batch: 1,
            period: SECOND,
        }),
        ..response(0, 64, 9)
    };
    fixture.send(&[
        (1, Control::OpenResponse(response(0, 64, 5))),
        (2, Control::OpenResponse(response(3, 64, 5))),
        (3, Control::OpenResponse(response(3, 64, 0))),
        (4, Control::OpenResponse(paced)),
    ]);
    fixture.rpc.end_of_stream();
    assert_eq!(fixture.produce(1 << 20), Next::Close);
    assert_eq!((fixture.got[&1], fixture.got[&2]), (5, 3));
    let mut ended: Vec<_> = fixture
        .ended
        .iter()
        .map(|(id, end)| (*id, end.messages))
        .collect();
    ended.sort_unstable();
    assert_eq!(ended, [(1, 5), (2, 3), (3, 0), (4, 0)]);
}

/// The bytes that a client writes which opens streams, grants and cancels.
fn conversation() -> impl Strategy<Value = Vec<u8>> {
    let step = (1_u32..6, 0_u8..4, 0_u64..40, 24_u32..3_000, 0_u32..30);
    prop::collection::vec(step, 1..30).prop_map(|steps| {
        let mut bytes = Vec::new();
        for (number, (id, what, messages, size, credit)) in steps.into_iter().enumerate() {
            match what {
                0 => Control::Credit(credit + 1).append(id, &mut bytes),
                1 => Control::Cancel.append(id, &mut bytes),
                _ => Control::OpenResponse(response(messages, size, credit))
                    .append(number as u32 + 1, &mut bytes),
            }
        }
        bytes
    })
}

proptest! {
    #[test]
    fn no_cutting_changes_what_is_sent(
        bytes in conversation(),
        cuts in prop::collection::vec(any::<Index>(), 0..20),
        rooms in prop::collection::vec(1_usize..700, 1..20),
    ) {
        // All is taken in before anything is produced, in whatever pieces either happens.
        let run = |cuts: &[Index], rooms: &[usize]| {
            let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            bounds.extend([0, bytes.len()]);
            bounds.sort_unstable();
            let mut fixture = Fixture::new();
            bounds.windows(2).for_each(|piece| fixture.receive(&bytes[piece[0]..piece[1]]));
            let mut produced = Vec::new();
            for room in rooms.iter().cycle() {
                let next = fixture.produce(*room);
                // The room is used up, and passed by a frame that is no message at most.
                assert!(fixture.output.len() < room + 300);
                assert!(next != Next::Produce || fixture.output.len() >= *room);
                produced.extend_from_slice(&fixture.output);
                if next != Next::Produce {
                    break;
                }
            }
            (fixture.got, fixture.ended.len(), fixture.environment.totals, produced.len())
        };
        let whole = run(&[], &[1 << 22]);
        prop_assert_eq!(run(&cuts, &rooms), whole);
    }
}
