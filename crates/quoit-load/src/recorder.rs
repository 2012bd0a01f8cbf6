//! What one thread counts, and for which stretch of time: the whole window, and the intervals that it has.

use std::sync::mpsc::Sender;

use hdrhistogram::Histogram;

use super::control::{IntervalPart, Message, Schedule};
use super::error::LoadError;
use super::protocol::{Outcomes, WrongKind};
use super::slips::{SlipHistory, Slips};
use super::tally::{Tally, add_histogram, new_histogram};
use super::window::Window;

/// The counts of one thread. Times are nanoseconds of the run's clock.
#[derive(Debug)]
pub(super) struct Recorder {
    window: Window,
    tally: Tally,
    /// Of the present interval: they go to the tally at its end, so that each reply is recorded once.
    requests: u64,
    latencies: Histogram<u64>,
    slipped: Histogram<u64>,
    slipped_at_least: Histogram<u64>,
    errors_before: u64,
    index: u32,
    /// When it ends; never while there is none.
    interval_end: u64,
    interval: u64,
    messages: Sender<Message>,
}

impl Recorder {
    /// Counts in intervals of `interval` nanoseconds (not zero), which are told to `messages`, and latencies up to
    /// `longest` nanoseconds.
    ///
    /// # Errors
    /// That is too long for a histogram.
    pub(super) fn new(interval: u64, longest: u64, messages: Sender<Message>) -> Result<Self, LoadError> {
        Ok(Recorder {
            window: Window::default(),
            tally: Tally::new(longest)?,
            requests: 0,
            latencies: new_histogram(longest)?,
            slipped: new_histogram(longest)?,
            slipped_at_least: new_histogram(longest)?,
            errors_before: 0,
            index: 0,
            interval_end: u64::MAX,
            interval,
            messages,
        })
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    /// The counts over the whole run, to add to.
    pub(super) fn tally(&mut self) -> &mut Tally {
        &mut self.tally
    }

    /// When the present interval ends, if there is one.
    pub(super) fn interval_end(&self) -> Option<u64> {
        (self.interval_end != u64::MAX).then_some(self.interval_end)
    }

    /// Opens the window at `now`. Its intervals count from the schedule's beginning, alike on all threads.
    pub(super) fn open(&mut self, now: u64, schedule: Schedule, requests: Option<u64>) {
        self.window.open(now, schedule.until, requests);
        self.errors_before = self.tally.errors.total();
        self.interval_end = schedule.from.saturating_add(self.interval);
    }

    /// Ends the intervals that are over at `now`. To be called before anything of that time is counted.
    pub(super) fn advance(&mut self, now: u64) -> Result<(), LoadError> {
        while now >= self.interval_end {
            let mut latencies = self.latencies.clone();
            add_histogram(&mut latencies, &self.slipped)?;
            let errors = self.tally.errors.total();
            let part = IntervalPart {
                index: self.index,
                requests: self.requests,
                errors: errors - self.errors_before,
                latencies,
            };
            // The receiver ends first only when the run was given up, and then nobody asks.
            drop(self.messages.send(Message::Interval(part)));
            self.keep()?;
            self.errors_before = errors;
            self.index += 1;
            self.interval_end = self.interval_end.saturating_add(self.interval);
            if self.window.is_over(self.interval_end - self.interval) {
                self.interval_end = u64::MAX;
            }
        }
        Ok(())
    }

    /// Adds the present interval's counts to those of the run.
    fn keep(&mut self) -> Result<(), LoadError> {
        self.tally.requests += std::mem::take(&mut self.requests);
        add_histogram(&mut self.tally.latencies, &self.latencies)?;
        add_histogram(&mut self.tally.slipped, &self.slipped)?;
        add_histogram(&mut self.tally.slipped_at_least, &self.slipped_at_least)?;
        self.latencies.reset();
        self.slipped.reset();
        self.slipped_at_least.reset();
        Ok(())
    }

    /// Ends the window at `now`.
    pub(super) fn close(&mut self, now: u64, slips: Slips) -> Result<(), LoadError> {
        self.advance(now)?;
        self.interval_end = u64::MAX;
        self.keep()?;
        self.tally.window = self.window.bounds(now);
        if self.window.was_opened() {
            self.tally.slips = slips;
        }
        self.window = Window::default();
        Ok(())
    }

    /// The counts of the run, once the window is closed.
    pub(super) fn finish(self) -> Tally {
        self.tally
    }

    /// Counts bytes received at `now`.
    pub(super) fn received(&mut self, now: u64, bytes: usize) {
        if self.window.contains(now) {
            self.tally.received_bytes += bytes as u64;
        }
    }

    /// Counts requests that were lost with their connection at `now`.
    pub(super) fn lost(&mut self, now: u64, count: u32) {
        self.tally.errors.lost_requests += u64::from(count);
        self.window.complete(now, count);
    }

    /// Counts what is completed at `now` on a connection, where the thread had these `slips`.
    pub(super) fn counter<'a>(&'a mut self, now: u64, slips: &'a SlipHistory) -> Counter<'a> {
        Counter {
            recorder: self,
            now,
            slips,
            completed: 0,
        }
    }

    /// Counts what is completed at `now` on a connection that reads slowly.
    pub(super) fn slow_counter(&mut self, now: u64) -> SlowCounter<'_> {
        SlowCounter {
            in_window: self.window.contains(now),
            tally: &mut self.tally,
        }
    }

    fn wrong(tally: &mut Tally, kind: WrongKind, what: String) {
        match kind {
            WrongKind::Content => tally.errors.wrong_content += 1,
            WrongKind::Status => tally.errors.wrong_status += 1,
        }
        tally.note(|| what);
    }
}

/// Counts what a protocol completes.
pub(super) struct Counter<'a> {
    recorder: &'a mut Recorder,
    now: u64,
    slips: &'a SlipHistory,
    completed: u64,
}

impl Counter<'_> {
    /// Units completed so far, right or wrong, inside the window or not.
    pub(super) fn completed(&self) -> u64 {
        self.completed
    }
}

impl Outcomes for Counter<'_> {
    fn right(&mut self, start: Option<u64>, count: u32) {
        self.completed += u64::from(count);
        let recorder = &mut *self.recorder;
        let counted = u64::from(recorder.window.complete(self.now, count));
        recorder.requests += counted;
        if recorder.window.was_opened() {
            // Replies that come between the window's end and the pass that ends it.
            recorder.tally.unanswered += u64::from(count) - counted;
        }
        if let Some(start) = start
            && counted > 0
        {
            let latency = self.now.saturating_sub(start);
            if start < self.slips.last_end() {
                let at_least = latency.saturating_sub(self.slips.since(start));
                recorder.slipped.saturating_record_n(latency, counted);
                recorder.slipped_at_least.saturating_record_n(at_least, counted);
            } else {
                recorder.latencies.saturating_record_n(latency, counted);
            }
        }
    }

    fn stream(&mut self, start: u64) {
        if self.recorder.window.contains(self.now) {
            let latency = self.now.saturating_sub(start);
            self.recorder.tally.stream_latencies.saturating_record(latency);
        }
    }

    fn wrong(&mut self, kind: WrongKind, what: String) {
        self.completed += 1;
        self.recorder.window.complete(self.now, 1);
        Recorder::wrong(&mut self.recorder.tally, kind, what);
    }

    fn unexpected(&mut self, what: String) {
        Recorder::wrong(&mut self.recorder.tally, WrongKind::Content, what);
    }
}

/// Counts what a protocol completes on connections that read slowly: errors as everywhere, replies apart.
pub(super) struct SlowCounter<'a> {
    in_window: bool,
    tally: &'a mut Tally,
}

impl Outcomes for SlowCounter<'_> {
    fn right(&mut self, _start: Option<u64>, count: u32) {
        if self.in_window {
            self.tally.slow_replies += u64::from(count);
        }
    }

    fn stream(&mut self, _start: u64) {}

    fn wrong(&mut self, kind: WrongKind, what: String) {
        Recorder::wrong(self.tally, kind, what);
    }

    fn unexpected(&mut self, what: String) {
        Recorder::wrong(self.tally, WrongKind::Content, what);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn intervals_divide_the_window_and_each_reply_is_in_one() {
        let (sender, receiver) = channel();
        let mut recorder = Recorder::new(100, 1_000_000, sender).unwrap();
        let schedule = Schedule {
            from: 1_000,
            until: Some(1_300),
        };
        let mut slips = SlipHistory::default();
        recorder.counter(990, &slips).right(Some(980), 1);
        slips.add(1_000, 1_005);
        recorder.open(1_005, schedule, None);
        for (now, start, count) in [(1_050, 1_040, 2), (1_210, 1_110, 1), (1_299, 1_000, 4)] {
            recorder.advance(now).unwrap();
            let mut counter = recorder.counter(now, &slips);
            counter.right(Some(start), count);
            counter.right(None, 1);
            assert_eq!(counter.completed(), u64::from(count) + 1);
        }
        recorder
            .counter(1_299, &slips)
            .wrong(WrongKind::Content, "x".to_owned());
        let slips = Slips {
            count: 1,
            total: 5,
            longest: 5,
        };
        recorder.close(1_310, slips).unwrap();
        let parts: Vec<_> = receiver
            .try_iter()
            .map(|message| match message {
                Message::Interval(part) => (part.index, part.requests, part.errors, part.latencies.len()),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(parts, [(0, 3, 0, 2), (1, 0, 0, 0), (2, 7, 1, 5)]);
        let tally = recorder.finish();
        assert_eq!(
            (tally.requests, tally.latencies.len(), tally.slipped.len()),
            (10, 3, 4)
        );
        let bounds = |histogram: &Histogram<u64>| (histogram.len(), histogram.min(), histogram.max());
        assert_eq!(bounds(&tally.slipped), (4, 299, 299));
        assert_eq!(bounds(&tally.slipped_at_least), (4, 294, 294));
        assert_eq!((tally.window, tally.slips), (Some((1_005, 1_300)), slips));
    }
}
