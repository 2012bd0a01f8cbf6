//! A sink for metrics as statsd has them: datagrams of lines `name:value|type`, with `|@rate` behind counters that are
//! sampled, are added up; whoever connects by TCP to the same port is told all of it, one line a name, and what was
//! lost.
//!
//!     cargo run --example statsd -- 127.0.0.1:8125
//!     printf 'requests:1|c\nload:0.7|g\ntime:320|ms' > /dev/udp/127.0.0.1/8125
//!     nc 127.0.0.1 8125

mod signals;

use std::collections::HashMap;
use std::fmt::Write;

use quoit::{
    Address, Config, ConnectionId, Datagram, DatagramOptions, DatagramSocketId, Drainer, Gro, Handler,
    ListenerId, ListenerOptions, Loop, LoopIndex, Token,
};

/// Names that are kept at most: anybody can send new ones without end.
const MOST_NAMES: usize = 10_000;

/// What was heard of one name.
#[derive(Clone, Copy)]
enum Metric {
    Counter(f64),
    Gauge(f64),
    /// How many times, and the least, the sum and the most of them, in milliseconds.
    Timer(u64, f64, f64, f64),
}

impl Metric {
    /// Takes one value in; false if the name is of another type.
    fn add(&mut self, other: Self, relative: bool) -> bool {
        match (self, other) {
            (Self::Counter(sum), Self::Counter(more)) => *sum += more,
            (Self::Gauge(value), Self::Gauge(more)) if relative => *value += more,
            (Self::Gauge(value), Self::Gauge(new)) => *value = new,
            (Self::Timer(count, least, sum, most), Self::Timer(_, time, ..)) => {
                *count += 1;
                *least = least.min(time);
                *sum += time;
                *most = most.max(time);
            }
            _ => return false,
        }
        true
    }
}

struct Statsd {
    socket: DatagramSocketId,
    metrics: HashMap<Box<[u8]>, Metric>,
    /// Lines that made no sense, were of another type than their name, or of a name too many.
    refused: u64,
}

impl Statsd {
    fn take(&mut self, line: &[u8]) {
        let Some((name, metric, relative)) = parse(line) else {
            self.refused += 1;
            return;
        };
        // Names that are known take no memory.
        if let Some(known) = self.metrics.get_mut(name) {
            self.refused += u64::from(!known.add(metric, relative));
        } else if self.metrics.len() < MOST_NAMES {
            self.metrics.insert(name.into(), metric);
        } else {
            self.refused += 1;
        }
    }

    fn report(&self, event_loop: &mut Loop) -> String {
        let mut names: Vec<_> = self.metrics.iter().collect();
        names.sort_unstable_by_key(|(name, _)| *name);
        let mut text = String::new();
        for (name, metric) in names {
            let name = String::from_utf8_lossy(name);
            let _ = match metric {
                Metric::Counter(sum) => writeln!(text, "{name} {sum}"),
                Metric::Gauge(value) => writeln!(text, "{name} {value}"),
                Metric::Timer(count, least, sum, most) => {
                    let mean = sum / *count as f64;
                    writeln!(text, "{name} count={count} min={least} mean={mean} max={most}")
                }
            };
        }
        let counters = event_loop.datagram_counters(self.socket).unwrap_or_default();
        let _ = writeln!(
            text,
            "datagrams={} refused={} truncated={} dropped={}",
            counters.received, self.refused, counters.truncated, counters.kernel_drops
        );
        text
    }
}

/// `name:value|c`, `|g` or `|ms`, for counters with `|@rate`; and whether the value has a sign, which for a gauge means that
/// it is added.
fn parse(line: &[u8]) -> Option<(&[u8], Metric, bool)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, rest) = (&line[..colon], &line[colon + 1..]);
    let mut parts = rest.split(|&byte| byte == b'|');
    let number = |bytes: &[u8]| -> Option<f64> {
        let value: f64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
        value.is_finite().then_some(value)
    };
    let relative = rest.starts_with(b"+") || rest.starts_with(b"-");
    let value = number(parts.next()?)?;
    let metric = match parts.next()? {
        b"c" => match parts.next() {
            None => Metric::Counter(value),
            Some(rate) => {
                let rate = number(rate.strip_prefix(b"@")?)?;
                (rate > 0.0 && rate <= 1.0).then_some(Metric::Counter(value / rate))?
            }
        },
        b"g" => Metric::Gauge(value),
        b"ms" => Metric::Timer(1, value, value, value),
        _ => return None,
    };
    let named = !name.is_empty() && parts.next().is_none();
    named.then_some((name, metric, relative))
}

impl Handler for Statsd {
    fn on_datagram(&mut self, _: &mut Loop, _: DatagramSocketId, datagram: Datagram<'_>) {
        let mut lines = datagram.bytes();
        if datagram.is_truncated() {
            // The last line may have lost its end.
            let end = lines.iter().rposition(|&byte| byte == b'\n').unwrap_or(0);
            lines = &lines[..end];
        }
        let lines = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.for_each(|line| self.take(line));
    }

    fn on_accepted(&mut self, event_loop: &mut Loop, connection: ConnectionId, _: ListenerId) {
        let report = self.report(event_loop);
        // Whatever is asked, this is the answer.
        if event_loop.send_or_abort(connection, report.into_bytes(), Token::NONE) {
            let _ = event_loop.close(connection, None);
        }
    }
}

/// Opens both on one port. Where the kernel is to choose it, it chooses one that is free for connections, and it may be
/// taken for datagrams: then it is to choose again.
fn open(event_loop: &mut Loop, wanted: &Address) -> Result<DatagramSocketId, Box<dyn std::error::Error>> {
    let options = DatagramOptions {
        gro: Gro::Transparent,
        // Room for a burst while the loop is busy.
        receive_buffer: Some(4 << 20),
        ..DatagramOptions::default()
    };
    let mut tries = 8;
    loop {
        let listener = event_loop.listen(wanted, &ListenerOptions::default())?;
        let address = event_loop.listener_address(listener).ok_or("closed")?;
        tries -= 1;
        match event_loop.bind_datagram(&address, &options, Token::NONE) {
            Ok(socket) => {
                println!("listening on {address} engine={}", event_loop.engine());
                return Ok(socket);
            }
            Err(_) if address != *wanted && tries > 0 => event_loop.stop_listening(listener)?,
            Err(error) => return Err(error.into()),
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:0".into());
    let mut event_loop = Loop::new(LoopIndex::default(), Config::default())?;
    signals::drain_on_signals(Drainer::from(event_loop.remote()))?;
    let socket = open(&mut event_loop, &address.parse()?)?;
    let mut statsd = Statsd {
        socket,
        metrics: HashMap::new(),
        refused: 0,
    };
    Ok(event_loop.run(&mut statsd)?)
}
