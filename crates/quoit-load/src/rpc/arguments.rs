//! The options of `quoit load rpc`.

use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use quoit_workload::rpc::frame::Pace;
use quoit_workload::rpc::{MAX_MESSAGE, MIN_MESSAGE, MIN_PERIOD};

use super::RpcStreams;
use crate::arguments::parse_positive_seconds;

/// Bytes of a message unless they are given.
const SIZE: u32 = 128;

/// Credit of a stream unless it is given.
const CREDIT: u32 = 1024;

/// What the streams are like.
#[derive(Debug, Clone, Args)]
pub(crate) struct RpcArguments {
    /// Streams to keep open on each connection
    #[arg(long, value_name = "S", default_value_t = 1,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=65_536))]
    pub(crate) streams: u32,
    /// Messages of a stream, which is opened again when it has ended; 0: endless
    #[arg(long, value_name = "M", default_value_t = 32)]
    messages: u64,
    /// Bytes of a message, from 24 to 16,777,211
    #[arg(long, value_name = "BYTES", default_value_t = SIZE,
          value_parser = RangedU64ValueParser::<u32>::new().range(u64::from(MIN_MESSAGE)..=u64::from(MAX_MESSAGE)))]
    size: u32,
    /// Messages that the server may send ahead on a stream; granted again when half are used
    #[arg(long, value_name = "N", default_value_t = CREDIT,
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=u64::from(u32::MAX)))]
    credit: u32,
    /// Let the server push this many messages of a stream at a time
    #[arg(long, value_name = "B", requires = "every",
          value_parser = RangedU64ValueParser::<u32>::new().range(1..=u64::from(u32::MAX)))]
    push: Option<u32>,
    /// Time between two pushes
    #[arg(long, value_name = "SECONDS", requires = "push", value_parser = parse_positive_seconds)]
    every: Option<Duration>,
    /// Let messages carry no send time: for a server on another machine, whose clock differs
    #[arg(long)]
    untimed: bool,
}

impl RpcArguments {
    /// The streams, if the options go together. `timeout` is the longest wait for something to arrive.
    pub(crate) fn streams(&self, timeout: Duration) -> Result<RpcStreams, String> {
        let pace = match (self.push, self.every) {
            (Some(batch), Some(every)) => {
                let period = u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
                if period < MIN_PERIOD {
                    return Err("--every must be at least 0.001 seconds".to_owned());
                }
                Some(Pace { batch, period })
            }
            _ => None,
        };
        if pace.is_some_and(|pace| u128::from(pace.period) >= timeout.as_nanos()) {
            return Err("--timeout must be longer than --every, or each pause is a time-out".to_owned());
        }
        Ok(RpcStreams {
            messages: self.messages,
            size: self.size,
            credit: self.credit,
            pace,
            timed: !self.untimed,
        })
    }
}
