//! The options of `quoit load rpc`.

use std::time::Duration;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use quoit_workload::rpc::frame::Pace;
use quoit_workload::rpc::{MAX_MESSAGE, MIN_MESSAGE, MIN_PERIOD};

use super::{Direction, RpcStreams};
use crate::Sizes;
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
    /// Bytes of a message, from 24 to 16,777,211 [default: 128]
    #[arg(long, value_name = "BYTES", conflicts_with = "sizes",
          value_parser = RangedU64ValueParser::<u32>::new().range(u64::from(MIN_MESSAGE)..=u64::from(MAX_MESSAGE)))]
    size: Option<u32>,
    /// Bytes of messages at random, drawn for each stream as it is opened: A..B, each size alike; or
    /// 64:80,1024:15,65536:5, sizes with weights
    #[arg(long, value_name = "SIZES", value_parser = parse_sizes)]
    sizes: Option<Sizes>,
    /// Who sends the messages
    #[arg(long, value_enum, default_value = "response")]
    direction: Direction,
    /// Messages that the server may send ahead on a stream; granted again when half are used
    /// [default: 1024]
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<u32>::new().range(1..=u64::from(u32::MAX)))]
    credit: Option<u32>,
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
        if self.direction == Direction::Request {
            if self.messages == 0 {
                return Err(
                    "--direction request needs --messages of at least 1: the server replies once it has all"
                        .to_owned(),
                );
            }
            let only_response = [
                (self.push.is_some(), "--push"),
                (self.credit.is_some(), "--credit"),
                (self.untimed, "--untimed"),
            ];
            if let Some((_, option)) = only_response.iter().find(|(given, _)| *given) {
                return Err(format!(
                    "{option} is for messages that the server sends, but --direction is request"
                ));
            }
        }
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
            direction: self.direction,
            messages: self.messages,
            sizes: self
                .sizes
                .clone()
                .unwrap_or(Sizes::Fixed(self.size.unwrap_or(SIZE))),
            credit: self.credit.unwrap_or(CREDIT),
            pace,
            timed: self.direction == Direction::Response && !self.untimed,
        })
    }
}

/// Sizes that the format allows.
fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let sizes: Sizes = text.parse()?;
    if sizes.least() < MIN_MESSAGE as usize || sizes.largest() > MAX_MESSAGE as usize {
        return Err(format!("messages have from {MIN_MESSAGE} to {MAX_MESSAGE} bytes"));
    }
    Ok(sizes)
}
