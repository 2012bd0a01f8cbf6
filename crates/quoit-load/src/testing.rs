//! What the tests of the protocols share.

use super::request_reply::{Reply, RequestReply};

/// The judgements of all replies in `stream`, delivered in the pieces that `cuts` make of it.
pub(crate) fn replies_to<P: RequestReply>(
    protocol: &mut P,
    state: &mut P::State,
    stream: &[u8],
    cuts: &[proptest::sample::Index],
) -> Vec<Reply> {
    let mut bounds: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    bounds.extend([0, stream.len()]);
    bounds.sort_unstable();
    let mut replies = Vec::new();
    for piece in bounds.windows(2) {
        let mut input = &stream[piece[0]..piece[1]];
        while !input.is_empty() {
            let (consumed, reply) = protocol.take_reply(state, input);
            assert!(consumed > 0, "no progress");
            input = &input[consumed..];
            match reply {
                Some(reply) => replies.push(reply),
                None => assert!(input.is_empty(), "bytes left over without a judgement"),
            }
        }
    }
    replies
}
