//! What a run with streams found besides what every run finds.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::RpcStreams;
use crate::encoded::encode;
use crate::error::LoadError;
use crate::report::{Latency, latency};

/// The findings on streams. The field names are those of the JSON object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RpcReport {
    /// Who sent the messages: `response`, the server. Older results have `request` as well.
    pub(crate) direction: String,
    /// Messages per stream; 0: endless.
    pub(crate) messages_per_stream: u64,
    /// Messages that the server might send ahead on a stream.
    pub(crate) credit: u32,
    /// Messages that became due together, and how often; absent if nothing was paced.
    pub(crate) push: Option<u32>,
    pub(crate) every_seconds: Option<f64>,
    /// Streams that came to their right end within the measured window.
    pub(crate) streams_ended: u64,
    /// From the opening of a stream to its end; absent if none ended.
    pub(crate) stream_latency: Option<Latency>,
    /// What is behind `stream_latency`, as `histogram`.
    pub(crate) stream_histogram: Option<String>,
}

impl RpcReport {
    /// # Errors
    /// The latencies cannot be encoded.
    pub(crate) fn new(streams: &RpcStreams, latencies: &Histogram<u64>) -> Result<Self, LoadError> {
        Ok(Self {
            direction: "response".to_owned(),
            messages_per_stream: streams.messages,
            credit: streams.credit,
            push: streams.pace.map(|pace| pace.batch),
            every_seconds: streams.pace.map(|pace| pace.period as f64 / 1e9),
            streams_ended: latencies.len(),
            stream_latency: latency(latencies),
            stream_histogram: encode(latencies)?,
        })
    }

    /// What was run, in words.
    pub(crate) fn what(&self) -> String {
        let mut what = match self.messages_per_stream {
            0 => format!("endless {} streams", self.direction),
            messages => format!("{} streams of {messages} messages", self.direction),
        };
        what += &format!(", credit {}", self.credit);
        if let (Some(push), Some(every)) = (self.push, self.every_seconds) {
            what += &format!(", {push} every {every} s");
        }
        what
    }
}
