//! The floors answer what this server answers, byte for byte, so that a comparison compares the same work.

use proptest::prelude::*;
use quoit_workload::rpc::frame::{Control, OpenResponse};

use super::{Environment, Next, RpcConnection};

#[path = "../../../../lab/peers/rust/floor-epoll/src/rpc.rs"]
mod floor;

/// More than any answer here has.
const ROOM: usize = 1 << 24;

fn of_the_server(request: &[u8]) -> Vec<u8> {
    let mut rpc = RpcConnection::new();
    let mut environment = Environment::new(1_000);
    let mut output = Vec::new();
    assert_eq!(rpc.receive(request, 0, &mut environment), request.len());
    assert_eq!(rpc.produce(&mut output, ROOM, 0, &mut environment), Next::Wait);
    output
}

fn of_the_floor(request: &[u8]) -> Vec<u8> {
    let mut streams = floor::Streams::default();
    let pattern = floor::Pattern::new();
    let (mut partial, mut output) = (Vec::new(), Vec::new());
    // In two pieces, as the kernel may deliver them.
    let (first, second) = request.split_at(request.len() / 2);
    for piece in [first, second] {
        assert!(streams.receive(piece, &mut partial, &mut output));
    }
    assert!(!streams.produce(&pattern, ROOM, &mut output));
    output
}

proptest! {
    #[test]
    fn finite_streams_are_answered_alike(
        streams in prop::collection::vec((any::<u32>(), 1_u64..100, 24_u32..2_000, 0_u32..120), 1..10),
        credit in 1_u32..50,
    ) {
        let mut request = Vec::new();
        for (number, (tag, messages, size, credit)) in streams.iter().copied().enumerate() {
            let open = OpenResponse { tag, messages, size, credit, pace: None, timed: false };
            Control::OpenResponse(open).append(number as u32 + 1, &mut request);
        }
        Control::Credit(credit).append(1, &mut request);
        let answer = of_the_server(&request);
        prop_assert!(!answer.is_empty() || streams.iter().all(|stream| stream.3 == 0));
        prop_assert_eq!(of_the_floor(&request), answer);
    }
}
