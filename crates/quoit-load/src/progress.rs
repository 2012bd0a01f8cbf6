//! How far a run has come, for those who watch it.

use std::time::Duration;

use super::report::Interval;

/// How far a run has come. It is told about ten times per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Progress {
    /// It is too early to open connections: how long that is so.
    Waiting { left: Duration },
    /// Connections are being opened: how many are, of how many.
    Opening { open: u64, connections: u64 },
    /// The connections are open and the measured window is fixed: how far ahead it opens, and how long it
    /// lasts if it is limited in time. Told once.
    Scheduled {
        opens_in: Duration,
        lasts: Option<Duration>,
    },
    /// The warm-up: the share that is over, and replies so far.
    WarmUp { fraction: f64, replies: u64 },
    /// The measured window: the share that is over, and replies since the start of the run.
    Measuring { fraction: f64, replies: u64 },
    /// An interval of the measured window is over.
    Interval(Interval),
    /// Datagrams: the share that is over, how many were sent, and how many answered, if that is expected.
    Sending {
        fraction: f64,
        sent: u64,
        replies: Option<u64>,
    },
    /// Shutdown datagrams: the share of the rounds that is over.
    ShuttingDown { fraction: f64 },
}

impl Progress {
    /// The share that is over, and what is done, in words; `None` of what is told once.
    pub(crate) fn text(self) -> Option<(f64, String)> {
        Some(match self {
            Progress::Interval(_) | Progress::Scheduled { .. } => return None,
            Progress::Waiting { left } => (0.0, format!("waiting: {:.0} s", left.as_secs_f64().ceil())),
            Progress::Opening { open, connections } => {
                let fraction = open as f64 / connections.max(1) as f64;
                (fraction, format!("opening: {open} of {connections} connections"))
            }
            Progress::WarmUp { fraction, replies } => (fraction, format!("warming up: {replies} replies")),
            Progress::Measuring { fraction, replies } => (fraction, format!("measuring: {replies} replies")),
            Progress::Sending {
                fraction,
                sent,
                replies,
            } => {
                let replies = replies.map_or(String::new(), |replies| format!(", {replies} replies"));
                (fraction, format!("sending: {sent} datagrams{replies}"))
            }
            Progress::ShuttingDown { fraction } => (fraction, "saying that it is over".to_owned()),
        })
    }
}
