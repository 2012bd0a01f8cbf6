//! Lets the threads of a run begin and end together, and merges what they measured.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use mio::Waker;

use super::control::{Control, Message, Schedule, nanoseconds};
use super::error::LoadError;
use super::histograms::Latencies;
use super::intervals::Intervals;
use super::plan::{Plan, Workload};
use super::progress::Progress;
use super::report::{Ending, Report};

/// Between two looks at the order to stop, and two reports of progress.
const TICK: Duration = Duration::from_millis(100);

/// What a run gives: the report, and the latencies that it is made from, for a log.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) report: Report,
    pub(crate) latencies: Option<Latencies>,
}

/// The coordinator's view of a run, whatever it sends.
pub(super) struct Run<'a> {
    plan: &'a Plan,
    control: &'a Control,
    /// What wakes the threads that wait for events.
    wakers: &'a [Waker],
    stop: &'a AtomicBool,
    observe: &'a mut dyn FnMut(Progress),
    pub(super) intervals: Intervals,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        control: &'a Control,
        wakers: &'a [Waker],
        stop: &'a AtomicBool,
        observe: &'a mut dyn FnMut(Progress),
    ) -> Self {
        Run {
            plan,
            control,
            wakers,
            stop,
            observe,
            intervals: Intervals::new(plan.threads, plan.interval),
        }
    }

    /// Lets each of `workers` do its `work` on a thread of its own, and watches over them on this one: until all have
    /// ended, of which each tells the `messages`. Returns how the run ended, and what the threads found, in the order
    /// of `workers`. A thread that fails stops the others.
    ///
    /// # Errors
    /// That of the first thread that failed, or why the run could not go on.
    pub(super) fn together<W: Send, T: Send>(
        &mut self,
        (sender, messages): (Sender<Message>, Receiver<Message>),
        workers: Vec<W>,
        work: impl Fn(W) -> Result<T, LoadError> + Sync,
    ) -> Result<(Ending, Vec<T>), LoadError> {
        let (ending, results) = thread::scope(|scope| {
            let (work, control) = (&work, self.control);
            let threads: Vec<_> = workers
                .into_iter()
                .map(|worker| {
                    let sender = sender.clone();
                    scope.spawn(move || {
                        let result = work(worker);
                        if result.is_err() {
                            control.stop();
                        }
                        // The receiver ends first only when the run was given up, and then nobody asks.
                        drop(sender.send(Message::Ended));
                        result
                    })
                })
                .collect();
            // Only those of the threads remain.
            drop(sender);
            let ending = self.conduct(&messages);
            if !matches!(ending, Ok(Ending::Complete)) {
                self.control.stop();
            }
            // Without the wake-up the workers see the order at their next scan.
            let woken = self.wake();
            let ending = ending.and_then(|ending| woken.map(|()| ending));
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            (ending, results)
        });
        let found = results
            .into_iter()
            .map(|result| result.map_err(|_| LoadError::new("a load thread panicked".to_owned()))?)
            .collect::<Result<Vec<_>, _>>()?;
        Ok((ending?, found))
    }

    fn wake(&self) -> Result<(), LoadError> {
        self.wakers
            .iter()
            .try_for_each(Waker::wake)
            .map_err(|error| LoadError::new(format!("cannot wake a load thread: {error}")))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn conduct(&mut self, messages: &Receiver<Message>) -> Result<Ending, LoadError> {
        let mut ended = 0;
        // Datagrams have theirs from the beginning.
        let schedule = match self.control.schedule() {
            Some(&schedule) => schedule,
            None if !self.await_opening(messages, &mut ended)? => return Ok(Ending::Interrupted),
            None => {
                let Some(from) = self.await_start()? else {
                    return Ok(Ending::Interrupted);
                };
                let length = self.plan.length().time();
                let until = length.map(|time| from.saturating_add(nanoseconds(time)));
                self.control.begin(Schedule { from, until })
            }
        };
        self.wake()?;
        (self.observe)(Progress::Scheduled {
            opens_in: Duration::from_nanos(schedule.from.saturating_sub(self.control.now())),
            lasts: schedule
                .until
                .map(|until| Duration::from_nanos(until - schedule.from)),
        });
        self.await_end(messages, schedule, ended)
    }

    /// When the window begins by the run's clock, after the time to warm up; or `None` if the run was stopped before it
    /// came to that.
    fn await_start(&self) -> Result<Option<u64>, LoadError> {
        let Some(wall) = self.plan.start_at else {
            let warmup = nanoseconds(self.plan.warmup);
            return Ok(Some(self.control.now().saturating_add(warmup)));
        };
        let from = self
            .control
            .at_wall(wall)
            .filter(|&from| from >= self.control.now());
        let Some(from) = from else {
            return Err(LoadError::new(format!(
                "the window was to begin at {}, which was over before the connections were open; give --start-at a later \
                 time (now it is {:.1})",
                wall.as_secs_f64(),
                self.control.wall(self.control.now()).as_secs_f64()
            )));
        };
        let warm_up = from.saturating_sub(nanoseconds(self.plan.warmup));
        loop {
            let left = Duration::from_nanos(warm_up.saturating_sub(self.control.now()));
            if self.is_stopped() {
                return Ok(None);
            }
            if left.is_zero() {
                return Ok(Some(from));
            }
            thread::park_timeout(left.min(TICK));
        }
    }

    /// Waits until all threads have opened their connections: `false` if the run was stopped before.
    fn await_opening(&mut self, messages: &Receiver<Message>, ended: &mut usize) -> Result<bool, LoadError> {
        let mut total = 0;
        let mut failure = None;
        let mut reported = 0;
        while reported < self.plan.threads {
            match messages.recv_timeout(TICK) {
                Ok(Message::Opened { open, first_error }) => {
                    total += open;
                    failure = failure.or(first_error);
                    reported += 1;
                }
                // Only a thread that failed ends before the start; its error is found when it is joined.
                Ok(Message::Ended) => {
                    *ended += 1;
                    reported += 1;
                }
                Ok(Message::Interval(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
            if self.is_stopped() {
                return Ok(false);
            }
            let connections = self.plan.connections as u64;
            (self.observe)(Progress::Opening {
                open: self.control.sums().open,
                connections,
            });
        }
        // With a connection per request none is opened before the first one is due.
        if total == 0 && !self.plan.churn {
            return Err(LoadError::new(format!(
                "no connection to {} could be opened within {:?} ({}); is the server running, and does it \
                 accept this many?",
                self.plan.target,
                self.plan.timeout,
                failure.unwrap_or_else(|| "no attempt got a reply".to_owned())
            )));
        }
        Ok(true)
    }

    /// Waits until all threads have ended, stopping them if asked to or if nothing moves any more.
    fn await_end(
        &mut self,
        messages: &Receiver<Message>,
        schedule: Schedule,
        mut ended: usize,
    ) -> Result<Ending, LoadError> {
        let mut ending = Ending::Complete;
        let mut last = self.control.sums();
        let mut last_change = self.control.now();
        let patience = self.patience();
        while ended < self.plan.threads {
            match messages.recv_timeout(TICK) {
                Ok(Message::Ended) => ended += 1,
                Ok(Message::Interval(part)) => {
                    if let Some(interval) = self.intervals.add(&part)? {
                        (self.observe)(Progress::Interval(interval));
                    }
                }
                Ok(Message::Opened { .. }) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let now = self.control.now();
            let sums = self.control.sums();
            if sums.replies != last.replies {
                (last, last_change) = (sums, now);
            }
            let reason = if self.is_stopped() {
                Some(Ending::Interrupted)
            } else if now - last_change > patience {
                Some(Ending::Stalled)
            } else {
                None
            };
            if let Some(reason) = reason
                && ending == Ending::Complete
                && ended < self.plan.threads
            {
                ending = reason;
                self.control.stop();
                self.wake()?;
            }
            let progress = self.progress(schedule, now);
            (self.observe)(progress);
        }
        Ok(ending)
    }

    /// How long no reply may come before the run has stalled.
    fn patience(&self) -> u64 {
        // Datagrams may be lost, or need no reply: their threads end by themselves.
        if matches!(self.plan.workload, Workload::Datagrams(_)) {
            return u64::MAX;
        }
        // In an open loop replies are as far apart as requests: a gap of 30 mean intervals is a chance of e^-30.
        let apart = self
            .plan
            .offered()
            .map_or(0.0, |offered| 30e9 * f64::from(offered.batch) / offered.rate);
        nanoseconds(self.plan.timeout)
            .saturating_add(1_000_000_000)
            .saturating_add(apart as u64)
    }

    fn progress(&self, schedule: Schedule, now: u64) -> Progress {
        let sums = self.control.sums();
        if now < schedule.from {
            let left = (schedule.from - now) as f64 / nanoseconds(self.plan.warmup).max(1) as f64;
            return Progress::WarmUp {
                fraction: (1.0 - left).max(0.0),
                replies: sums.replies,
            };
        }
        let fraction = self.plan.length().fraction(now - schedule.from, sums.done);
        match &self.plan.workload {
            Workload::Datagrams(datagrams) => Progress::Sending {
                fraction,
                sent: sums.done,
                replies: datagrams.echo.then_some(sums.replies),
            },
            _ => Progress::Measuring {
                fraction,
                replies: sums.replies,
            },
        }
    }
}
