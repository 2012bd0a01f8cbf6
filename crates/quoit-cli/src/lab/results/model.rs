//! What a run found: the raw results, as they are written to JSON and read back by `report` and `compare`.
//!
//! The schema is described in `docs/lab.md`. Fields are added, never renamed or given another meaning; a change
//! that breaks readers raises [`SCHEMA`]. Units are in the names. What a machine does not let us measure is `null`,
//! with the reason among the notes: never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the schema that this program writes.
pub(crate) const SCHEMA: u32 = 2;

/// Everything that one run of an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    /// [`SCHEMA`].
    pub(crate) schema: u32,
    pub(crate) experiment: ExperimentInfo,
    pub(crate) environment: Environment,
    pub(crate) placement: Placement,
    pub(crate) effort: EffortUsed,
    /// In the order of the file.
    pub(crate) cases: Vec<CaseResults>,
    /// Servers and cases that were left out, with the reason.
    pub(crate) left_out: Vec<LeftOut>,
    /// What a reader has to know: settings changed and restored, what could not be measured and why.
    pub(crate) notes: Vec<String>,
    /// Set when the run was interrupted or failed before its end: why. What was measured stands.
    pub(crate) incomplete: Option<String>,
}

/// The experiment, as far as a reader of the results needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExperimentInfo {
    pub(crate) name: String,
    pub(crate) title: String,
    pub(crate) about: String,
    /// `(source, claim)` of the published experiments that it repeats.
    pub(crate) claims: Vec<(String, String)>,
    /// The tables that they published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) published: Vec<Published>,
    /// Whether it was run with `--quick`.
    pub(crate) quick: bool,
    /// The whole file, so that a result says what made it.
    pub(crate) file: String,
}

/// A table that somebody published, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Published {
    /// Who published it, where.
    pub(crate) source: String,
    /// How its scale stands to that of the run.
    pub(crate) scale: String,
    pub(crate) titles: Vec<String>,
    /// Each as long as the titles.
    pub(crate) rows: Vec<Vec<String>>,
}

/// The machine as it was when the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// Seconds since 1970.
    pub(crate) started_at: u64,
    pub(crate) quoit_version: String,
    /// The commit that this program was built from, if it was built in a repository; `-dirty` if changed.
    pub(crate) commit: Option<String>,
    pub(crate) kernel: Option<String>,
    pub(crate) processor: Option<String>,
    pub(crate) cores: u32,
    pub(crate) memory_bytes: Option<u64>,
    pub(crate) virtualised: bool,
    /// While it was measured.
    pub(crate) congestion_control: Option<String>,
    pub(crate) io_uring_disabled: Option<String>,
    /// Runnable threads over the minute before the run.
    pub(crate) load_average: Option<f64>,
    /// Share of the processors' time that the hypervisor gave to others during the run, 0 to 1.
    pub(crate) stolen_share: Option<f64>,
    /// Share of the processors' time that other processes of the machine used during the run, 0 to 1.
    pub(crate) foreign_share: Option<f64>,
    /// Versions of the servers under test, as far as they say: name to version.
    pub(crate) versions: BTreeMap<String, String>,
}

/// Where things ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Placement {
    /// `same-core`, `split-core`, `veth` or `remote`.
    pub(crate) kind: String,
    pub(crate) server_cores: Vec<u32>,
    pub(crate) generator_cores: Vec<u32>,
}

/// How much was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EffortUsed {
    pub(crate) seconds: f64,
    pub(crate) warm_up_seconds: f64,
    pub(crate) least_pairs: u32,
    pub(crate) most_pairs: u32,
    /// The A/A half width that was aimed at.
    pub(crate) band_aim: f64,
    /// Slices that were thrown away and repeated because the machine disturbed them.
    pub(crate) spoiled_slices: u32,
    /// Wall-clock seconds of the whole run.
    pub(crate) total_seconds: f64,
    /// CPU that the lab itself used while slices ran, as a share of one core: what watching costs.
    pub(crate) observer_cpu_share: f64,
}

/// One workload over all servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseResults {
    pub(crate) name: String,
    /// The workload in words, such as `http /plaintext, 128 connections, 16 deep, closed loop`.
    pub(crate) workload: String,
    /// What the cost is for: `request`, `message`, `MiB`, `connection` or `datagram`.
    pub(crate) unit: String,
    /// What pairs are judged by.
    #[serde(default)]
    pub(crate) judge: Judge,
    /// The ladder of rates that it is a rung of: datagrams only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ladder: Option<String>,
    /// Offered requests a second, if there was a schedule.
    pub(crate) offered_per_second: Option<f64>,
    pub(crate) baseline: String,
    /// The baseline against itself, then every other server that something is compared with. Empty until the
    /// first control pair is done.
    pub(crate) controls: Vec<Control>,
    /// Every other server against the baseline, or against the server that the experiment names for it; losses
    /// first.
    pub(crate) comparisons: Vec<Comparison>,
    /// Every server with the medians over its slices.
    pub(crate) servers: Vec<ServerSummary>,
    /// All slices in the order in which they ran, spoiled ones included.
    pub(crate) slices: Vec<Slice>,
}

/// What the cost of a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Judge {
    /// Its CPU for a unit of work.
    #[default]
    Cpu,
    /// Its memory for a connection.
    Memory,
    /// The time that passes for each datagram that it handles. Where all are offered the same, the ratio is that of the
    /// shares handled.
    Handled,
}

/// The A/A control.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Control {
    /// The server that was compared with itself.
    pub(crate) server: String,
    pub(crate) pairs: u32,
    /// The median of the pairwise ratios of the server with itself, and its interval.
    pub(crate) cost: Ratio,
    /// At least 1: ratios between `1 / factor` and `factor` are noise.
    pub(crate) band: f64,
    /// Whether the band is as narrow as was aimed at.
    pub(crate) reached: bool,
}

/// A ratio with its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// One server against another. The ratios are the server's figure over the other's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) server: String,
    /// The server that it is compared with: the baseline, unless the experiment says otherwise.
    pub(crate) against: String,
    pub(crate) pairs: u32,
    /// Cost of the server over that of the other: below 1 the server is cheaper. [`CaseResults::judge`] says what
    /// the cost is.
    pub(crate) cost: Ratio,
    /// The band of `against`'s control, as in [`Control::band`]; `null` without a control.
    pub(crate) band: Option<f64>,
    /// Without a band there is no win and no loss.
    pub(crate) verdict: Verdict,
    /// Server and generator CPU together: on loopback one side can push cost onto the other.
    pub(crate) total_cost: Option<Ratio>,
    /// Units a second of the server over those of the other: above 1 the server does more.
    pub(crate) throughput: Option<Ratio>,
    /// 99th percentiles of the latency, over all requests.
    pub(crate) latency_p99: Option<Ratio>,
}

/// What a cost ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// The server costs more than the baseline, beyond the noise.
    Loss,
    /// Inside the A/A band, or too uncertain to be called.
    Tie,
    /// The server costs less, beyond the noise.
    Win,
    /// There are too few pairs, of the comparison or of its control, or there is no control.
    Unjudged,
}

/// A server's medians over its slices.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerSummary {
    pub(crate) server: String,
    pub(crate) slices: u32,
    pub(crate) figures: Figures,
    /// System calls a unit, counted in a run of their own; `null` if the machine does not let us count.
    pub(crate) system_calls_per_unit: Option<f64>,
    /// Latencies of all slices merged: `(percentile from 0 to 100, nanoseconds)`, for the curve.
    pub(crate) latency_curve: Vec<(f64, f64)>,
    /// The slowest second of all slices over the median second, and the spread: how unstable it was.
    pub(crate) slowest_second_share: Option<f64>,
    /// Standard deviation of the units a second over their mean.
    pub(crate) rate_deviation: Option<f64>,
    /// What reading its counters costs, measured without load; `null` for a server that shows none.
    pub(crate) counter_reading: Option<ReadingCost>,
}

/// What one reading of a server's counters costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ReadingCost {
    /// Processor time of the server, which is part of its figures.
    pub(crate) server_ns: f64,
    /// Processor time of the lab.
    pub(crate) observer_ns: f64,
}

/// One server, started anew, under load for one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Slice {
    pub(crate) server: String,
    /// `control NAME`, or the name of the server that is compared.
    pub(crate) series: String,
    /// The pair's number in its series, from 0, and the slice's place in it, 0 or 1.
    pub(crate) pair: u32,
    pub(crate) position: u32,
    /// Why it was thrown away and repeated, if it was.
    pub(crate) spoiled: Option<String>,
    pub(crate) figures: Figures,
    /// Share of the processors' time that the hypervisor gave to others meanwhile, 0 to 1.
    pub(crate) stolen_share: Option<f64>,
    /// Share of the processors' time that other processes of this machine used meanwhile, 0 to 1.
    pub(crate) foreign_share: Option<f64>,
    /// CPU that the lab itself used meanwhile, as a share of one core.
    pub(crate) observer_cpu_share: Option<f64>,
    /// Once a second.
    pub(crate) samples: Vec<Sample>,
    /// What the server's own counters rose by, if it has any: name to value.
    pub(crate) counters: BTreeMap<String, f64>,
    /// The slice's latencies, `HistogramLogProcessor`-compatible (V2, compressed, base64).
    pub(crate) histogram: Option<String>,
}

/// The figures of one slice, or medians of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) units: f64,
    pub(crate) units_per_second: f64,
    /// All threads, ended ones and those of the kernel that work for the server included.
    pub(crate) server_cpu_ns_per_unit: f64,
    pub(crate) server_user_share: Option<f64>,
    pub(crate) generator_cpu_ns_per_unit: Option<f64>,
    /// Of the SQPOLL thread, which is in the server's figure too.
    pub(crate) kernel_thread_cpu_ns_per_unit: Option<f64>,
    pub(crate) context_switches_per_unit: Option<f64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) peak_resident_bytes: Option<u64>,
    /// Of the client under test; `null` for our own generator.
    pub(crate) client_resident_bytes: Option<u64>,
    pub(crate) client_peak_resident_bytes: Option<u64>,
    /// Memory beyond that of the server without connections, by connection: `idle` only.
    pub(crate) bytes_per_connection: Option<f64>,
    /// CPU nanoseconds a second: `idle` only.
    pub(crate) idle_cpu_ns_per_second: Option<f64>,
    pub(crate) minor_faults: Option<u64>,
    pub(crate) major_faults: Option<u64>,
    /// Over all requests.
    pub(crate) latency: Option<Latency>,
    /// The same, each less the time in which the generator did not run meanwhile.
    pub(crate) latency_at_least: Option<Latency>,
    /// Share of the requests that overlapped a gap of the generator, 0 to 1.
    pub(crate) slipped_share: Option<f64>,
    /// How late the generator's own sends were, 99th percentile: an open loop only.
    pub(crate) generator_lag_p99_ns: Option<f64>,
    pub(crate) errors: u64,
    /// Time that the server's runtime spent compiling, by its own account, over the window's length: past
    /// a hundredth it was not warmed up. Of a server that shows `quoit_compiling_seconds_total`.
    #[serde(default)]
    pub(crate) compiling_share: Option<f64>,
    /// Of a case of datagrams.
    #[serde(default)]
    pub(crate) datagrams: Option<DatagramFigures>,
    /// What a client under test says beside, of itself and of the server: the unit is in the name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) told: BTreeMap<String, f64>,
}

/// The account of a sink: `sent = units + missing`, exactly, where `units` are the datagrams that it handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DatagramFigures {
    pub(crate) sent: f64,
    pub(crate) sent_per_second: f64,
    /// Sent and not handled.
    pub(crate) missing: f64,
    /// Of those, the ones whose end was cut off are handled all the same.
    pub(crate) truncated: f64,
    /// Handled by sent, 0 to 1.
    pub(crate) handled_share: f64,
    /// Packets that the socket dropped; with GRO, each may have held many datagrams. Shutdown datagrams are among
    /// them.
    pub(crate) dropped_packets: f64,
    pub(crate) user_ns_per_unit: f64,
    pub(crate) kernel_ns_per_unit: f64,
    /// The most that the socket was seen to hold, with the kernel's overhead, and its bound.
    pub(crate) peak_socket_bytes: f64,
    pub(crate) socket_bound_bytes: f64,
    /// The receive buffer that was asked for, as the kernel would double it; `None`: the system's default. The bound is less
    /// where that was not granted.
    #[serde(default)]
    pub(crate) wanted_buffer_bytes: Option<f64>,
    /// The most memory that all UDP sockets of the machine had together (`/proc/net/sockstat`), at any of ten glances a
    /// second; `None` in older results.
    #[serde(default)]
    pub(crate) peak_udp_memory_bytes: Option<f64>,
    /// Memory that is received into.
    pub(crate) pool_bytes: f64,
    /// Memory of the server that was pinned for the kernel when the run ended; `None` where it does not say.
    #[serde(default)]
    pub(crate) pinned_bytes: Option<f64>,
    pub(crate) messages_per_receive: f64,
    /// More than 1 where GRO joins them.
    pub(crate) datagrams_per_message: f64,
    /// Of a case with an overload.
    #[serde(default)]
    pub(crate) recovery: Option<Recovery>,
}

/// What follows an overload: the rate that is offered then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recovery {
    /// From the end of the overload until the last loss, to a tenth of a second: from then on everything was handled.
    pub(crate) seconds: f64,
    /// How long the rate was offered.
    pub(crate) of_seconds: f64,
    /// 1 if there was a time without loss at the end, 0 if not; of several slices the mean.
    pub(crate) recovered_share: f64,
    /// Of what was sent before the end of the overload, and after it, the share that was handled.
    pub(crate) handled_share_before: f64,
    pub(crate) handled_share_after: f64,
    /// From the end of the overload until the first second began in which everything was handled; `None` if there was none,
    /// and in older results.
    #[serde(default)]
    pub(crate) whole_second_after: Option<f64>,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latency {
    pub(crate) mean_ns: f64,
    pub(crate) standard_deviation_ns: f64,
    pub(crate) p50_ns: f64,
    pub(crate) p90_ns: f64,
    pub(crate) p99_ns: f64,
    pub(crate) p99_9_ns: f64,
    pub(crate) max_ns: f64,
}

/// One second of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Since the start of the measured window, at the sample's end.
    pub(crate) at_seconds: f64,
    /// `null` where the generator does not say what it did in each second.
    pub(crate) units: Option<f64>,
    pub(crate) server_user_ns: f64,
    pub(crate) server_kernel_ns: f64,
    pub(crate) resident_bytes: Option<u64>,
    /// Packets that the machine's sockets dropped (`TcpExtListenDrops`, `UdpRcvbufErrors` and the like); of datagrams, that
    /// the server's did.
    pub(crate) drops: u64,
    /// Datagrams that were sent in it, of which `units` were handled, whenever.
    #[serde(default)]
    pub(crate) sent: Option<f64>,
    /// What the server's datagram sockets held at its end, with the kernel's overhead.
    #[serde(default)]
    pub(crate) socket_bytes: Option<u64>,
    /// The most that all UDP sockets of the machine had in it (`/proc/net/sockstat`).
    #[serde(default)]
    pub(crate) udp_memory_bytes: Option<u64>,
    /// What the server's own counters rose by from the last reading to this; empty where they were not read at both
    /// ends, because the server shows none or does so little that reading would change its figures.
    pub(crate) counters: BTreeMap<String, f64>,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LeftOut {
    /// The server or case.
    pub(crate) what: String,
    pub(crate) why: String,
}
