use std::os::unix::fs::FileExt;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::engine::piece;

const CHUNK: u32 = 64;
const CHUNKS: u32 = 48;
/// From one token to the next: more than any segment has bytes, so that what is told of a part is between two tokens.
const TOKEN_STEP: u64 = 1 << 20;

/// What the file of a test holds at `offset`.
fn file_byte(offset: usize) -> u8 {
    (offset % 239) as u8
}

#[derive(Clone, Debug)]
enum Step {
    Copy(usize),
    Lend {
        length: usize,
        token: bool,
    },
    Gather {
        lengths: Vec<usize>,
        token: bool,
        progress: bool,
    },
    File {
        offset: usize,
        length: usize,
    },
    /// The loop hands the next batch to the kernel, if none is there.
    Submit,
    /// The kernel has sent this share of it, in 255ths, but at least a byte.
    Complete {
        share: u8,
        held: bool,
    },
    /// The kernel is done with one of the sends that it held.
    Release(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0usize..200).prop_map(Step::Copy),
        4 => (0usize..600, any::<bool>()).prop_map(|(length, token)| Step::Lend { length, token }),
        3 => (prop::collection::vec(0usize..120, 0..8), any::<bool>(), any::<bool>())
            .prop_map(|(lengths, token, progress)| Step::Gather { lengths, token, progress: token && progress }),
        1 => (0usize..500, 0usize..500).prop_map(|(offset, length)| Step::File { offset, length }),
        5 => Just(Step::Submit),
        5 => (any::<u8>(), prop::bool::weighted(0.3)).prop_map(|(share, held)| Step::Complete { share, held }),
        2 => (0usize..8).prop_map(Step::Release),
    ]
}

/// The queue, what the kernel does with it, and beside them what must come of both.
struct Run {
    outbound: Outbound,
    chunks: Chunks,
    #[expect(clippy::vec_box, reason = "as the loop keeps them")]
    spare: Vec<Box<Gather>>,
    file: File,
    in_flight: Option<Batch>,
    /// The memory of gathered sends.
    lent: Vec<Vec<u8>>,
    /// Every byte that was queued, and of those the bytes of memory.
    queued: Vec<u8>,
    is_memory: Vec<bool>,
    sent: Vec<u8>,
    /// Where each acknowledged segment ends.
    tokens: Vec<(u64, usize)>,
    acknowledged: u64,
    /// The tokens of segments that are told of as they leave.
    told: Vec<u64>,
    /// Sends that the kernel holds: their number and where they began.
    held: Vec<(u32, usize)>,
    next_held: u32,
    next_byte: u8,
}

impl Run {
    fn new() -> Self {
        let file = tempfile::tempfile().unwrap();
        let bytes: Vec<u8> = (0..1000).map(file_byte).collect();
        file.write_all_at(&bytes, 0).unwrap();
        Self {
            outbound: Outbound::default(),
            chunks: Chunks::new(CHUNKS, CHUNK).unwrap(),
            spare: Vec::new(),
            file,
            in_flight: None,
            lent: Vec::new(),
            queued: Vec::new(),
            is_memory: Vec::new(),
            sent: Vec::new(),
            tokens: Vec::new(),
            acknowledged: 0,
            told: Vec::new(),
            held: Vec::new(),
            next_held: 0,
            next_byte: 0,
        }
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length)
            .map(|_| {
                self.next_byte = self.next_byte.wrapping_add(1);
                self.next_byte
            })
            .collect()
    }

    fn queue(&mut self, bytes: &[u8], is_memory: bool, token: Option<Token>) {
        self.queued.extend_from_slice(bytes);
        self.is_memory.resize(self.queued.len(), is_memory);
        self.tokens
            .extend(token.map(|token| (token.0, self.queued.len())));
    }

    fn next_token(&self) -> Token {
        Token((self.tokens.len() as u64 + 1) * TOKEN_STEP)
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Copy(length) => {
                let bytes = self.bytes(length);
                let available = self.chunks.available();
                if self.outbound.chunks_for(bytes.len(), &self.chunks) <= self.chunks.available() {
                    self.outbound.push_copy(&bytes, &mut self.chunks);
                    self.queue(&bytes, true, None);
                } else {
                    assert!(length > available * CHUNK as usize, "refused with room");
                    assert_eq!(self.chunks.available(), available, "refused, and took something");
                }
            }
            Step::Lend { length, token } => {
                let bytes = self.bytes(length);
                let token = if token { self.next_token() } else { Token::NONE };
                self.outbound
                    .push_lent(Lent::Bytes(Bytes::from(bytes.clone())), token);
                self.queue(&bytes, true, (token != Token::NONE).then_some(token));
            }
            Step::Gather {
                lengths,
                token,
                progress,
            } => {
                let token = if token { self.next_token() } else { Token::NONE };
                let mut pieces = Vec::new();
                let mut all = Vec::new();
                for length in lengths {
                    let bytes = self.bytes(length);
                    all.extend_from_slice(&bytes);
                    if length > 0 {
                        // SAFETY: the run keeps the memory to its end.
                        pieces.push(unsafe { RawBytes::new(bytes.as_ptr(), length) });
                    }
                    self.lent.push(bytes);
                }
                let before = self.outbound.pieces();
                let count = pieces.len();
                let pushed = self.outbound.push_gathered(pieces.into_iter(), token, progress);
                assert_eq!(pushed, all.len());
                if progress {
                    self.told.push(token.0);
                }
                assert_eq!(self.outbound.pieces(), before + count + 1);
                self.queue(&all, true, (token != Token::NONE).then_some(token));
            }
            Step::File { offset, length } => {
                let bytes: Vec<u8> = (offset..offset + length).map(file_byte).collect();
                let (token, file) = (self.next_token(), self.file.try_clone().unwrap());
                let range = FileRange {
                    file,
                    offset: offset as u64,
                    length: length as u64,
                    on_short: OnShort::Abort,
                };
                self.outbound.push_file(range, token);
                self.queue(&bytes, false, Some(token));
            }
            Step::Submit if self.in_flight.is_none() => {
                self.in_flight = self.outbound.next_batch(&self.chunks, &mut self.spare);
                if self.in_flight.is_none() {
                    let token = self.outbound.sent(0, false, &mut self.chunks);
                    self.acknowledge(token);
                    assert!(
                        self.outbound.is_empty(),
                        "something is queued that no batch takes"
                    );
                }
            }
            Step::Complete { share, held } => {
                if let Some(batch) = self.in_flight.take() {
                    self.complete(batch, share, held);
                }
            }
            Step::Release(which) if !self.held.is_empty() => {
                let (sequence, _) = self.held.remove(which % self.held.len());
                let token = self.outbound.released(sequence, &mut self.chunks);
                self.acknowledge(token);
            }
            Step::Submit | Step::Release(_) => {}
        }
        self.check();
    }

    /// The kernel reads what the batch names, now and not when it was submitted.
    fn complete(&mut self, batch: Batch, share: u8, held: bool) {
        let start = self.sent.len();
        let (bytes, held) = match batch {
            Batch::File { file, offset, length } => {
                // SAFETY: the descriptor is that of a file in the queue, open until it is sent.
                let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) };
                let file = File::from(file.try_clone_to_owned().unwrap());
                let mut bytes = vec![0; length as usize];
                file.read_exact_at(&mut bytes, offset).unwrap();
                (bytes, false)
            }
            Batch::Memory { message, bytes, .. } => {
                let pieces = match &message {
                    Message::Single { address, length } => vec![piece(*address, *length as usize)],
                    Message::Gathered(gather) => gather.pieces.clone(),
                };
                assert!((1..=MAX_PIECES).contains(&pieces.len()));
                let mut read = Vec::new();
                for one in pieces {
                    assert!(one.iov_len > 0, "an empty piece");
                    // SAFETY: what is queued stays in place until it is sent.
                    read.extend_from_slice(unsafe {
                        std::slice::from_raw_parts(one.iov_base.cast::<u8>(), one.iov_len)
                    });
                }
                assert_eq!(read.len(), bytes);
                if let Message::Gathered(gather) = message {
                    self.spare.push(gather);
                }
                (read, held)
            }
        };
        let taken = (bytes.len() * usize::from(share) / 255).max(1);
        self.sent.extend_from_slice(&bytes[..taken]);
        if held {
            self.held.push((self.next_held, start));
            self.next_held += 1;
        }
        let token = self.outbound.sent(taken as u64, held, &mut self.chunks);
        self.acknowledge(token);
    }

    fn acknowledge(&mut self, token: Token) {
        if token != Token::NONE {
            assert!(
                token.0 > self.acknowledged,
                "{token:?} after {}",
                self.acknowledged
            );
            self.acknowledged = token.0;
        }
    }

    fn check(&self) {
        assert!(
            self.queued.starts_with(&self.sent),
            "out of order, twice or not at all"
        );
        // Acknowledged is exactly what is sent and not held, nor behind something held.
        let free = self
            .held
            .iter()
            .map(|&(_, start)| start)
            .min()
            .unwrap_or(self.sent.len());
        for &(token, end) in &self.tokens {
            assert!(end <= free || token > self.acknowledged, "{token} is in use");
        }
        let parts = self.acknowledged % TOKEN_STEP;
        if parts > 0 {
            let token = self.acknowledged - parts + TOKEN_STEP;
            assert!(self.told.contains(&token), "{token} is told of in parts");
            let end = self.tokens.iter().find(|one| one.0 == token).unwrap().1;
            let position = end - (token - self.acknowledged) as usize;
            assert!(position <= free, "{position} of {free} is in use");
        }
        let unsent = self.is_memory[self.sent.len()..].iter().filter(|&&is| is).count();
        if self.held.is_empty() {
            assert_eq!(self.outbound.queued(), unsent);
        } else {
            let in_use = self.is_memory[free..].iter().filter(|&&is| is).count();
            assert!((unsent..=in_use).contains(&self.outbound.queued()));
        }
        assert_eq!(self.outbound.is_held(), !self.held.is_empty());
    }

    /// Sends all that is left and releases all that is held.
    fn finish(mut self) {
        while self.in_flight.is_some() || !self.outbound.is_empty() {
            self.step(Step::Complete {
                share: 255,
                held: false,
            });
            self.step(Step::Submit);
        }
        while !self.held.is_empty() {
            self.step(Step::Release(0));
        }
        assert_eq!(self.sent.len(), self.queued.len());
        assert_eq!(
            self.acknowledged,
            self.tokens.len() as u64 * TOKEN_STEP,
            "all are acknowledged"
        );
        assert_eq!(
            (self.outbound.queued(), self.outbound.pieces(), self.chunks.used()),
            (0, 0, 0)
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn bytes_leave_in_order_once_whatever_the_kernel_takes(steps in prop::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        steps.into_iter().for_each(|step| run.step(step));
        run.finish();
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes too long")]
    fn clearing_gives_all_chunks_back(steps in prop::collection::vec(step(), 1..60)) {
        let mut run = Run::new();
        steps.into_iter().for_each(|step| run.step(step));
        while !run.held.is_empty() {
            run.step(Step::Release(0));
        }
        run.outbound.clear(&mut run.chunks);
        assert_eq!((run.outbound.queued(), run.chunks.used(), run.outbound.pieces()), (0, 0, 0));
    }
}

#[test]
fn pieces_are_told_of_as_they_leave_where_that_is_wanted() {
    let mut chunks = Chunks::new(1, CHUNK).unwrap();
    let bytes = [0; 100];
    let pieces = |lengths: [usize; 2]| {
        // SAFETY: the memory outlives the queue.
        lengths.map(|length| unsafe { RawBytes::new(bytes.as_ptr(), length) })
    };
    let mut outbound = Outbound::default();
    outbound.push_gathered(pieces([60, 40]).into_iter(), Token(1000), true);
    outbound.push_gathered(pieces([50, 50]).into_iter(), Token(1100), false);
    outbound.push_gathered(pieces([20, 80]).into_iter(), Token(1200), true);
    let mut sent = |bytes, held| outbound.sent(bytes, held, &mut chunks);
    assert_eq!(sent(1, false), Token(901));
    assert_eq!(sent(80, false), Token(981));
    // With the rest of it a part of the next, which is not told of.
    assert_eq!(sent(69, false), Token(1000));
    assert_eq!(sent(10, false), Token::NONE);
    assert_eq!(sent(45, false), Token(1105));
    // The kernel holds the next part, and so what an ordinary send takes behind it, too.
    assert_eq!(sent(5, true), Token::NONE);
    assert_eq!(sent(5, false), Token::NONE);
    assert_eq!(outbound.released(0, &mut chunks), Token::NONE);
    assert_eq!(outbound.sent(84, false, &mut chunks), Token(1199));
    assert_eq!(outbound.sent(1, false, &mut chunks), Token(1200));
    assert!(outbound.is_empty());
}

#[test]
fn a_batch_has_no_more_pieces_than_one_call_takes() {
    let mut outbound = Outbound::default();
    let mut chunks = Chunks::new(1, CHUNK).unwrap();
    for number in 0..MAX_PIECES as u64 + 1 {
        outbound.push_lent(Lent::Bytes(Bytes::from_static(b"xy")), Token(number + 1));
    }
    let Some(Batch::Memory {
        message: Message::Gathered(gather),
        bytes,
        ..
    }) = outbound.next_batch(&chunks, &mut Vec::new())
    else {
        panic!("a gathered batch");
    };
    assert_eq!((gather.pieces.len(), bytes), (MAX_PIECES, MAX_PIECES * 2));
    // All but the last byte: the segment that is cut is not acknowledged.
    let token = outbound.sent(bytes as u64 - 1, false, &mut chunks);
    assert_eq!((token, outbound.pieces()), (Token(MAX_PIECES as u64 - 1), 2));
}

#[test]
#[should_panic(expected = "no more than it was given")]
fn more_sent_than_queued_is_a_fault() {
    let mut chunks = Chunks::new(1, CHUNK).unwrap();
    let mut outbound = Outbound::default();
    outbound.push_copy(b"four", &mut chunks);
    outbound.sent(5, false, &mut chunks);
}
