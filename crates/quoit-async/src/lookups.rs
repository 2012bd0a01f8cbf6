//! Threads for what waits: `getaddrinfo(3)` has no other way.
//!
//! There are as many as are needed at once, up to a limit; what is asked beyond it waits its turn. Not tokio's own threads for
//! such work, as the sockets need no runtime around them.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::lock::lock;

pub(crate) type Addresses = io::Result<Vec<SocketAddr>>;

/// Looks a name with a port up, for as long as that takes.
pub(crate) type Resolver = dyn Fn(&str, u16) -> Addresses + Send + Sync;

/// Names that are being looked up, and the threads that do it.
pub(crate) struct Lookups {
    resolver: Box<Resolver>,
    most_threads: usize,
    /// How long a thread waits for more before it ends.
    patience: Duration,
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    /// What no thread has begun, by its number and so in the order in which it was asked.
    asked: BTreeMap<u64, Question>,
    last_number: u64,
    threads: usize,
    /// Those of them that wait for more.
    idle: usize,
}

struct Question {
    name: String,
    port: u16,
    answer: Arc<Mutex<Answer>>,
}

#[derive(Default)]
struct Answer {
    result: Option<Addresses>,
    waker: Option<Waker>,
}

impl fmt::Debug for Lookups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        write!(
            f,
            "Lookups({} waiting, {} threads)",
            state.asked.len(),
            state.threads
        )
    }
}

impl Lookups {
    pub(crate) fn new(resolver: Box<Resolver>, most_threads: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            resolver,
            most_threads,
            patience,
            state: Mutex::default(),
            more: Condvar::new(),
        })
    }

    /// Has a name looked up.
    ///
    /// # Errors
    /// If there is no thread, and none can be had.
    pub(crate) fn look_up(self: &Arc<Self>, name: String, port: u16) -> io::Result<LookingUp> {
        let state = &mut *lock(&self.state);
        if state.idle <= state.asked.len() && state.threads < self.most_threads {
            let this = Arc::clone(self);
            let spawned = std::thread::Builder::new()
                .name("quoit-lookup".into())
                .spawn(move || this.run());
            match spawned {
                Ok(_) => state.threads += 1,
                Err(error) if state.threads == 0 => return Err(error),
                // Those that there are get to it.
                Err(_) => {}
            }
        }
        let answer = Arc::default();
        state.last_number += 1;
        let number = state.last_number;
        let question = Question {
            name,
            port,
            answer: Arc::clone(&answer),
        };
        state.asked.insert(number, question);
        self.more.notify_one();
        Ok(LookingUp {
            lookups: Arc::clone(self),
            number,
            answer,
        })
    }

    /// Looks names up until none has come for a while.
    fn run(&self) {
        let mut state = lock(&self.state);
        loop {
            if let Some((_, question)) = state.asked.pop_first() {
                drop(state);
                // Who is woken may panic, and this thread is counted on.
                let _ = catch_unwind(AssertUnwindSafe(|| self.answer(question)));
                state = lock(&self.state);
                continue;
            }
            state.idle += 1;
            let waited = self
                .more
                .wait_timeout_while(state, self.patience, |state| state.asked.is_empty());
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
            if state.asked.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }

    fn answer(&self, question: Question) {
        let result = (self.resolver)(&question.name, question.port);
        let mut answer = lock(&question.answer);
        answer.result = Some(result);
        let waker = answer.waker.take();
        drop(answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A name that is being looked up. Dropped before a thread has begun, it is not.
#[derive(Debug)]
pub(crate) struct LookingUp {
    lookups: Arc<Lookups>,
    number: u64,
    answer: Arc<Mutex<Answer>>,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({:?})", self.result)
    }
}

impl Future for LookingUp {
    type Output = Addresses;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Addresses> {
        let mut answer = lock(&self.answer);
        if let Some(result) = answer.result.take() {
            return Poll::Ready(result);
        }
        let before = answer.waker.replace(cx.waker().clone());
        drop(answer);
        drop(before);
        Poll::Pending
    }
}

impl Drop for LookingUp {
    fn drop(&mut self) {
        lock(&self.lookups.state).asked.remove(&self.number);
        let waker = lock(&self.answer).waker.take();
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread::ThreadId;

    use super::*;

    const MOST_THREADS: usize = 8;

    /// What a resolver has been asked. It answers nobody before it is let.
    #[derive(Default)]
    struct Asked {
        seen: Mutex<(Vec<u16>, HashSet<ThreadId>)>,
        lets: Mutex<bool>,
        changed: Condvar,
    }

    impl Asked {
        fn resolver(self: &Arc<Self>) -> Box<Resolver> {
            let this = Arc::clone(self);
            Box::new(move |_, port| {
                let mut seen = lock(&this.seen);
                seen.0.push(port);
                seen.1.insert(std::thread::current().id());
                drop(seen);
                this.changed.notify_all();
                let lets = this.changed.wait_while(lock(&this.lets), |lets| !*lets);
                drop(lets.unwrap());
                Ok(vec![SocketAddr::from(([192, 0, 2, 1], port))])
            })
        }

        fn let_all(&self) {
            *lock(&self.lets) = true;
            self.changed.notify_all();
        }

        /// Waits until so many have been begun.
        fn wait_for(&self, count: usize) {
            while lock(&self.seen).0.len() < count {
                std::thread::yield_now();
            }
        }
    }

    /// Polls it until it is ready, on this thread.
    fn finish(looking: LookingUp) -> Addresses {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(looking)
    }

    #[test]
    fn more_than_there_are_threads_wait_their_turn() {
        let asked = Arc::new(Asked::default());
        let lookups = Lookups::new(asked.resolver(), MOST_THREADS, Duration::from_secs(3600));
        let mut looking: Vec<_> = (0..1000)
            .map(|port| Some(lookups.look_up("name".into(), port).unwrap()))
            .collect();
        let mut cx = Context::from_waker(Waker::noop());
        for one in looking.iter_mut().flatten() {
            assert!(Pin::new(one).poll(&mut cx).is_pending());
        }
        asked.wait_for(MOST_THREADS);
        // Some are given up: of those that are begun, and of those that are not.
        for given_up in looking.iter_mut().skip(1).step_by(2) {
            *given_up = None;
        }
        asked.let_all();
        for (port, one) in looking.into_iter().enumerate() {
            if let Some(one) = one {
                let port = u16::try_from(port).unwrap();
                assert_eq!(finish(one).unwrap(), [SocketAddr::from(([192, 0, 2, 1], port))]);
            }
        }
        let mut seen = lock(&asked.seen);
        seen.0.sort_unstable();
        let begun = MOST_THREADS as u16;
        let expected = (0..begun).chain((begun..1000).step_by(2));
        assert_eq!(seen.0, expected.collect::<Vec<_>>());
        assert_eq!(seen.1.len(), MOST_THREADS);
    }

    #[test]
    fn a_thread_that_waits_is_asked_again_and_ends_in_the_end() {
        let asked = Arc::new(Asked::default());
        asked.let_all();
        let lookups = Lookups::new(asked.resolver(), MOST_THREADS, Duration::from_secs(3600));
        for port in 0..10 {
            finish(lookups.look_up("name".into(), port).unwrap()).unwrap();
            while lock(&lookups.state).idle == 0 {
                std::thread::yield_now();
            }
        }
        assert_eq!(lock(&asked.seen).1.len(), 1);

        let lookups = Lookups::new(asked.resolver(), MOST_THREADS, Duration::ZERO);
        for port in 0..10 {
            finish(lookups.look_up("name".into(), port).unwrap()).unwrap();
            while lock(&lookups.state).threads > 0 {
                std::thread::yield_now();
            }
        }
    }
}
