//! Lets the threads of a run begin and end together, and merges what they measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

use mio::Waker;

use super::control::{Control, Message, Schedule, nanoseconds};
use super::echo::Echo;
use super::error::LoadError;
use super::histograms::Latencies;
use super::http::{self, Http};
use super::intervals::Intervals;
use super::plan::{Length, Plan, Workload};
use super::preflight::{
    DESCRIPTORS_PER_THREAD, check_echo, check_rpc, ensure_descriptors, ensure_ports, record_http,
};
use super::progress::Progress;
use super::protocol::Protocol;
use super::report::{Ending, Report};
use super::request_reply::InOrder;
use super::rpc::Rpc;
use super::tally::{Merge, Tally};
use super::threads::{TICK, run_together};
use super::worker::Worker;

/// What a run gives: the report, and the latencies that it is made from, for a log.
#[derive(Debug)]
pub(crate) struct Findings<R> {
    pub(crate) report: R,
    pub(crate) latencies: Option<Latencies>,
}

/// Makes one run: checks the server, opens the connections, warms up and measures.
///
/// `stop` ends the run early when it becomes true; what was measured until then is reported. `observe` is
/// told of the progress about ten times per second.
///
/// # Errors
/// The server cannot be reached or does not answer the check as it should, no connection can be opened,
/// descriptors do not suffice, or epoll fails. Errors during the load are in the report.
pub(crate) fn run(
    plan: &Plan,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Findings<Report>, LoadError> {
    let of_threads = plan.threads as u64 * DESCRIPTORS_PER_THREAD;
    ensure_descriptors(plan.connections, "connections", of_threads)?;
    ensure_ports(plan)?;
    match &plan.workload {
        Workload::Echo { sizes } => {
            let mut echo = Echo::new(sizes.clone(), plan.seed);
            check_echo(plan, &mut echo)?;
            run_protocol(plan, &InOrder(echo), stop, observe)
        }
        Workload::Http {
            path,
            host,
            body,
            expect,
        } => {
            let request = http::request(path, host, *body);
            let recorded = record_http(plan, path, &request, expect.as_deref())?;
            run_protocol(plan, &InOrder(Http::new(request, recorded)), stop, observe)
        }
        Workload::Rpc(streams) => {
            check_rpc(plan, streams)?;
            run_protocol(
                plan,
                &Rpc::new(streams.clone(), plan.pipeline, plan.seed),
                stop,
                observe,
            )
        }
    }
}

fn run_protocol<P: Protocol>(
    plan: &Plan,
    protocol: &P,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Findings<Report>, LoadError> {
    let control = Arc::new(Control::new(plan.threads));
    let (sender, messages) = mpsc::channel();
    let mut workers = Vec::new();
    let mut wakers = Vec::new();
    for thread in 0..plan.threads {
        let (worker, waker) = Worker::new(plan, thread, control.clone(), sender.clone(), protocol.clone())?;
        workers.push(worker);
        wakers.push(waker);
    }
    let mut intervals = Intervals::new(plan.threads, plan.interval);
    let run = Run {
        plan,
        control: &control,
        wakers: &wakers,
        messages: &messages,
        stop,
    };
    let (ending, tallies) = run_together(workers, sender, Worker::run, || {
        let ending = run
            .conduct(&mut intervals, observe)
            .and_then(|ending| run.wake().map(|()| ending));
        if ending.is_err() {
            control.stop();
            // Without the wake-up the workers see the order at their next scan.
            drop(run.wake());
        }
        ending
    })?;
    let tally = Tally::of_all(tallies)?;
    let started_at = tally.window.map(|(start, _)| control.wall(start));
    let latencies = Latencies::new(&tally, started_at)?;
    let report = Report::new(plan, &tally, &latencies, intervals.finish(), ending)?;
    Ok(Findings {
        report,
        latencies: Some(latencies),
    })
}

/// The coordinator's view of a run.
struct Run<'a> {
    plan: &'a Plan,
    control: &'a Control,
    wakers: &'a [Waker],
    messages: &'a Receiver<Message>,
    stop: &'a AtomicBool,
}

impl Run<'_> {
    fn wake(&self) -> Result<(), LoadError> {
        self.wakers
            .iter()
            .try_for_each(Waker::wake)
            .map_err(|error| LoadError::new(format!("cannot wake a load thread: {error}")))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn conduct(
        &self,
        intervals: &mut Intervals,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<Ending, LoadError> {
        let mut ended = 0;
        if !self.await_opening(&mut ended, observe)? {
            self.control.stop();
            return Ok(Ending::Interrupted);
        }
        let from = match self.plan.start_at {
            None => self.control.now().saturating_add(nanoseconds(self.plan.warmup)),
            Some(wall) => {
                let Some(from) = self.await_start(wall)? else {
                    self.control.stop();
                    return Ok(Ending::Interrupted);
                };
                from
            }
        };
        let until = match self.plan.length {
            Length::Time(time) => Some(from.saturating_add(nanoseconds(time))),
            Length::Count(_) => None,
        };
        let schedule = self.control.begin(Schedule { from, until });
        self.wake()?;
        observe(Progress::Scheduled {
            opens_in: Duration::from_nanos(schedule.from.saturating_sub(self.control.now())),
            lasts: schedule
                .until
                .map(|until| Duration::from_nanos(until - schedule.from)),
        });
        self.await_end(schedule, ended, intervals, observe)
    }

    /// Waits for the time to warm up before a window that begins at `wall`: when that is by the run's clock, or
    /// `None` if the run was stopped before.
    fn await_start(&self, wall: Duration) -> Result<Option<u64>, LoadError> {
        let from = self
            .control
            .at_wall(wall)
            .filter(|&from| from >= self.control.now());
        let Some(from) = from else {
            return Err(LoadError::new(format!(
                "the window was to begin at {}, which was over before the connections were open; give --start-at a \
                 later time (now it is {:.1})",
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
            std::thread::park_timeout(left.min(TICK));
        }
    }

    /// Waits until all threads have opened their connections: `false` if the run was stopped before.
    fn await_opening(&self, ended: &mut usize, observe: &mut dyn FnMut(Progress)) -> Result<bool, LoadError> {
        let mut total = 0;
        let mut failure = None;
        let mut reported = 0;
        while reported < self.plan.threads {
            match self.messages.recv_timeout(TICK) {
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
            observe(Progress::Opening {
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
        &self,
        schedule: Schedule,
        mut ended: usize,
        intervals: &mut Intervals,
        observe: &mut dyn FnMut(Progress),
    ) -> Result<Ending, LoadError> {
        let mut ending = Ending::Complete;
        let mut last = self.control.sums();
        let mut last_change = self.control.now();
        // In an open loop replies are as far apart as requests: a gap of 30 mean intervals is a chance of e^-30.
        let apart = self
            .plan
            .offered
            .map_or(0.0, |offered| 30e9 * f64::from(offered.batch) / offered.rate);
        let patience = nanoseconds(self.plan.timeout)
            .saturating_add(1_000_000_000)
            .saturating_add(apart as u64);
        while ended < self.plan.threads {
            match self.messages.recv_timeout(TICK) {
                Ok(Message::Ended) => ended += 1,
                Ok(Message::Interval(part)) => {
                    if let Some(interval) = intervals.add(&part)? {
                        observe(Progress::Interval(interval));
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
            observe(self.progress(schedule, now));
        }
        Ok(ending)
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
        Progress::Measuring {
            fraction: self.plan.length.fraction(now - schedule.from, sums.done),
            replies: sums.replies,
        }
    }
}
