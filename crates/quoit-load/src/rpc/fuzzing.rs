//! What a load takes of an RPC server, given anything. See [`quoit_corpus`].

use quoit_corpus::cuttings;

use super::{Rpc, RpcStreams};
use crate::protocol::{Outcomes, Protocol, Then, WrongKind};

/// What was reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    right: u64,
    streams: u64,
    wrong: Vec<String>,
}

impl Outcomes for Found {
    fn right(&mut self, _start: Option<u64>, count: u32) {
        self.right += u64::from(count);
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

/// However the answers to two streams are cut, they are judged alike.
pub fn rpc_client(bytes: &[u8]) {
    let streams = RpcStreams {
        messages: 3,
        size: 30,
        credit: 2,
        pace: None,
        timed: false,
    };
    let mut seen = None;
    for pieces in cuttings(bytes) {
        let mut rpc = Rpc::new(streams, 2);
        let (mut state, mut output) = (rpc.connection(1, 0), Vec::new());
        let mut found = Found::default();
        rpc.begin(&mut state, 1, &mut output);
        rpc.begin(&mut state, 2, &mut output);
        rpc.respond(&mut state, &mut output);
        for piece in pieces {
            if rpc.take(&mut state, piece, 4, &mut found) == Then::GiveUp {
                break;
            }
            rpc.respond(&mut state, &mut output);
        }
        let outstanding = rpc.outstanding(&state);
        let mut withdrawn = 0;
        rpc.withdraw(&mut state, &mut |_, count| withdrawn += count);
        assert_eq!(withdrawn, outstanding);
        match &seen {
            None => seen = Some(found),
            Some(seen) => assert_eq!(*seen, found),
        }
    }
}
