//! The loop of one sender's thread.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use hdrhistogram::Histogram;
use quoit_workload::{Header, Intervals};
use socket2::Socket;

use super::calls::{Inbox, be_punctual, wait_readable};
use super::course::Course;
use super::outbox::Outbox;
use super::plan::{Datagrams, Mode};
use super::replies::{Replies, ReplyTally};
use super::unanswered::Unanswered;
use crate::control::{Control, Sums, nanoseconds};
use crate::system::thread_cpu_time;
use crate::tally::{Merge, add_histogram, new_histogram};
use crate::{LoadError, Phase, Plan, Target};

/// The longest sleep: between two looks at the order to stop.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Memory that replies are received into by one call, at most.
const INBOX_BYTES: usize = 1 << 20;

/// The longest lag that is kept, in nanoseconds; longer ones count as that.
const LONGEST_LAG: u64 = 60_000_000_000;

/// One sender.
pub(super) struct Sender<'a> {
    control: &'a Control,
    plan: &'a Plan,
    datagrams: &'a Datagrams,
    index: usize,
    socket: &'a Socket,
    course: Course,
    /// The phases behind that of `course`.
    later: std::slice::Iter<'a, Phase>,
    outbox: Outbox,
    /// When the datagrams of a batch were due.
    starts: Vec<u64>,
    echo: Option<(Replies, Inbox)>,
    /// If their number is limited.
    unanswered: Option<Unanswered>,
    tally: SenderTally,
}

/// What a sender, or all together, measured.
#[derive(Debug)]
pub(super) struct SenderTally {
    /// Datagrams that the kernel took.
    pub(super) sent: u64,
    /// Their bytes.
    pub(super) bytes: u64,
    /// System calls that sent them.
    pub(super) calls: u64,
    /// Calls that failed for a while (ENOBUFS), and were made again.
    pub(super) failures: u64,
    /// When the last one was sent, in nanoseconds since the run began.
    pub(super) ended: u64,
    /// What was sent in each phase that was begun, in their order.
    pub(super) phases: Vec<PhaseTally>,
    /// When they were due.
    pub(super) intervals: Intervals,
    /// How late batches were sent, by a timetable.
    pub(super) lag: Histogram<u64>,
    /// Processor time of the thread.
    pub(super) cpu_ns: u64,
    pub(super) replies: Option<ReplyTally>,
}

/// What a sender, or all together, did in one phase.
#[derive(Debug, Clone, Copy)]
pub(super) struct PhaseTally {
    /// When it began and ended, in nanoseconds since the run began.
    pub(super) begun: u64,
    pub(super) ended: u64,
    pub(super) sent: u64,
}

impl Merge for SenderTally {
    fn merge(&mut self, other: &Self) -> Result<(), LoadError> {
        self.sent += other.sent;
        self.bytes += other.bytes;
        self.calls += other.calls;
        self.failures += other.failures;
        self.ended = self.ended.max(other.ended);
        // A sender that was stopped early has begun fewer.
        let more = other.phases.get(self.phases.len()..).unwrap_or_default();
        for (phase, other) in self.phases.iter_mut().zip(&other.phases) {
            phase.begun = phase.begun.min(other.begun);
            phase.ended = phase.ended.max(other.ended);
            phase.sent += other.sent;
        }
        self.phases.extend(more);
        self.intervals.merge(&other.intervals);
        add_histogram(&mut self.lag, &other.lag)?;
        self.cpu_ns += other.cpu_ns;
        match (&mut self.replies, &other.replies) {
            (Some(replies), Some(other)) => replies.merge(other),
            _ => Ok(()),
        }
    }
}

impl<'a> Sender<'a> {
    /// Of the sender that sends `header`. Made on its own thread.
    ///
    /// # Errors
    /// A histogram cannot be made.
    pub(super) fn new(
        control: &'a Control,
        (plan, datagrams): (&'a Plan, &'a Datagrams),
        socket: &'a Socket,
        header: Header,
    ) -> Result<Self, LoadError> {
        let largest = datagrams.sizes.largest();
        let timeout = nanoseconds(plan.timeout);
        let echo = if datagrams.echo {
            let replies = Replies::new(header, largest, timeout.saturating_mul(2))?;
            // A byte more than is sent, so that a longer reply shows.
            let room = largest + 1;
            Some((
                replies,
                Inbox::new((INBOX_BYTES / room).clamp(1, Inbox::MOST), room),
            ))
        } else {
            None
        };
        let index = header.sender.into();
        let mut later = plan.phases.iter();
        let first = *later.next().expect("a plan has a phase");
        let batch = datagrams.batch as usize;
        Ok(Self {
            control,
            plan,
            datagrams,
            index,
            socket,
            course: Course::new(plan, first, 0, index),
            later,
            outbox: Outbox::new(datagrams.mode, datagrams.sizes.clone(), plan.seed, batch, header),
            starts: Vec::with_capacity(batch),
            echo,
            unanswered: (plan.pipeline != u32::MAX).then(|| Unanswered::new(timeout)),
            tally: SenderTally {
                sent: 0,
                bytes: 0,
                calls: 0,
                failures: 0,
                ended: 0,
                phases: Vec::with_capacity(plan.phases.len()),
                intervals: Intervals::default(),
                lag: new_histogram(LONGEST_LAG)?,
                cpu_ns: 0,
                replies: None,
            },
        })
    }

    /// Sends until all is sent or the run is stopped, and then waits for what is unanswered.
    ///
    /// # Errors
    /// The socket failed for good.
    pub(super) fn run(mut self) -> Result<SenderTally, LoadError> {
        be_punctual();
        let cpu = thread_cpu_time();
        while !self.control.is_stopped() {
            let now = self.control.now();
            if self.course.is_over(now) {
                if !self.begin_next_phase(now) {
                    break;
                }
            } else if self.take_due(now) {
                self.send(now)?;
            } else {
                let overdue = self.unanswered.as_ref().and_then(Unanswered::next_overdue);
                let until = self.course.next_due().min(overdue.unwrap_or(u64::MAX));
                self.wait(Duration::from_nanos(until.saturating_sub(now)))?;
            }
            self.take_replies()?;
            self.publish();
        }
        let ended = self.control.now();
        if self.tally.phases.len() < self.plan.phases.len() {
            // It was stopped before its end.
            self.end_phase(ended);
        }
        self.await_replies(ended)?;
        Ok(SenderTally {
            bytes: self.outbox.bytes,
            calls: self.outbox.calls,
            ended,
            cpu_ns: thread_cpu_time().saturating_sub(cpu),
            replies: self.echo.map(|(replies, _)| replies.finish()),
            ..self.tally
        })
    }

    /// The phase is over. Returns whether there is another, which begins where this one was to end.
    fn begin_next_phase(&mut self, now: u64) -> bool {
        let until = self.course.until;
        self.end_phase(now.min(until));
        let next = self.later.next();
        if let Some(&phase) = next {
            self.course = Course::new(self.plan, phase, until, self.index);
        }
        next.is_some()
    }

    fn end_phase(&mut self, ended: u64) {
        self.tally.phases.push(PhaseTally {
            begun: self.course.begins,
            ended,
            sent: self.course.sent,
        });
    }

    /// Takes a batch of what is due: whether there is anything.
    fn take_due(&mut self, now: u64) -> bool {
        let unanswered = self.unanswered.as_mut().map_or(0, |all| all.count(now));
        let most = self.datagrams.batch as usize;
        self.course.take(now, unanswered, most, &mut self.starts);
        !self.starts.is_empty()
    }

    /// Sends what was taken at `now`.
    fn send(&mut self, now: u64) -> Result<(), LoadError> {
        if self.course.has_timetable {
            let lag = now.saturating_sub(self.starts[0]);
            self.tally.lag.saturating_record(lag.max(1));
        }
        let (sent, error) = self.outbox.send(self.socket, self.tally.sent, &self.starts);
        for &start in &self.starts[..sent] {
            self.tally.intervals.note(start, 1);
        }
        self.tally.sent += sent as u64;
        self.course.note_sent(sent, &self.starts);
        if let Some(unanswered) = &mut self.unanswered {
            unanswered.sent(sent, now);
        }
        match error {
            None => Ok(()),
            Some(error) if is_passing(&error) => {
                self.tally.failures += 1;
                std::thread::yield_now();
                Ok(())
            }
            Some(error) => Err(self.failure(&error)),
        }
    }

    /// Waits, and no longer than it takes for a reply to come.
    fn wait(&self, time: Duration) -> Result<(), LoadError> {
        let time = time.min(LONGEST_WAIT);
        if self.echo.is_none() {
            std::thread::sleep(time);
            return Ok(());
        }
        wait_readable(self.socket.as_fd(), time)
            .map_err(|error| LoadError::new(format!("cannot wait for replies: {error}")))
    }

    /// Takes the replies that are there.
    fn take_replies(&mut self) -> Result<(), LoadError> {
        let Some((replies, inbox)) = &mut self.echo else {
            return Ok(());
        };
        loop {
            match inbox.receive(self.socket.as_fd()) {
                Ok(count) => {
                    let now = self.control.now();
                    for reply in inbox.datagrams() {
                        if let Some(sequence) = replies.take(reply, now, |number| self.outbox.size(number))
                            && let Some(unanswered) = &mut self.unanswered
                        {
                            unanswered.answered(sequence);
                        }
                    }
                    // Sending must not wait for replies that come as fast as they are taken.
                    if count < Inbox::MOST || self.course.has_timetable {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(&error)),
            }
        }
    }

    /// Waits for what is unanswered, no longer than the timeout after `ended`.
    fn await_replies(&mut self, ended: u64) -> Result<(), LoadError> {
        let until = ended.saturating_add(nanoseconds(self.plan.timeout));
        while let Some((replies, _)) = &self.echo
            && replies.received() < self.tally.sent
        {
            let now = self.control.now();
            if now >= until || self.control.is_stopped() {
                break;
            }
            self.wait(Duration::from_nanos(until - now))?;
            self.take_replies()?;
            self.publish();
        }
        Ok(())
    }

    /// Tells how far it has come.
    fn publish(&self) {
        let sums = Sums {
            replies: self.echo.as_ref().map_or(0, |(replies, _)| replies.received()),
            done: self.tally.sent,
            ..Sums::default()
        };
        self.control.publish(self.index, sums);
    }

    fn failure(&self, error: &io::Error) -> LoadError {
        failure(&self.plan.target, self.datagrams, self.tally.sent, error)
    }
}

/// Whether the same call may succeed a little later: queues of the device are full.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOBUFS | libc::ENOMEM | libc::EAGAIN)
    )
}

/// In words, what a socket's error means after so many datagrams, and what to do.
pub(super) fn failure(target: &Target, datagrams: &Datagrams, sent: u64, error: &io::Error) -> LoadError {
    let largest = datagrams.sizes.largest();
    let advice = match (error.raw_os_error(), datagrams.mode) {
        (Some(libc::ECONNREFUSED), _) => {
            let server = if datagrams.echo { "udp-echo" } else { "udp-sink" };
            format!(
                "nothing receives there; start the server first, such as `quoit serve {server} --listen {target}`"
            )
        }
        (Some(libc::EMSGSIZE), _) => {
            format!("{largest} bytes are too large for the way there; use a smaller --size")
        }
        (Some(libc::EIO | libc::EINVAL), Mode::Gso) => {
            "the device cannot cut datagrams up (GSO), or they are larger than its MTU; use --mode sendmmsg"
                .to_owned()
        }
        (Some(libc::EACCES), _) => {
            "this is a broadcast address, or a firewall refuses; use another address".to_owned()
        }
        (Some(libc::EPERM), _) => "a firewall refuses; look at its rules for output".to_owned(),
        _ => "look at the address and the routes (`ip route get`)".to_owned(),
    };
    LoadError::new(format!(
        "sending to {target} failed after {sent} datagrams: {error}; {advice}"
    ))
}
