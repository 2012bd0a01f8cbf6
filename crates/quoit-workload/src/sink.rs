//! The course of a run at its receiver, and what is found.

use std::io;
use std::ops::RangeInclusive;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::account::{Account, Entry, Totals};
use super::header::Kind;
use super::intervals::Intervals;
use super::kernel::{ProcessMemory, ProcessTimes, SocketMemory};
use super::work::Work;

/// Messages between two looks at the socket's memory: rare enough to cost nothing, often enough to see a peak.
const MESSAGES_A_LOOK: u32 = 1024;
/// Bytes, likewise: messages that GRO joined are few and large.
const BYTES_A_LOOK: usize = 1 << 20;

/// What a datagram was to a [`Sink`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// One of many.
    Counted,
    /// The last that was waited for: every sender of the run is done.
    Last,
}

/// A point in time, and what the process had used by then.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Instant,
    times: ProcessTimes,
}

impl Moment {
    fn now() -> Self {
        Self {
            at: Instant::now(),
            times: ProcessTimes::now(),
        }
    }
}

/// Takes the datagrams of one run at one socket: counts them, works for each, and times from the first of them to the
/// first shutdown datagram.
#[derive(Debug, Clone)]
pub struct Sink {
    work: Work,
    account: Account,
    begun: Option<Moment>,
    ended: Option<Moment>,
    messages: u64,
    receives: u64,
    until_look: u32,
    bytes_since_look: usize,
    largest_message: usize,
    memory: SocketMemory,
    peak_socket_memory: u64,
    drops: u64,
    /// The receive buffer that was asked for, as the kernel would double it.
    wanted_buffer: Option<u64>,
    /// Memory of the process that was pinned when the run ended.
    pinned: Option<u64>,
}

impl Sink {
    /// One that does `work` for each datagram.
    #[must_use]
    pub fn new(work: Work) -> Self {
        Self {
            work,
            account: Account::default(),
            begun: None,
            ended: None,
            messages: 0,
            receives: 0,
            until_look: 0,
            bytes_since_look: 0,
            largest_message: 0,
            memory: SocketMemory::default(),
            peak_socket_memory: 0,
            drops: 0,
            wanted_buffer: None,
            pinned: None,
        }
    }

    /// Notes the receive buffer that was asked for, in bytes (SO_RCVBUF or SO_RCVBUFFORCE, socket(7)): where less was
    /// granted, the report shows it.
    #[must_use]
    pub fn asking_for(mut self, receive_buffer: Option<u64>) -> Self {
        self.wanted_buffer = receive_buffer.map(|bytes| 2 * bytes);
        self
    }

    /// Notes a receive that brought so many messages (with GRO, a message may hold many datagrams). Returns whether it
    /// is time to [look](Sink::look) at the socket.
    pub fn received(&mut self, messages: u32) -> bool {
        self.receives += 1;
        self.messages += u64::from(messages);
        self.until_look = self.until_look.saturating_sub(messages);
        self.until_look == 0 || self.bytes_since_look >= BYTES_A_LOOK
    }

    /// Says how many receives all messages so far came in, for whom a message comes by itself and who counts otherwise.
    pub fn came_in(&mut self, receives: u64) {
        self.receives = receives;
    }

    /// Takes the datagrams of one message, which are all `segment` bytes long but for the last. `whole` says whether
    /// the message's end was there.
    pub fn take_message(&mut self, message: &[u8], segment: Option<usize>, whole: bool) -> Taken {
        self.bytes_since_look += message.len();
        self.largest_message = self.largest_message.max(message.len());
        let segment = segment.filter(|&segment| segment > 0).unwrap_or(usize::MAX);
        if message.len() <= segment {
            return self.take(message, whole);
        }
        let mut taken = Taken::Counted;
        let mut pieces = message.chunks(segment).peekable();
        while let Some(piece) = pieces.next() {
            if self.take(piece, whole || pieces.peek().is_some()) == Taken::Last {
                taken = Taken::Last;
            }
        }
        taken
    }

    /// Takes one datagram, which came as a message of its own or is a piece of one.
    pub fn take(&mut self, datagram: &[u8], whole: bool) -> Taken {
        self.largest_message = self.largest_message.max(datagram.len());
        let Some(Entry { header, .. }) = self.account.take(datagram, whole) else {
            return Taken::Counted;
        };
        match header.kind {
            Kind::Data => {
                if self.begun.is_none() {
                    self.begun = Some(Moment::now());
                }
                self.work.burn();
            }
            Kind::Shutdown => {
                if self.ended.is_none() {
                    self.ended = Some(Moment::now());
                    // While all is still there. A kernel that does not tell leaves it out.
                    self.pinned = ProcessMemory::now().ok().map(|memory| memory.pinned);
                }
                if self.account.is_complete() {
                    return Taken::Last;
                }
            }
        }
        Taken::Counted
    }

    /// Looks at the memory and the drops of the socket: when [`Sink::received`] says so, and once at the end, before
    /// anything else is received.
    ///
    /// # Errors
    /// Those of [`SocketMemory::of`].
    pub fn look(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.until_look = MESSAGES_A_LOOK;
        self.bytes_since_look = 0;
        let memory = SocketMemory::of(socket)?;
        // The kernel's counter wraps around.
        self.drops += u64::from(memory.drops.wrapping_sub(self.memory.drops));
        self.peak_socket_memory = self.peak_socket_memory.max(u64::from(memory.allocated));
        self.memory = memory;
        Ok(())
    }

    /// Whether every sender of the run is done.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.account.is_complete()
    }

    /// What was counted so far.
    #[must_use]
    pub fn account(&self) -> &Account {
        &self.account
    }

    /// Adds what another socket on the same port took. Peaks of socket memory add up, for they may have been at one time,
    /// and so do their bounds.
    pub fn merge(&mut self, other: &Sink) {
        self.account.merge(&other.account);
        self.begun = earlier(self.begun, other.begun);
        self.ended = earlier(self.ended, other.ended);
        self.messages += other.messages;
        self.receives += other.receives;
        self.largest_message = self.largest_message.max(other.largest_message);
        self.memory.receive_buffer = self
            .memory
            .receive_buffer
            .saturating_add(other.memory.receive_buffer);
        self.wanted_buffer = self
            .wanted_buffer
            .zip(other.wanted_buffer)
            .map(|(one, other)| one + other);
        self.peak_socket_memory += other.peak_socket_memory;
        self.drops += other.drops;
        // Of the same process.
        self.pinned = self.pinned.max(other.pinned);
    }

    /// What was found. `server` names who received, `pool` is the memory that it received into, in bytes.
    ///
    /// # Errors
    /// The memory of this process cannot be read.
    pub fn report(&self, server: &str, work: Duration, pool: u64) -> io::Result<SinkReport> {
        let span = self.begun.zip(self.ended);
        let elapsed = span.map_or(Duration::ZERO, |(begun, ended)| {
            ended.at.saturating_duration_since(begun.at)
        });
        let times = span.map_or_else(ProcessTimes::default, |(begun, ended)| {
            ended.times.since(begun.times)
        });
        let totals = self.account.totals();
        let rate = totals.distinct as f64 / elapsed.as_secs_f64();
        Ok(SinkReport {
            server: server.to_owned(),
            work_ns: nanoseconds(work),
            run: self.account.run(),
            complete: self.is_over(),
            sent: self.account.sent(),
            received: totals.distinct,
            missing: self.account.missing(),
            gaps: self.account.gaps(),
            shutdowns_missing: self.account.shutdowns_missing(),
            totals,
            socket: SocketReport {
                drops: self.drops,
                receive_buffer_bytes: u64::from(self.memory.receive_buffer),
                peak_memory_bytes: self.peak_socket_memory,
                wanted_buffer_bytes: self.wanted_buffer,
            },
            largest_message_bytes: self.largest_message as u64,
            receives: self.receives,
            messages: self.messages,
            elapsed_ns: nanoseconds(elapsed),
            datagrams_per_second: if rate.is_finite() { rate } else { 0.0 },
            user_ns: nanoseconds(times.user),
            kernel_ns: nanoseconds(times.kernel),
            peak_memory_bytes: ProcessMemory::now()?.peak_resident,
            pinned_bytes: self.pinned,
            pool_bytes: pool,
            intervals: self.account.due().clone(),
        })
    }
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.at < one.at { other } else { one }),
        (one, other) => one.or(other),
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What a sink found: one JSON object, whoever received.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SinkReport {
    /// Who received, and how.
    pub server: String,
    /// Processor time that was to be burnt for each datagram.
    pub work_ns: u64,
    /// The run; absent if no datagram of one came.
    pub run: Option<u64>,
    /// Whether every sender said that it was done, so that `sent` and `missing` are known.
    pub complete: bool,
    /// Data sent, as the senders said.
    pub sent: Option<u64>,
    /// Data that were handled, each counted once.
    pub received: u64,
    /// Data sent that never came.
    pub missing: Option<u64>,
    /// Those of them that the numbers of others show.
    pub gaps: u64,
    /// Shutdown datagrams that were lost before the last one that came to the same socket; its drops count them, too.
    pub shutdowns_missing: u64,
    /// All that was counted.
    pub totals: Totals,
    /// What the kernel says of the socket.
    pub socket: SocketReport,
    /// The longest message that came, as far as there was room for it.
    #[serde(default)]
    pub largest_message_bytes: u64,
    /// Receives that brought anything: system calls or, on io_uring, batches of completions.
    pub receives: u64,
    /// Messages that they brought; with GRO, each may hold many datagrams.
    pub messages: u64,
    /// From the first datagram to the first shutdown datagram.
    pub elapsed_ns: u64,
    /// `received` by that time.
    pub datagrams_per_second: f64,
    /// Processor time of the whole process in that time, in user space,
    pub user_ns: u64,
    /// and in the kernel.
    pub kernel_ns: u64,
    /// The most memory that the process had resident.
    pub peak_memory_bytes: u64,
    /// Memory of the process that was pinned for the kernel when the run ended: with io_uring, what is registered.
    pub pinned_bytes: Option<u64>,
    /// The memory that it received into.
    pub pool_bytes: u64,
    /// Of `received`, when they were due.
    pub intervals: Intervals,
}

impl SinkReport {
    /// The most that the sockets can have held if the kernel kept to their bound, in bytes.
    ///
    /// It lets a packet in while there is room for it, or while nothing is queued, so that a socket holds its bound or one
    /// packet. Packets that several processors hand over at once are counted before the last of them is refused
    /// (`__udp_enqueue_schedule_skb` in net/ipv4/udp.c): one more for each of the machine's `processors`. A packet takes
    /// its bytes in memory of a power of two, and its description.
    #[must_use]
    pub fn most_socket_bytes(&self, processors: u64) -> u64 {
        let packet = 2 * self.largest_message_bytes + PACKET_DESCRIPTION;
        self.socket.receive_buffer_bytes + processors * packet
    }

    /// How many of the packets that the sockets dropped can have been data, if the senders sent `shutdowns` shutdown
    /// datagrams in all.
    ///
    /// Those lost before the last one that came are known by their numbers. Those sent behind it are not: the senders go on
    /// until the sink is gone, and a queue that is still full drops them, too.
    #[must_use]
    pub fn data_drops(&self, shutdowns: u64) -> RangeInclusive<u64> {
        let most = self.socket.drops.saturating_sub(self.shutdowns_missing);
        let later = shutdowns.saturating_sub(self.totals.shutdowns + self.shutdowns_missing);
        most.saturating_sub(later)..=most
    }
}

/// More than the kernel takes for a packet beside its bytes: `sk_buff`, `skb_shared_info`, and headers.
const PACKET_DESCRIPTION: u64 = 4096;

/// The receive side of a sink's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketReport {
    /// Packets that it dropped; with GRO, each may have held many datagrams.
    pub drops: u64,
    /// The bound of its memory: SO_RCVBUF, which the kernel doubles. Of several sockets the sum.
    pub receive_buffer_bytes: u64,
    /// The most that was seen queued, in bytes, with the kernel's overhead.
    pub peak_memory_bytes: u64,
    /// What was asked for, doubled likewise; absent if the system's default was to be used. `receive_buffer_bytes` is less
    /// where net.core.rmem_max caps it and the process may not pass that (SO_RCVBUFFORCE needs CAP_NET_ADMIN).
    #[serde(default)]
    pub wanted_buffer_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;
    use crate::{Header, Work};

    fn header(sequence: u64) -> Header {
        Header {
            kind: Kind::Data,
            sender: 0,
            senders: 1,
            shutdown: 0,
            run: 3,
            sequence,
            due: 0,
        }
    }

    /// A message of datagrams of 100 bytes each, as GRO makes it.
    fn message(sequences: std::ops::Range<u64>) -> Vec<u8> {
        sequences
            .flat_map(|sequence| [&header(sequence).encode()[..], &[0; 60]].concat())
            .collect()
    }

    #[test]
    fn a_message_is_taken_apart_and_the_run_ends_with_the_shutdown() {
        let mut sink = Sink::new(Work::of(Duration::ZERO));
        assert_eq!(sink.take_message(&message(0..5), Some(100), true), Taken::Counted);
        // Cut off in its third datagram.
        assert_eq!(
            sink.take_message(&message(5..8)[..250], Some(100), false),
            Taken::Counted
        );
        assert_eq!(sink.take_message(&message(9..10), None, true), Taken::Counted);
        let shutdown = Header {
            kind: Kind::Shutdown,
            ..header(12)
        };
        assert_eq!(sink.take(&shutdown.encode(), true), Taken::Last);
        let report = sink.report("test", Duration::ZERO, 7).unwrap();
        assert_eq!(
            (report.sent, report.received, report.missing, report.gaps),
            (Some(12), 9, Some(3), 1)
        );
        assert_eq!(
            (report.totals.truncated, report.complete, report.pool_bytes),
            (1, true, 7)
        );
        assert_eq!(report.intervals.counts(), [9]);
        assert_eq!(report.largest_message_bytes, 500);
        assert_eq!(report.most_socket_bytes(2), 2 * 5096);
        assert!(report.elapsed_ns > 0 && report.datagrams_per_second > 0.0);
    }

    #[test]
    fn drops_of_later_shutdowns_are_not_those_of_data() {
        let mut sink = Sink::new(Work::of(Duration::ZERO));
        let shutdown = Header {
            kind: Kind::Shutdown,
            shutdown: 2,
            ..header(12)
        };
        assert_eq!(sink.take(&shutdown.encode(), true), Taken::Last);
        let mut report = sink.report("test", Duration::ZERO, 0).unwrap();
        assert_eq!((report.shutdowns_missing, report.totals.shutdowns), (2, 1));
        report.socket.drops = 10;
        // Numbers 0 and 1 were lost and 2 came; then none, or four, were sent.
        assert_eq!(report.data_drops(3), 8..=8);
        assert_eq!(report.data_drops(7), 4..=8);
    }

    #[test]
    fn bounds_of_several_sockets_add_up() {
        let sockets = [1, 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        let mut sinks = sockets.map(|socket| {
            let mut sink = Sink::new(Work::of(Duration::ZERO)).asking_for(Some(1 << 40));
            sink.look(socket.as_fd()).unwrap();
            sink
        });
        let [one, other] = &mut sinks;
        let single = one.report("test", Duration::ZERO, 0).unwrap().socket;
        one.merge(other);
        let both = one.report("test", Duration::ZERO, 0).unwrap().socket;
        assert_eq!(both.receive_buffer_bytes, 2 * single.receive_buffer_bytes);
        assert_eq!(both.wanted_buffer_bytes, Some(4 << 40));
        assert!(both.receive_buffer_bytes > 0);
    }

    #[test]
    fn without_a_run_the_report_says_so() {
        let mut sink = Sink::new(Work::of(Duration::ZERO));
        assert_eq!(sink.take(b"nothing", true), Taken::Counted);
        let report = sink.report("test", Duration::ZERO, 0).unwrap();
        assert!(!report.complete && report.run.is_none() && report.sent.is_none());
        assert_eq!((report.received, report.totals.foreign), (0, 1));
        assert_eq!((report.elapsed_ns, report.datagrams_per_second), (0, 0.0));
    }

    #[test]
    fn looks_are_due_at_the_beginning_and_then_by_messages() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut sink = Sink::new(Work::of(Duration::ZERO));
        assert!(sink.received(1));
        sink.look(socket.as_fd()).unwrap();
        assert!(!sink.received(MESSAGES_A_LOOK - 1));
        assert!(sink.received(1));
        // Or by bytes.
        sink.look(socket.as_fd()).unwrap();
        for _ in 0..BYTES_A_LOOK.div_ceil(60_000) {
            assert!(!sink.received(1));
            sink.take_message(&[0; 60_000], Some(1000), true);
        }
        assert!(sink.received(1));
        let report = sink.report("test", Duration::ZERO, 0).unwrap();
        let by_bytes = BYTES_A_LOOK.div_ceil(60_000) as u64 + 1;
        assert_eq!(
            (report.receives, report.messages),
            (3 + by_bytes, u64::from(MESSAGES_A_LOOK) + 1 + by_bytes)
        );
        assert!(report.socket.receive_buffer_bytes > 0);
    }
}
