//! What a run found: the raw results, as they are written to JSON and read back by `report` and `compare`.
//!
//! The schema is described in `docs/lab.md`. Fields are added, never renamed or given another meaning; a change
//! that breaks readers raises [`SCHEMA`]. Units are in the names. What a machine does not let us measure is `null`,
//! with the reason among the notes: never zero.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the schema that this program writes.
pub const SCHEMA: u32 = 2;

/// Everything that one run of an experiment found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What was asked.
    pub experiment: ExperimentInfo,
    /// The machine that it ran on.
    pub environment: Environment,
    /// Where on it.
    pub placement: Placement,
    /// How much was measured.
    pub effort: EffortUsed,
    /// In the order of the file.
    pub cases: Vec<CaseResults>,
    /// Servers and cases that were left out, with the reason.
    pub left_out: Vec<LeftOut>,
    /// What a reader has to know: settings changed and restored, what could not be measured and why.
    pub notes: Vec<String>,
    /// Set when the run was interrupted or failed before its end: why. What was measured stands.
    pub incomplete: Option<String>,
}

/// The experiment, as far as a reader of the results needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentInfo {
    /// As `quoit lab run` takes it.
    pub name: String,
    /// In a few words.
    pub title: String,
    /// The question that it asks.
    pub about: String,
    /// `(source, claim)` of the published experiments that it repeats.
    pub claims: Vec<(String, String)>,
    /// The tables that they published.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
    /// Whether it was run with `--quick`.
    pub quick: bool,
    /// The whole file, so that a result says what made it.
    pub file: String,
}

/// A table that somebody published, in words.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// Who published it, where.
    pub source: String,
    /// How its scale stands to that of the run.
    pub scale: String,
    /// The heads of the columns.
    pub titles: Vec<String>,
    /// Each as long as the titles.
    pub rows: Vec<Vec<String>>,
}

/// The machine as it was when the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Seconds since 1970.
    pub started_at: u64,
    /// Of the program that ran it.
    pub quoit_version: String,
    /// The commit that this program was built from, if it was built in a repository; `-dirty` if changed.
    pub commit: Option<String>,
    /// Its release, as `uname -r` says it.
    pub kernel: Option<String>,
    /// Its model.
    pub processor: Option<String>,
    /// Those that the lab may use.
    pub cores: u32,
    /// All that the machine has.
    pub memory_bytes: Option<u64>,
    /// Whether the processor says that a hypervisor is below.
    pub virtualised: bool,
    /// While it was measured.
    pub congestion_control: Option<String>,
    /// The sysctl `kernel.io_uring_disabled`, while it was measured.
    pub io_uring_disabled: Option<String>,
    /// Runnable threads over the minute before the run.
    pub load_average: Option<f64>,
    /// Share of the processors' time that the hypervisor gave to others during the run, 0 to 1.
    pub stolen_share: Option<f64>,
    /// Share of the processors' time that other processes of the machine used during the run, 0 to 1.
    pub foreign_share: Option<f64>,
    /// Versions of the servers under test, as far as they say: name to version.
    pub versions: BTreeMap<String, String>,
}

/// Where things ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// `same-core`, `split-core`, `veth` or `remote`.
    pub kind: String,
    /// The cores of the server.
    pub server_cores: Vec<u32>,
    /// The cores of the generator.
    pub generator_cores: Vec<u32>,
}

/// How much was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EffortUsed {
    /// The window of a slice.
    pub seconds: f64,
    /// Load before the window.
    pub warm_up_seconds: f64,
    /// Pairs that are measured at least.
    pub least_pairs: u32,
    /// Pairs after which it is enough.
    pub most_pairs: u32,
    /// The A/A half width that was aimed at.
    pub band_aim: f64,
    /// Slices that were thrown away and repeated because the machine disturbed them.
    pub spoiled_slices: u32,
    /// Wall-clock seconds of the whole run.
    pub total_seconds: f64,
    /// CPU that the lab itself used while slices ran, as a share of one core: what watching costs.
    pub observer_cpu_share: f64,
}

/// One workload over all servers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResults {
    /// Unique in the experiment.
    pub name: String,
    /// The workload in words, such as `http /plaintext, 128 connections, 16 deep, closed loop`.
    pub workload: String,
    /// What the cost is for: `request`, `message`, `MiB`, `connection` or `datagram`.
    pub unit: String,
    /// What pairs are judged by.
    #[serde(default)]
    pub judge: Judge,
    /// The ladder of rates that it is a rung of: datagrams only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ladder: Option<String>,
    /// Offered requests per second, if there was a schedule.
    pub offered_per_second: Option<f64>,
    /// The server that the others are compared with.
    pub baseline: String,
    /// The baseline against itself, then every other server that something is compared with. Empty until the
    /// first control pair is done.
    pub controls: Vec<Control>,
    /// Every other server against the baseline, or against the server that the experiment names for it; losses
    /// first.
    pub comparisons: Vec<Comparison>,
    /// Every server with the medians over its slices.
    pub servers: Vec<ServerSummary>,
    /// All slices in the order in which they ran, spoiled ones included.
    pub slices: Vec<Slice>,
}

/// What the cost of a server is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judge {
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
pub struct Control {
    /// The server that was compared with itself.
    pub server: String,
    /// How many there are.
    pub pairs: u32,
    /// The median of the pairwise ratios of the server with itself, and its interval.
    pub cost: Ratio,
    /// At least 1: ratios between `1 / factor` and `factor` are noise.
    pub band: f64,
    /// Whether the band is as narrow as was aimed at.
    pub reached: bool,
}

/// A ratio with its 95 % bootstrap interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Of the pairs' ratios.
    pub median: f64,
    /// The lower end of the interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// One server against another. The ratios are the server's figure over the other's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The one that is judged.
    pub server: String,
    /// The server that it is compared with: the baseline, unless the experiment says otherwise.
    pub against: String,
    /// How many there are.
    pub pairs: u32,
    /// Cost of the server over that of the other: below 1 the server is cheaper. [`CaseResults::judge`] says what
    /// the cost is.
    pub cost: Ratio,
    /// The band of `against`'s control, as in [`Control::band`]; `null` without a control.
    pub band: Option<f64>,
    /// Without a band there is no win and no loss.
    pub verdict: Verdict,
    /// Server and generator CPU together: on loopback one side can push cost onto the other.
    pub total_cost: Option<Ratio>,
    /// Units per second of the server over those of the other: above 1 the server does more.
    pub throughput: Option<Ratio>,
    /// 99th percentiles of the latency, over all requests.
    pub latency_p99: Option<Ratio>,
}

/// What a cost ratio says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
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
pub struct ServerSummary {
    /// Its name.
    pub server: String,
    /// How many count.
    pub slices: u32,
    /// The medians.
    pub figures: Figures,
    /// System calls per unit, counted in a run of their own; `null` if the machine does not let us count.
    pub system_calls_per_unit: Option<f64>,
    /// Latencies of all slices merged: `(percentile from 0 to 100, nanoseconds)`, for the curve.
    pub latency_curve: Vec<(f64, f64)>,
    /// The slowest second of all slices over the median second, and the spread: how unstable it was.
    pub slowest_second_share: Option<f64>,
    /// Standard deviation of the units per second over their mean.
    pub rate_deviation: Option<f64>,
    /// What reading its counters costs, measured without load; `null` for a server that shows none.
    pub counter_reading: Option<ReadingCost>,
}

/// What one reading of a server's counters costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadingCost {
    /// Processor time of the server, which is part of its figures.
    pub server_ns: f64,
    /// Processor time of the lab.
    pub observer_ns: f64,
}

/// One server, started anew, under load for one window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Slice {
    /// The one under load.
    pub server: String,
    /// `control NAME`, or the name of the server that is compared.
    pub series: String,
    /// The pair's number in its series, from 0.
    pub pair: u32,
    /// The slice's place in the pair, 0 or 1.
    pub position: u32,
    /// Why it was thrown away and repeated, if it was.
    pub spoiled: Option<String>,
    /// What was measured.
    pub figures: Figures,
    /// Share of the processors' time that the hypervisor gave to others meanwhile, 0 to 1.
    pub stolen_share: Option<f64>,
    /// Share of the processors' time that other processes of this machine used meanwhile, 0 to 1.
    pub foreign_share: Option<f64>,
    /// CPU that the lab itself used meanwhile, as a share of one core.
    pub observer_cpu_share: Option<f64>,
    /// Once a second.
    pub samples: Vec<Sample>,
    /// What the server's own counters rose by, if it has any: name to value.
    pub counters: BTreeMap<String, f64>,
    /// The slice's latencies, `HistogramLogProcessor`-compatible (V2, compressed, base64).
    pub histogram: Option<String>,
}

/// The figures of one slice, or medians of several.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Work done in the window; [`CaseResults::unit`] says of what.
    pub units: f64,
    /// The same by the window's length.
    pub units_per_second: f64,
    /// All threads, ended ones and those of the kernel that work for the server included.
    pub server_cpu_ns_per_unit: f64,
    /// Of the server's processor time, the share in user space, 0 to 1.
    pub server_user_share: Option<f64>,
    /// Of the load's threads, or of all processes of the client.
    pub generator_cpu_ns_per_unit: Option<f64>,
    /// Of the SQPOLL thread, which is in the server's figure too.
    pub kernel_thread_cpu_ns_per_unit: Option<f64>,
    /// Of the server's threads that lived at the end.
    pub context_switches_per_unit: Option<f64>,
    /// Summed over the processes of the server, shared pages for each.
    pub resident_bytes: Option<u64>,
    /// The same at its peak since the start.
    pub peak_resident_bytes: Option<u64>,
    /// Of the client under test; `null` for our own generator.
    pub client_resident_bytes: Option<u64>,
    /// The same at its peak since the start.
    pub client_peak_resident_bytes: Option<u64>,
    /// Memory beyond that of the server without connections, by connection: `idle` only.
    pub bytes_per_connection: Option<f64>,
    /// CPU nanoseconds per second: `idle` only.
    pub idle_cpu_ns_per_second: Option<f64>,
    /// Page faults of the server in the window that read nothing from a disk.
    pub minor_faults: Option<u64>,
    /// Page faults of the server in the window that did.
    pub major_faults: Option<u64>,
    /// Over all requests.
    pub latency: Option<Latency>,
    /// The same, each less the time in which the generator did not run meanwhile.
    pub latency_at_least: Option<Latency>,
    /// Share of the requests that overlapped a gap of the generator, 0 to 1.
    pub slipped_share: Option<f64>,
    /// How late the generator's own sends were, 99th percentile: an open loop only.
    pub generator_lag_p99_ns: Option<f64>,
    /// Always 0 in a slice that counts; of several the sum.
    pub errors: u64,
    /// Time that the server's runtime spent compiling, by its own account, over the window's length: past
    /// a hundredth it was not warmed up. Of a server that shows `quoit_compiling_seconds_total`.
    #[serde(default)]
    pub compiling_share: Option<f64>,
    /// Of a case of datagrams.
    #[serde(default)]
    pub datagrams: Option<DatagramFigures>,
    /// What a client under test says beside, of itself and of the server: the unit is in the name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub told: BTreeMap<String, f64>,
}

/// The account of a sink: `sent = units + missing`, exactly, where `units` are the datagrams that it handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DatagramFigures {
    /// By the generator, in the window.
    pub sent: f64,
    /// The same by the window's length.
    pub sent_per_second: f64,
    /// Sent and not handled.
    pub missing: f64,
    /// Of those, the ones whose end was cut off are handled all the same.
    pub truncated: f64,
    /// Handled by sent, 0 to 1.
    pub handled_share: f64,
    /// Packets that the socket dropped; with GRO, each may have held many datagrams. Shutdown datagrams are among
    /// them.
    pub dropped_packets: f64,
    /// Processor time of the server in user space.
    pub user_ns_per_unit: f64,
    /// Processor time of the server in the kernel.
    pub kernel_ns_per_unit: f64,
    /// The most that the socket was seen to hold, with the kernel's overhead.
    pub peak_socket_bytes: f64,
    /// The bound of what the socket may hold.
    pub socket_bound_bytes: f64,
    /// The receive buffer that was asked for, as the kernel would double it; `None`: the system's default. The bound is less
    /// where that was not granted.
    #[serde(default)]
    pub wanted_buffer_bytes: Option<f64>,
    /// The most memory that all UDP sockets of the machine had together (`/proc/net/sockstat`), at any of ten glances per
    /// second; `None` in older results.
    #[serde(default)]
    pub peak_udp_memory_bytes: Option<f64>,
    /// Memory that is received into.
    pub pool_bytes: f64,
    /// Memory of the server that was pinned for the kernel when the run ended; `None` where it does not say.
    #[serde(default)]
    pub pinned_bytes: Option<f64>,
    /// How many one receive brings.
    pub messages_per_receive: f64,
    /// More than 1 where GRO joins them.
    pub datagrams_per_message: f64,
    /// Of a case with an overload.
    #[serde(default)]
    pub recovery: Option<Recovery>,
}

/// What follows an overload: the rate that is offered then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// From the end of the overload until the last loss, to a tenth of a second: from then on everything was handled.
    pub seconds: f64,
    /// How long the rate was offered.
    pub of_seconds: f64,
    /// 1 if there was a time without loss at the end, 0 if not; of several slices the mean.
    pub recovered_share: f64,
    /// Of what was sent before the end of the overload, the share that was handled.
    pub handled_share_before: f64,
    /// The same of what was sent after it.
    pub handled_share_after: f64,
    /// From the end of the overload until the first second began in which everything was handled; `None` if there was none,
    /// and in older results.
    #[serde(default)]
    pub whole_second_after: Option<f64>,
}

/// Latencies in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The mean.
    pub mean_ns: f64,
    /// The standard deviation.
    pub standard_deviation_ns: f64,
    /// The median.
    pub p50_ns: f64,
    /// The 90th percentile.
    pub p90_ns: f64,
    /// The 99th percentile.
    pub p99_ns: f64,
    /// The 99.9th percentile.
    pub p99_9_ns: f64,
    /// The longest.
    pub max_ns: f64,
}

/// One second of a slice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Since the start of the measured window, at the sample's end.
    pub at_seconds: f64,
    /// `null` where the generator does not say what it did in each second.
    pub units: Option<f64>,
    /// Processor time of the server in user space, in this second.
    pub server_user_ns: f64,
    /// Processor time of the server in the kernel, in this second.
    pub server_kernel_ns: f64,
    /// Of the server, at the sample's end.
    pub resident_bytes: Option<u64>,
    /// Packets that the machine's sockets dropped (`TcpExtListenDrops`, `UdpRcvbufErrors` and the like); of datagrams, that
    /// the server's did.
    pub drops: u64,
    /// Datagrams that were sent in it, of which `units` were handled, whenever.
    #[serde(default)]
    pub sent: Option<f64>,
    /// What the server's datagram sockets held at its end, with the kernel's overhead.
    #[serde(default)]
    pub socket_bytes: Option<u64>,
    /// The most that all UDP sockets of the machine had in it (`/proc/net/sockstat`).
    #[serde(default)]
    pub udp_memory_bytes: Option<u64>,
    /// What the server's own counters rose by from the last reading to this; empty where they were not read at both
    /// ends, because the server shows none or does so little that reading would change its figures.
    pub counters: BTreeMap<String, f64>,
}

/// Something that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The server or case.
    pub what: String,
    /// The reason.
    pub why: String,
}
