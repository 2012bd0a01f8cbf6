//! The echo protocol: messages that the server must return byte for byte.
//!
//! A message starts with the connection's id and the message's sequence number (32 bits each, little
//! endian), so that a message delivered to another connection, lost, repeated or out of order is found.
//! The rest is a stretch of one pseudo-random pattern, from an offset that depends on both, so that shifted
//! or mixed content is found by a plain comparison with that pattern. Messages shorter than the header
//! carry its first bytes: sequence number first.

use std::sync::Arc;

use super::protocol::WrongKind;
use super::request_reply::{Reply, RequestReply};
use super::sizes::Sizes;

/// Offsets into the pattern lie below this. A prime, so that neighbouring messages never share an offset.
const OFFSETS: usize = 251;

/// Bytes of the message's header.
const HEADER: usize = 8;

/// Sends messages and expects them back unchanged.
#[derive(Debug, Clone)]
pub(crate) struct Echo {
    sizes: Sizes,
    seed: u64,
    pattern: Arc<[u8]>,
}

/// The messages of one connection, in both directions.
#[derive(Debug)]
pub(crate) struct EchoState {
    id: u32,
    /// Sequence number of the next message to send.
    next_sent: u32,
    /// Sequence number of the message that is being received.
    next_received: u32,
    /// Bytes of it received so far.
    position: usize,
    /// Whether all of them were right.
    wrong: Option<String>,
}

impl Echo {
    /// Messages of sizes drawn from `sizes`, by `seed`.
    pub(crate) fn new(sizes: Sizes, seed: u64) -> Self {
        // xorshift64 (Marsaglia, 2003): any generator without short periods serves.
        let mut value = 0x9e37_79b9_7f4a_7c15_u64;
        let pattern = (0..sizes.largest() + OFFSETS)
            .map(|_| {
                value ^= value << 13;
                value ^= value >> 7;
                value ^= value << 17;
                value.to_le_bytes()[3]
            })
            .collect();
        Echo { sizes, seed, pattern }
    }

    fn header(id: u32, sequence: u32) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&sequence.to_le_bytes());
        header[4..].copy_from_slice(&id.to_le_bytes());
        header
    }

    /// The size of message `sequence` of connection `id`.
    fn size(&self, id: u32, sequence: u32) -> usize {
        self.sizes.of(self.seed, u64::from(id), u64::from(sequence))
    }

    /// What follows the header in message `sequence` of connection `id`, which has `size` bytes.
    fn filler(&self, id: u32, sequence: u32, size: usize) -> &[u8] {
        let offset = (id.wrapping_mul(31).wrapping_add(sequence) as usize) % OFFSETS;
        &self.pattern[offset..offset + size.saturating_sub(HEADER)]
    }

    fn describe(state: &EchoState, position: usize, expected: u8, found: u8) -> String {
        format!(
            "echo message {} of connection {}: byte {position} is {found:#04x}, expected {expected:#04x}",
            state.next_received, state.id
        )
    }
}

/// The first place at which the two differ, with the expected byte and the one found.
fn first_difference(expected: &[u8], found: &[u8]) -> Option<(usize, u8, u8)> {
    if expected == found {
        return None;
    }
    expected
        .iter()
        .zip(found)
        .enumerate()
        .find(|(_, (expected, found))| expected != found)
        .map(|(index, (&expected, &found))| (index, expected, found))
}

impl RequestReply for Echo {
    type State = EchoState;

    fn connection(&self, id: u32) -> EchoState {
        EchoState {
            id,
            next_sent: 0,
            next_received: 0,
            position: 0,
            wrong: None,
        }
    }

    fn append_request(&self, state: &mut EchoState, output: &mut Vec<u8>) {
        let header = Self::header(state.id, state.next_sent);
        let size = self.size(state.id, state.next_sent);
        output.extend_from_slice(&header[..size.min(HEADER)]);
        output.extend_from_slice(self.filler(state.id, state.next_sent, size));
        state.next_sent = state.next_sent.wrapping_add(1);
    }

    fn take_reply(&mut self, state: &mut EchoState, input: &[u8]) -> (usize, Option<Reply>) {
        let size = self.size(state.id, state.next_received);
        let end = size.min(state.position + input.len());
        let consumed = end - state.position;
        let mut at = state.position;
        let mut rest = &input[..consumed];
        if state.wrong.is_none() {
            if at < HEADER {
                let header = Self::header(state.id, state.next_received);
                let (part, after) = rest.split_at((HEADER.min(end)) - at);
                if let Some((index, expected, found)) = first_difference(&header[at..at + part.len()], part) {
                    state.wrong = Some(Self::describe(state, at + index, expected, found));
                }
                at += part.len();
                rest = after;
            }
            if !rest.is_empty() && state.wrong.is_none() {
                let filler = &self.filler(state.id, state.next_received, size)[at - HEADER..][..rest.len()];
                if let Some((index, expected, found)) = first_difference(filler, rest) {
                    state.wrong = Some(Self::describe(state, at + index, expected, found));
                }
            }
        }
        state.position = end;
        if end < size {
            return (consumed, None);
        }
        state.position = 0;
        state.next_received = state.next_received.wrapping_add(1);
        let reply = match state.wrong.take() {
            None => Reply::Right { last: false },
            // Whether a byte was changed or one was lost cannot be told: only a new connection is in step.
            Some(what) => Reply::wrong(WrongKind::Content, false, what),
        };
        (consumed, Some(reply))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::replies_to;

    fn fixed(size: usize) -> Echo {
        Echo::new(Sizes::Fixed(size as u32), 0)
    }

    fn sent(echo: &Echo, id: u32, messages: usize) -> (EchoState, Vec<u8>) {
        let mut state = echo.connection(id);
        let mut stream = Vec::new();
        for _ in 0..messages {
            echo.append_request(&mut state, &mut stream);
        }
        (state, stream)
    }

    proptest! {
        #[test]
        fn any_split_of_the_stream_gives_the_same_replies(
            size in 1_usize..200,
            messages in 1_usize..20,
            id in any::<u32>(),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut echo = fixed(size);
            let (mut state, stream) = sent(&echo, id, messages);
            prop_assert_eq!(stream.len(), size * messages);
            let replies = replies_to(&mut echo, &mut state, &stream, &cuts);
            prop_assert_eq!(replies.len(), messages);
            for reply in replies {
                prop_assert_eq!(reply, Reply::Right { last: false });
            }
        }

        #[test]
        fn any_changed_byte_is_found_in_its_message(
            size in 1_usize..200,
            messages in 1_usize..20,
            id in any::<u32>(),
            place in any::<prop::sample::Index>(),
            change in 1_u8..,
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut echo = fixed(size);
            let (mut state, mut stream) = sent(&echo, id, messages);
            let place = place.index(stream.len());
            stream[place] ^= change;
            let replies = replies_to(&mut echo, &mut state, &stream, &cuts);
            prop_assert_eq!(replies.len(), messages);
            for (index, reply) in replies.iter().enumerate() {
                let wrong = matches!(reply, Reply::Wrong(wrong) if wrong.kind == WrongKind::Content);
                prop_assert_eq!(wrong, index == place / size, "message {}: {:?}", index, reply);
            }
        }
    }

    #[test]
    fn sizes_are_drawn_alike_in_both_directions() {
        let mut echo = Echo::new("1..300".parse().unwrap(), 9);
        let (mut state, mut stream) = sent(&echo, 5, 50);
        assert!(stream.len() > 50 && stream.len() < 50 * 300);
        let replies = replies_to(&mut echo, &mut state, &stream, &[]);
        assert_eq!(replies.len(), 50);
        assert!(replies.iter().all(|reply| *reply == Reply::Right { last: false }));
        let (mut state, _) = sent(&echo, 5, 50);
        stream.remove(200);
        let replies = replies_to(&mut echo, &mut state, &stream, &[]);
        assert!(replies.iter().any(|reply| matches!(reply, Reply::Wrong(_))));
    }

    #[test]
    fn messages_that_change_places_or_connections_are_found() {
        let mut echo = fixed(64);
        let (mut state, stream) = sent(&echo, 7, 2);
        let mut swapped = stream[64..].to_vec();
        swapped.extend_from_slice(&stream[..64]);
        let replies = replies_to(&mut echo, &mut state, &swapped, &[]);
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Wrong(_))));

        let (mut other, _) = sent(&echo, 8, 2);
        let replies = replies_to(&mut echo, &mut other, &stream, &[]);
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Wrong(_))));
    }

    #[test]
    fn contents_that_change_places_under_their_headers_are_found() {
        let mut echo = fixed(64);
        let (mut state, stream) = sent(&echo, 7, 2);
        let (first, second) = stream.split_at(64);
        let mixed = [
            &first[..HEADER],
            &second[HEADER..],
            &second[..HEADER],
            &first[HEADER..],
        ]
        .concat();
        let replies = replies_to(&mut echo, &mut state, &mixed, &[]);
        assert_eq!(replies.len(), 2);
        assert!(replies.iter().all(|reply| matches!(reply, Reply::Wrong(_))));
    }

    #[test]
    fn what_differs_is_named() {
        let mut echo = fixed(16);
        let (mut state, mut stream) = sent(&echo, 3, 1);
        stream[12] ^= 0xff;
        let replies = replies_to(&mut echo, &mut state, &stream, &[]);
        let [Reply::Wrong(wrong)] = replies.as_slice() else {
            panic!("{replies:?}")
        };
        assert!(
            wrong
                .what
                .starts_with("echo message 0 of connection 3: byte 12 is"),
            "{wrong}"
        );
        assert!(!wrong.usable);
    }
}
