//! What a case of datagrams comes to: the account of the sender and that of the sink, held against each other.

use quoit_yardstick::SinkReport;
use serde::Deserialize;
use serde_json::Value;

use crate::lab::error::{LabError, Result};
use crate::lab::results::model::{DatagramFigures, Figures, Slice};

/// What of a `quoit load udp --json` is of use here.
#[derive(Clone, Debug, Deserialize)]
struct Sent {
    run: u64,
    sent: u64,
    sent_per_second: f64,
    generator_cpu_ns_per_datagram: f64,
    interrupted: bool,
    invalid: Option<String>,
}

/// The figures of a run, from the reports of its two ends.
///
/// # Errors
/// A report is none, or a datagram is not accounted for.
pub(super) fn slice(server: &str, sent: Value, found: &str) -> Result<Slice> {
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
            pool_bytes: found.pool_bytes as f64,
            messages_per_receive: each(found.messages, found.receives),
            datagrams_per_message: each(found.totals.taken, found.messages),
        }),
        ..Figures::default()
    };
    Ok(slice)
}

/// Holds the two accounts against each other: answers what is missing, all of which the socket has dropped.
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
            "the sums do not close: {account}, and the senders told the sink {told}"
        ));
    }
    let totals = found.totals;
    if totals.taken != totals.distinct + totals.duplicates + totals.forgotten
        || totals.distinct != found.received
    {
        return Err(format!("the sink's own sums do not close: {totals:?}"));
    }
    let dropped = found.socket.drops.saturating_sub(found.shutdowns_missing);
    // A message that GRO joined is dropped as one packet, so that the socket may count fewer.
    let joined = totals.taken > found.messages;
    let closes = if joined {
        dropped <= missing && (dropped > 0 || missing == 0)
    } else {
        dropped == missing
    };
    if closes {
        Ok(missing)
    } else {
        Err(format!("the sums do not close: {account}"))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use quoit_yardstick::{Sink, SinkReport, SocketReport, Totals, Work};
    use serde_json::json;

    use super::*;

    fn sent(sent: u64) -> Value {
        json!({
            "run": 5, "sent": sent, "sent_per_second": 1e5, "generator_cpu_ns_per_datagram": 500.0,
            "interrupted": false, "invalid": null, "more": "is passed over",
        })
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
            },
            messages: 94,
            receives: 47,
            elapsed_ns: 1_000_000,
            datagrams_per_second: 90_000.0,
            user_ns: 9_000,
            kernel_ns: 27_000,
            ..nothing.report("test", Duration::ZERO, 4096).unwrap()
        }
    }

    fn of(sent: Value, found: &SinkReport) -> Result<Slice> {
        slice("quoit", sent, &serde_json::to_string(found).unwrap())
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
        assert!(
            refused(100, |found| found.totals.duplicates = 0),
            "one was counted twice"
        );
        assert!(refused(100, |found| found.run = Some(6)), "another run");
        assert!(
            refused(100, |found| (found.sent, found.missing) = (None, None)),
            "no end"
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
        assert!(of(sent(100), &found).unwrap().spoiled.is_some());
    }
}
