//! The server's side of an RPC connection.

use quoit_corpus::cuttings;
use quoit_workload::rpc::decoder::Decoder;

use crate::rpc::{Environment, Next, RpcConnection};

/// Streams at once on a connection, so few that the limit is met.
const MAX_STREAMS: usize = 4;
/// Bytes that a transport takes at a time.
const ROOM: usize = 500;
/// Bytes answered after which a client is known: streams may be endless.
const ENOUGH: usize = 8 * 1024;
/// Nanoseconds between two pieces: a batch of the fastest stream.
const STEP: u64 = 1_000_000;

/// Whatever a client sends, the server answers frames, keeps to the room that it is given, forgets nothing of what
/// was sent, and counts its streams rightly.
pub fn rpc_server(bytes: &[u8]) {
    for pieces in cuttings(bytes) {
        let mut environment = Environment::new(MAX_STREAMS);
        let mut connection = RpcConnection::new();
        let (mut now, mut answered) = (0, 0);
        let (mut decoder, mut output) = (Decoder::new(), Vec::new());
        for piece in pieces.into_iter().map(Some).chain([None]) {
            let mut rest = match piece {
                Some(piece) => piece,
                None => {
                    connection.end_of_stream();
                    &[]
                }
            };
            let over = loop {
                let taken = connection.receive(rest, now, &mut environment);
                rest = &rest[taken..];
                let next = connection.produce(&mut output, ROOM, now, &mut environment);
                // One frame that is no message may pass the room: its head, its code and its text.
                assert!(output.len() <= ROOM + 9 + 4 + 256, "{} bytes", output.len());
                answered += output.len();
                let mut sent = &output[..];
                while decoder
                    .next(&mut sent)
                    .expect("the server writes frames")
                    .is_some()
                {}
                output.clear();
                assert!(environment.totals.streams as usize <= MAX_STREAMS);
                if next == Next::Close || answered > ENOUGH {
                    break true;
                }
                if next == Next::Wait && rest.is_empty() {
                    break false;
                }
                assert!(
                    next == Next::Produce || taken > 0,
                    "nothing is taken and nothing produced"
                );
            };
            if over {
                break;
            }
            now += STEP;
            if connection.next_tick().is_some_and(|due| due <= now) {
                connection.tick(now);
            }
        }
        connection.forget(&mut environment);
        assert_eq!(environment.totals.streams, 0);
    }
}
