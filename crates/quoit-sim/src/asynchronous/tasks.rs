//! What tasks do: accept, connect, and live with a stream until it ends, in this task or in others.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use quoit_sim_kernel::kernel::with;
use quoit_sim_kernel::random::Random;

use super::plan::{PURPOSE, Style};
use super::race::Candidates;
use super::reading::{ReadEnd, Reading, poll_read, read_some};
use super::shared::{Awaited, Patience, Shared};
use super::streams::{Accepts, Stream};
use super::writing::{WriteEnd, Writing, poll_write, send_back, write_some};

/// How long a future that is dropped is let wait, in nanoseconds, at most.
pub(super) const WAIT: u64 = 3_000_000;
/// Accepting that fails more often than this is not tried again: the listener has ended.
const MOST_FAILURES: u32 = 500;

pub(super) fn patience(random: &mut Random, drops: u32) -> Patience {
    if !random.chance(drops) {
        return Patience::UntilTheEnd;
    }
    if random.chance(400) {
        return Patience::None;
    }
    Patience::For {
        nanoseconds: random.magnitude(WAIT),
        first: random.chance(512),
    }
}

/// Accepts until there is nothing to accept from any more.
pub(super) async fn accept<L: Accepts>(
    listener: Rc<L>,
    shared: Rc<Shared>,
    mut random: Random,
    styles: Rc<Vec<Style>>,
    alone: bool,
) {
    let mut failures = 0;
    while failures < MOST_FAILURES {
        let patience = match patience(&mut random, 300) {
            // Peers may still come when the tasks come to their end.
            Patience::UntilTheEnd => Patience::Always,
            _ if shared.stop.get() => Patience::Always,
            other => other,
        };
        // Of those that poll, the last is told.
        let polled = alone && random.chance(300);
        let awaited = Awaited::Connection { unix: L::UNIX };
        let accepted = if polled {
            let accepting = poll_fn(|cx| listener.poll_accept(cx));
            shared.wait(patience, awaited, accepting).await
        } else {
            shared.wait(patience, awaited, listener.accept()).await
        };
        match accepted {
            None => {}
            Some(Ok((stream, from))) => {
                assert_eq!(stream.peer().as_ref(), Some(&from), "the peer's address");
                let peer = with(|kernel| kernel.peer_at(&from));
                let peer = peer.unwrap_or_else(|| panic!("nobody has connected from {from}"));
                let is_new = shared.accepted.borrow_mut().insert(peer);
                assert!(is_new, "peer {peer} is accepted twice");
                with(|kernel| kernel.note(|| format!("task: peer {peer} is accepted")));
                begin(&shared, stream, peer, styles[peer], random.bits());
            }
            Some(Err(error)) => {
                with(|kernel| kernel.note(|| format!("task: accepting fails: {error}")));
                // That of a loop which has ended, or of a listener that may not accept, has no number, or this one.
                if error.raw_os_error().is_none_or(|code| code == libc::EPERM) {
                    return;
                }
                failures += 1;
            }
        }
    }
}

/// Connects, and lives with the stream.
pub(super) async fn connect<S: Stream>(
    shared: Rc<Shared>,
    connecting: impl Future<Output = io::Result<S>>,
    (after, candidates, style): (u64, Candidates, Style),
    limited: bool,
    mut random: Random,
) {
    shared.rest(after).await;
    let peer = candidates.first();
    candidates.begun.set(with(|kernel| kernel.now()));
    let patience = match patience(&mut random, style.drops / 2) {
        Patience::UntilTheEnd => Patience::Always,
        other => other,
    };
    let connected = shared.wait(patience, Awaited::Attempt { peer }, connecting).await;
    match connected {
        Some(Ok(stream)) => {
            // One that has failed since may not know any more.
            let winner = match stream.peer() {
                Some(address) => candidates.winner(&address, &shared.losers),
                None => peer,
            };
            with(|kernel| kernel.note(|| format!("task: connected to peer {winner}")));
            if !shared.is_scarce {
                candidates.check_time(winner);
            }
            begin(&shared, stream, winner, style, random.bits());
        }
        Some(Err(error)) => {
            with(|kernel| kernel.note(|| format!("task: connecting to peer {peer} fails: {error}")));
            assert!(
                limited || shared.is_scarce || shared.draining.get() || !candidates.has_taker(),
                "connecting to peer {peer} fails, though somebody takes it: {error}"
            );
            candidates.lost(&shared.losers);
        }
        None => {
            with(|kernel| kernel.note(|| format!("task: connecting to peer {peer} is given up")));
            candidates.lost(&shared.losers);
        }
    }
}

fn begin<S: Stream>(shared: &Rc<Shared>, stream: S, peer: usize, style: Style, seed: u64) {
    let life = Life {
        shared: Rc::clone(shared),
        style,
        random: Random::new(seed, PURPOSE + 2),
        reading: Reading::new(peer),
        writing: Writing::new(peer),
        acts: style.acts,
    };
    shared
        .executor
        .spawn(format!("the task of peer {peer}"), life.live(stream));
}

/// What a task has of a connection, beside the stream.
struct Life {
    shared: Rc<Shared>,
    style: Style,
    random: Random,
    reading: Reading,
    writing: Writing,
    /// What is left to do before the end.
    acts: u32,
}

impl Life {
    fn live<S: Stream>(mut self, mut stream: S) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            while self.acts > 0 && !self.shared.stop.get() {
                self.acts -= 1;
                if self.random.chance(self.style.ends) {
                    return self.end(stream);
                }
                if self.random.chance(self.style.moves) {
                    return self.go_on(stream);
                }
                if self.random.chance(self.style.rests) {
                    let time = self.random.magnitude(WAIT);
                    self.shared.rest(time).await;
                }
                self.act(&mut stream).await;
                if self.reading.ended && self.writing.ended {
                    return;
                }
            }
            shut_down(&mut stream, &mut self.writing, &self.shared).await;
            read_to_end(&mut stream, &mut self.reading, &self.shared, &mut self.random).await;
        })
    }

    async fn act<S: Stream>(&mut self, stream: &mut S) {
        let Self {
            shared,
            style,
            random,
            reading,
            writing,
            ..
        } = self;
        let patience = patience(random, style.drops);
        match random.below(20) {
            0 if random.chance(200) => shut_down(stream, writing, shared).await,
            1 | 2 => self.read_and_write(stream, patience).await,
            3 if !reading.ended && !writing.ended => {
                let received = shared.wait(patience, reading.awaited(), stream.recv()).await;
                match received {
                    Some(Ok(Some(lease))) => {
                        reading.came(shared, Ok(&lease));
                        send_back(stream, writing, shared, lease, patience).await;
                    }
                    Some(Ok(None)) => reading.came(shared, Ok(&[])),
                    Some(Err(error)) => reading.came(shared, Err(error)),
                    None => {}
                }
            }
            _ if random.chance(style.talk) => {
                write_some(stream, writing, shared, random, style.longest, patience).await;
            }
            _ => {
                let how = (style.gulp, style.keeps);
                read_some(stream, reading, shared, random, how, patience).await;
            }
        }
    }

    /// Both at once, by the halves of a borrowed stream, until both have come to something.
    async fn read_and_write<S: Stream>(&mut self, stream: &mut S, patience: Patience) {
        let (mut read_half, mut write_half) = stream.split();
        let bytes = self.writing.next(self.random.magnitude(self.style.longest));
        let piece = self.random.chance(512).then_some(1 + bytes.len() / 3);
        let mut buffer = vec![0; self.random.magnitude(self.style.gulp) as usize];
        let (mut read, mut written) = (None, None);
        let (awaited, writing) = (self.reading.awaited(), &mut self.writing);
        let both = poll_fn(|cx| {
            if read.is_none()
                && let Poll::Ready(result) = poll_read(&mut read_half, cx, &mut buffer)
            {
                read = Some(result);
            }
            if written.is_none()
                && let Poll::Ready(result) =
                    writing.offer(bytes, || poll_write(&mut write_half, cx, bytes, piece))
            {
                written = Some(result);
            }
            if read.is_some() && written.is_some() {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        // What it still waits for is one or the other: the check at the end looks at the bytes.
        self.shared.wait(patience, awaited, both).await;
        if let Some(read) = read {
            self.reading
                .came(&self.shared, read.map(|count| &buffer[..count]));
        }
        if let Some(written) = written {
            self.writing.came(&self.shared, &written);
        }
    }

    /// Ends the stream without waiting for anything.
    fn end<S: Stream>(&mut self, stream: S) {
        let peer = self.reading.peer;
        let how = self.random.below(4);
        with(|kernel| kernel.note(|| format!("task: the stream of peer {peer} is dropped, {how}")));
        match how {
            0 => stream.abort(),
            1 => {
                stream.drop_hard();
            }
            2 => {
                let (read, write) = stream.into_split();
                if self.random.chance(512) {
                    S::forget(write);
                } else {
                    drop(write);
                }
                drop(read);
            }
            _ => drop(stream),
        }
    }

    /// Goes on as another task, or as two.
    fn go_on<S: Stream>(self, stream: S) {
        let peer = self.reading.peer;
        let executor = Rc::clone(&self.shared.executor);
        if self.writing.ended || self.style.moves.is_multiple_of(3) {
            executor.spawn(format!("the next task of peer {peer}"), self.live(stream));
            return;
        }
        let (read, write) = stream.into_split();
        let (mut random, shared, style, acts) = (self.random, self.shared, self.style, self.acts);
        let other = Random::new(random.bits(), PURPOSE + 3);
        if random.chance(200) {
            let stream = S::reunite(read, write);
            let life = Self {
                shared,
                style,
                random,
                reading: self.reading,
                writing: self.writing,
                acts,
            };
            executor.spawn(format!("the reunited task of peer {peer}"), life.live(stream));
            return;
        }
        let reads = reads(read, self.reading, Rc::clone(&shared), random, style, acts);
        executor.spawn(format!("the reading task of peer {peer}"), reads);
        let writes = writes(write, self.writing, shared, other, style, acts);
        executor.spawn(format!("the writing task of peer {peer}"), writes);
    }
}

async fn reads<R: ReadEnd>(
    mut end: R,
    mut reading: Reading,
    shared: Rc<Shared>,
    mut random: Random,
    style: Style,
    acts: u32,
) {
    for _ in 0..acts {
        if shared.stop.get() || reading.ended {
            break;
        }
        if random.chance(style.ends) {
            return;
        }
        let patience = patience(&mut random, style.drops);
        let how = (style.gulp, style.keeps);
        read_some(&mut end, &mut reading, &shared, &mut random, how, patience).await;
    }
    read_to_end(&mut end, &mut reading, &shared, &mut random).await;
}

async fn writes<W: WriteEnd>(
    mut end: W,
    mut writing: Writing,
    shared: Rc<Shared>,
    mut random: Random,
    style: Style,
    acts: u32,
) {
    for _ in 0..acts {
        // Dropped, the half ends its direction.
        if shared.stop.get() || writing.ended || random.chance(style.ends) {
            return;
        }
        let patience = patience(&mut random, style.drops);
        write_some(
            &mut end,
            &mut writing,
            &shared,
            &mut random,
            style.longest,
            patience,
        )
        .await;
    }
    shut_down(&mut end, &mut writing, &shared).await;
}

async fn shut_down<W: WriteEnd>(end: &mut W, writing: &mut Writing, shared: &Rc<Shared>) {
    if writing.shut {
        return;
    }
    writing.shut = true;
    with(|kernel| kernel.note(|| format!("task: the direction to peer {} is ended", writing.peer)));
    let shutting = poll_fn(|cx| Pin::new(&mut *end).poll_shutdown(cx));
    let result = shared.wait(Patience::Always, writing.awaited(), shutting).await;
    assert!(matches!(result, Some(Ok(()))), "a shutdown: {result:?}");
    let refused = writing.offer(b"too late", || Poll::Ready(end.try_write(b"too late")));
    let Poll::Ready(Err(error)) = refused else {
        panic!("a write behind the shutdown: {refused:?}");
    };
    writing.came(shared, &Err(error));
}

async fn read_to_end<R: ReadEnd>(
    end: &mut R,
    reading: &mut Reading,
    shared: &Rc<Shared>,
    random: &mut Random,
) {
    while !reading.ended {
        read_some(end, reading, shared, random, (16_384, 0), Patience::Always).await;
    }
}
