//! What a case of datagrams comes to: the account of the sender and that of the sink, held against each other.

use std::time::Duration;

use quoit_report::results::model::{DatagramFigures, Figures, Recovery, Slice};
use quoit_workload::{Intervals, SinkReport};
use serde::Deserialize;
use serde_json::Value;

use super::sink_watch::{Look, samples};
use crate::error::{LabError, Result};

/// What of a `quoit load udp --json` is of use here.
#[derive(Clone, Debug, Deserialize)]
struct Sent {
    run: u64,
    sent: u64,
    sent_per_second: f64,
    generator_cpu_ns_per_datagram: f64,
    interrupted: bool,
    invalid: Option<String>,
    /// Seconds since 1970.
    started_at: f64,
    phases: Vec<Phase>,
    intervals: Intervals,
    shutdown: Shutdowns,
}

/// The datagrams that ended the run.
#[derive(Clone, Debug, Deserialize)]
struct Shutdowns {
    datagrams: u64,
}

/// A part of the run.
#[derive(Clone, Debug, Deserialize)]
struct Phase {
    begins_seconds: f64,
    seconds: f64,
}

/// The figures of a run, from the reports of its two ends.
///
/// # Errors
/// A report is none, a datagram is not accounted for, or the socket held more memory than its bound allows.
pub(super) fn slice(server: &str, sent: Value, found: &str, looks: &[Look]) -> Result<Slice> {
    let sent: Sent = serde_json::from_value(sent)
        .map_err(|error| LabError::new(format!("the report of the load cannot be understood: {error}")))?;
    let found: SinkReport = serde_json::from_str(found)
        .map_err(|error| LabError::new(format!("the report of the sink cannot be understood: {error}")))?;
    if let Some(reason) = sent
        .invalid
        .clone()
        .or(sent.interrupted.then(|| "it was interrupted".to_owned()))
    {
        return Err(LabError::new(reason));
    }
    let missing = close(&sent, &found).map_err(LabError::new)?;
    let mut slice = Slice {
        server: server.to_owned(),
        samples: samples(looks, sent.started_at, &sent.intervals, &found.intervals),
        ..Slice::default()
    };
    let handled = found.received as f64;
    if found.received == 0 || found.elapsed_ns == 0 {
        slice.spoiled = Some("no datagram was handled".to_owned());
        return Ok(slice);
    }
    let (user, kernel) = (found.user_ns as f64, found.kernel_ns as f64);
    let each = |sum: u64, by: u64| sum as f64 / by.max(1) as f64;
    slice.figures = Figures {
        units: handled,
        units_per_second: found.datagrams_per_second,
        server_cpu_ns_per_unit: (user + kernel) / handled,
        server_user_share: (user + kernel > 0.0).then(|| user / (user + kernel)),
        // Of all that was sent, for what was handled.
        generator_cpu_ns_per_unit: Some(sent.generator_cpu_ns_per_datagram * sent.sent as f64 / handled),
        peak_resident_bytes: Some(found.peak_memory_bytes),
        datagrams: Some(DatagramFigures {
            sent: sent.sent as f64,
            sent_per_second: sent.sent_per_second,
            missing: missing as f64,
            truncated: found.totals.truncated as f64,
            handled_share: handled / sent.sent as f64,
            dropped_packets: found.socket.drops as f64,
            user_ns_per_unit: user / handled,
            kernel_ns_per_unit: kernel / handled,
            peak_socket_bytes: found.socket.peak_memory_bytes as f64,
            socket_bound_bytes: found.socket.receive_buffer_bytes as f64,
            wanted_buffer_bytes: found.socket.wanted_buffer_bytes.map(|bytes| bytes as f64),
            peak_udp_memory_bytes: looks
                .iter()
                .filter_map(|look| look.udp_memory)
                .max()
                .map(|bytes| bytes as f64),
            pool_bytes: found.pool_bytes as f64,
            pinned_bytes: found.pinned_bytes.map(|bytes| bytes as f64),
            messages_per_receive: each(found.messages, found.receives),
            datagrams_per_message: each(found.totals.taken, found.messages),
            recovery: recovery(&sent, &found),
        }),
        ..Figures::default()
    };
    Ok(slice)
}

/// What followed the overload: the last phase of a run that has several.
fn recovery(sent: &Sent, found: &SinkReport) -> Option<Recovery> {
    let [_, .., last] = &sent.phases[..] else {
        return None;
    };
    // There are such: the account has closed.
    let losses = sent.intervals.losses(&found.intervals)?;
    let begins = last.begins_seconds;
    let seconds = losses.last_after(Duration::from_secs_f64(begins)).as_secs_f64();
    let (before, lost_before) = (sent.intervals.until(begins), losses.until(begins));
    let (after, lost_after) = (sent.sent as f64 - before, losses.sum() as f64 - lost_before);
    let share = |sent: f64, lost: f64| {
        if sent > 0.0 {
            (1.0 - lost / sent).clamp(0.0, 1.0)
        } else {
            1.0
        }
    };
    Some(Recovery {
        seconds: seconds.min(last.seconds),
        of_seconds: last.seconds,
        recovered_share: f64::from(u8::from(seconds < last.seconds)),
        handled_share_before: share(before, lost_before),
        handled_share_after: share(after, lost_after),
        whole_second_after: losses
            .first_without(
                Duration::from_secs_f64(begins),
                Duration::from_secs_f64(begins + last.seconds),
                Duration::from_secs(1),
            )
            .map(|after| after.as_secs_f64()),
    })
}

/// Holds the two accounts against each other: returns what is missing, all of which the socket has dropped.
fn close(sent: &Sent, found: &SinkReport) -> std::result::Result<u64, String> {
    let (Some(told), Some(missing)) = (found.sent, found.missing) else {
        return Err(format!(
            "the sink ended before all senders had said what they sent; it had {} datagrams",
            found.received
        ));
    };
    if found.run != Some(sent.run) {
        return Err("the sink took the datagrams of another run".to_owned());
    }
    let account = format!(
        "{} were sent, {} handled and {missing} missing; the socket dropped {} packets, {} of them shutdown datagrams",
        sent.sent, found.received, found.socket.drops, found.shutdowns_missing
    );
    if told != sent.sent || found.received + missing != sent.sent {
        return Err(format!(
            "the sums do not add up: {account}, and the senders told the sink {told}"
        ));
    }
    if sent.intervals.sum() != sent.sent || found.intervals.sum() != found.received {
        return Err("the counts by time are not those of the whole run".to_owned());
    }
    if sent.intervals.losses(&found.intervals).is_none() {
        return Err("more was handled than sent in a part of the run".to_owned());
    }
    // Packets are handed over on the processors of those who send, which are among this process's.
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let most = found.most_socket_bytes(processors);
    if found.socket.peak_memory_bytes > most {
        return Err(format!(
            "the socket held {} bytes, and its bound of {} allows {most} with what processors may be adding",
            found.socket.peak_memory_bytes, found.socket.receive_buffer_bytes
        ));
    }
    let totals = found.totals;
    if totals.taken != totals.distinct + totals.duplicates + totals.forgotten
        || totals.distinct != found.received
    {
        return Err(format!("the sink's own sums do not add up: {totals:?}"));
    }
    let dropped = found.data_drops(sent.shutdown.datagrams);
    // A message that GRO joined is dropped as one packet, so that the socket may count fewer.
    let joined = totals.taken > found.messages;
    let closes = if joined {
        *dropped.start() <= missing && (*dropped.end() > 0 || missing == 0)
    } else {
        dropped.contains(&missing)
    };
    if closes {
        Ok(missing)
    } else {
        Err(format!("the sums do not add up: {account}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quoit_workload::{Sink, SinkReport, SocketReport, Totals, Work};
    use serde_json::json;

    use super::*;

    fn sent(sent: u64) -> Value {
        json!({
            "run": 5, "sent": sent, "sent_per_second": 1e5, "generator_cpu_ns_per_datagram": 500.0,
            "interrupted": false, "invalid": null, "more": "is passed over", "started_at": 0.0,
            "phases": [{"begins_seconds": 0.0, "seconds": 0.3}], "intervals": [50, sent - 60, 10],
            "shutdown": {"datagrams": 2, "bytes": 64},
        })
    }

    fn counts(counts: &[u64]) -> Intervals {
        serde_json::from_value(json!(counts)).unwrap()
    }

    /// A sink that was sent 100 and handled 90.
    fn found() -> SinkReport {
        let nothing = Sink::new(Work::of(Duration::ZERO));
        SinkReport {
            run: Some(5),
            complete: true,
            sent: Some(100),
            received: 90,
            missing: Some(10),
            shutdowns_missing: 2,
            totals: Totals {
                taken: 91,
                distinct: 90,
                duplicates: 1,
                ..Totals::default()
            },
            socket: SocketReport {
                drops: 12,
                receive_buffer_bytes: 212_992,
                peak_memory_bytes: 200_000,
                wanted_buffer_bytes: Some(400_000),
            },
            largest_message_bytes: 1024,
            pinned_bytes: Some(8192),
            messages: 94,
            receives: 47,
            elapsed_ns: 1_000_000,
            datagrams_per_second: 90_000.0,
            user_ns: 9_000,
            kernel_ns: 27_000,
            intervals: counts(&[45, 35, 10]),
            ..nothing.report("test", Duration::ZERO, 4096).unwrap()
        }
    }

    fn of(sent: Value, found: &SinkReport) -> Result<Slice> {
        slice("quoit", sent, &serde_json::to_string(found).unwrap(), &[])
    }

    #[test]
    fn an_account_that_closes_becomes_figures() {
        let figures = of(sent(100), &found()).unwrap().figures;
        assert_eq!((figures.units, figures.server_cpu_ns_per_unit), (90.0, 400.0));
        assert_eq!(figures.server_user_share, Some(0.25));
        let datagrams = figures.datagrams.unwrap();
        assert_eq!((datagrams.missing, datagrams.handled_share), (10.0, 0.9));
        assert_eq!(
            (datagrams.messages_per_receive, datagrams.pool_bytes),
            (2.0, 4096.0)
        );
        assert_eq!(datagrams.pinned_bytes, Some(8192.0));
        assert_eq!(datagrams.wanted_buffer_bytes, Some(400_000.0));
    }

    #[test]
    fn an_account_that_does_not_close_fails() {
        let refused = |count, change: fn(&mut SinkReport)| {
            let mut found = found();
            change(&mut found);
            of(sent(count), &found).is_err()
        };
        assert!(refused(101, |_| {}), "one was sent more");
        assert!(
            refused(100, |found| found.socket.drops = 13),
            "one was dropped more"
        );
        assert!(
            refused(100, |found| found.socket.drops = 11),
            "one was dropped less"
        );
        let mut load = sent(100);
        load["shutdown"]["datagrams"] = json!(3);
        let mut found_one_more = found();
        found_one_more.socket.drops = 13;
        assert!(
            of(load, &found_one_more).is_ok(),
            "the one more may be a shutdown that followed the last one that came"
        );
        assert!(
            refused(100, |found| found.totals.duplicates = 0),
            "one was counted twice"
        );
        assert!(refused(100, |found| found.run = Some(6)), "another run");
        assert!(
            refused(100, |found| found.socket.peak_memory_bytes = 2 * 212_992),
            "the socket held twice its bound"
        );
        assert!(
            refused(100, |found| (found.sent, found.missing) = (None, None)),
            "no end"
        );
        assert!(
            refused(100, |found| found.intervals = counts(&[45, 34, 10])),
            "one had no time"
        );
        assert!(
            refused(100, |found| found.intervals = counts(&[39, 40, 11])),
            "more came of the last tenth than were sent"
        );
    }

    #[test]
    fn what_follows_an_overload_is_told_apart() {
        let mut load = sent(100);
        load["phases"] = json!([
            {"begins_seconds": 0.0, "seconds": 0.1},
            {"begins_seconds": 0.1, "seconds": 0.2},
        ]);
        let short = load.clone();
        let recovery = |found: &SinkReport| {
            let figures = of(short.clone(), found).unwrap().figures;
            figures.datagrams.unwrap().recovery.unwrap()
        };
        let mut sink = found();
        let seen = recovery(&sink);
        assert_eq!((seen.of_seconds, seen.recovered_share), (0.2, 1.0));
        assert!((seen.seconds - 0.1).abs() < 1e-9, "{seen:?}");
        assert_eq!((seen.handled_share_before, seen.handled_share_after), (0.9, 0.9));

        sink.intervals = counts(&[45, 36, 9]);
        assert_eq!(recovery(&sink).recovered_share, 0.0);
        sink.intervals = counts(&[40, 40, 10]);
        let seen = recovery(&sink);
        assert_eq!((seen.seconds, seen.recovered_share), (0.0, 1.0));
        assert_eq!((seen.handled_share_before, seen.handled_share_after), (0.8, 1.0));
        // No second was long enough.
        assert_eq!(seen.whole_second_after, None);
        load["phases"][1]["seconds"] = json!(2.0);
        let figures = of(load.clone(), &sink).unwrap().figures;
        let seen = figures.datagrams.unwrap().recovery.unwrap();
        assert_eq!(seen.whole_second_after, Some(0.0));
        // A run of one phase has none.
        assert!(
            of(sent(100), &found())
                .unwrap()
                .figures
                .datagrams
                .unwrap()
                .recovery
                .is_none()
        );
    }

    #[test]
    fn packets_that_gro_joined_may_be_fewer_than_what_is_missing() {
        let mut found = found();
        found.messages = 30;
        found.socket.drops = 3;
        assert!(of(sent(100), &found).is_ok());
        found.socket.drops = 2;
        let error = of(sent(100), &found).unwrap_err().to_string();
        assert!(error.contains("10 missing"), "{error}");
    }

    #[test]
    fn a_sink_that_handled_nothing_has_no_figures() {
        let mut found = found();
        (found.received, found.missing) = (0, Some(100));
        (found.totals.taken, found.totals.distinct, found.totals.duplicates) = (0, 0, 0);
        found.socket.drops = 102;
        found.intervals = counts(&[]);
        assert!(of(sent(100), &found).unwrap().spoiled.is_some());
    }
}
