//! The counters as Prometheus text.

use std::fmt::Write;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use quoit::counters::Figure;
use quoit::proxy_protocol::HeaderCounters;
use quoit::{
    Config, Counters, EngineChoice, EngineKind, Listen, ListenOptions, ListenerOptions, LoopIndex, Remote,
    Runtime, RuntimeConfig, StartError,
};
use quoit_workload::Work;

use super::datagrams::{DatagramFigures, DnsFigures};
use super::http::Observed;
use super::http_server::{HttpServer, Timeouts};
use super::liveness::Liveness;
use super::rpc_figures::RpcFigures;
use super::threads::LoopThread;

/// The loops to be asked, known once they run.
#[derive(Debug, Default)]
pub(super) struct Published {
    running: OnceLock<Running>,
    /// When the drain that has begun is over, in seconds since 1970.
    drained_by: OnceLock<u64>,
    /// The counts of `serve rpc`, one per loop; none otherwise.
    rpc: Vec<Arc<RpcFigures>>,
    /// Those of the servers of datagrams, likewise.
    datagrams: Vec<Arc<DatagramFigures>>,
    /// Those of `serve dns` besides, likewise.
    dns: Vec<Arc<DnsFigures>>,
    /// What became of headers of the PROXY protocol, likewise.
    headers: Vec<Arc<HeaderCounters>>,
    /// Connections of `serve http` that the deadline of a drain has reset. No metric: it happens when the loops end.
    cut: Arc<AtomicU64>,
    /// The threads of the loops, likewise.
    threads: Vec<LoopThread>,
    liveness: Liveness,
}

#[derive(Debug)]
struct Running {
    loops: Vec<Remote>,
    engine: EngineKind,
    reason: String,
}

impl Published {
    /// With room for the counts of so many loops of `serve rpc`.
    pub(super) fn with_rpc(loops: u16) -> Self {
        Self {
            rpc: (0..loops).map(|_| Arc::default()).collect(),
            ..Self::default()
        }
    }

    /// With room for the counts of so many loops of a server of datagrams, which keep them up to date if they are
    /// `shown`.
    pub(super) fn with_datagrams(loops: u16, shown: bool) -> Self {
        let figures = || Arc::new(DatagramFigures::new(shown));
        Self {
            datagrams: std::iter::repeat_with(figures).take(loops.into()).collect(),
            ..Self::default()
        }
    }

    /// With room for the counts of so many loops of `serve dns`, likewise.
    pub(super) fn with_dns(loops: u16, shown: bool) -> Self {
        Self {
            dns: (0..loops).map(|_| Arc::default()).collect(),
            ..Self::with_datagrams(loops, shown)
        }
    }

    /// Makes room for what becomes of headers of the PROXY protocol.
    pub(super) fn add_headers(&mut self, loops: u16) {
        self.headers = (0..loops).map(|_| Arc::default()).collect();
    }

    /// Makes room for what the loops' threads take of the processors.
    pub(super) fn add_threads(&mut self, loops: u16) {
        self.threads = (0..loops).map(|_| LoopThread::default()).collect();
    }

    /// The calling thread is that of the loop of that index.
    pub(super) fn runs_here(&self, index: LoopIndex) {
        self.threads[usize::from(index.get())].is_this();
    }

    /// Where the loop of that index counts headers.
    pub(super) fn headers(&self, index: LoopIndex) -> Arc<HeaderCounters> {
        Arc::clone(&self.headers[usize::from(index.get())])
    }

    /// Where the loop of that index publishes its counts.
    pub(super) fn rpc(&self, index: LoopIndex) -> Arc<RpcFigures> {
        Arc::clone(&self.rpc[usize::from(index.get())])
    }

    /// The same of a server of datagrams.
    pub(super) fn datagrams(&self, index: LoopIndex) -> Arc<DatagramFigures> {
        Arc::clone(&self.datagrams[usize::from(index.get())])
    }

    /// The same of `serve dns`.
    pub(super) fn dns(&self, index: LoopIndex) -> Arc<DnsFigures> {
        Arc::clone(&self.dns[usize::from(index.get())])
    }

    /// A drain begins, and is over when so much time is. Told once: nothing else drains.
    pub(super) fn drains(&self, within: Duration) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let _ = self.drained_by.set((now.unwrap_or_default() + within).as_secs());
    }

    /// Where connections are counted that the deadline of a drain resets.
    pub(super) fn cut(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.cut)
    }

    pub(super) fn publish(&self, runtime: &Runtime) {
        let running = Running {
            loops: runtime.remotes().cloned().collect(),
            engine: runtime.engine(),
            reason: runtime.engine_reason().to_owned(),
        };
        // Done once, when the loops have started.
        let _ = self.running.set(running);
    }
}

/// What a server tells of all loops.
pub(super) fn observed(published: &Arc<Published>) -> Box<dyn Observed> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(AllLoops(Arc::clone(published))));
    Box::new(Program {
        published: Arc::clone(published),
        registry,
    })
}

struct Program {
    published: Arc<Published>,
    registry: Registry,
}

impl Observed for Program {
    fn metrics(&mut self, text: &mut String) {
        if prometheus_client::encoding::text::encode(text, &self.registry).is_err() {
            text.clear();
            // Writing to memory cannot fail.
            let _ = writeln!(text, "# the counters could not be encoded");
        }
    }

    fn unready(&mut self, reason: &mut String) {
        if self.published.running.get().is_none() {
            reason.push_str("starting");
        } else if self.published.drained_by.get().is_some() {
            reason.push_str("draining");
        }
    }

    fn stuck(&mut self, reason: &mut String) {
        let loops = self.published.running.get().map(|running| &running.loops[..]);
        if let Some(index) = self.published.liveness.standing(loops.unwrap_or_default()) {
            // Writing to memory cannot fail.
            let _ = write!(reason, "loop {index} stands still");
        }
    }
}

#[derive(Debug)]
struct AllLoops(Arc<Published>);

impl Collector for AllLoops {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let Some(running) = self.0.running.get() else {
            return Ok(());
        };
        let info = Info::new(vec![
            ("engine", running.engine.name().to_owned()),
            ("reason", running.reason.clone()),
        ]);
        let metric = encoder.encode_descriptor(
            "quoit_engine",
            "The engine and why it runs",
            None,
            info.metric_type(),
        )?;
        info.encode(metric)?;
        let deadline = self.0.drained_by.get().copied().unwrap_or(0);
        let deadline = ConstGauge::new(i64::try_from(deadline).unwrap_or(i64::MAX));
        let metric = encoder.encode_descriptor(
            "quoit_drain_deadline_timestamp_seconds",
            "When the drain that has begun is over, as seconds since 1970, and 0 while none has",
            None,
            deadline.metric_type(),
        )?;
        deadline.encode(metric)?;
        let loops: Vec<Counters> = running.loops.iter().map(Remote::counters).collect();
        for (position, (name, figure, description, _)) in Counters::default().figures().enumerate() {
            let values = loops
                .iter()
                .filter_map(|counters| counters.figures().nth(position));
            encode_family(
                &mut encoder,
                (name, figure, description),
                values.map(|(.., value)| value),
            )?;
        }
        self.0.encode_threads(&mut encoder)?;
        let rpc: Vec<_> = self
            .0
            .rpc
            .iter()
            .map(|figures| figures.figures().to_vec())
            .collect();
        encode_families(&mut encoder, &rpc)?;
        let datagrams: Vec<_> = self.0.datagrams.iter().map(|figures| figures.figures()).collect();
        encode_families(&mut encoder, &datagrams)?;
        let dns: Vec<_> = self.0.dns.iter().map(|figures| figures.figures()).collect();
        encode_families(&mut encoder, &dns)?;
        let headers: Vec<_> = self
            .0
            .headers
            .iter()
            .map(|counters| counters.figures().to_vec())
            .collect();
        encode_families(&mut encoder, &headers)
    }
}

impl Published {
    /// What the loops' threads have had of the processors. A thread that has ended is left out.
    fn encode_threads(&self, encoder: &mut DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let times: Vec<_> = self.threads.iter().map(LoopThread::times).collect();
        encode_times(
            encoder,
            "quoit_loop_running_seconds",
            "Time that the loop's thread was on a processor",
            times.iter().map(|times| times.map(|times| times.running)),
        )?;
        encode_times(
            encoder,
            "quoit_loop_runnable_seconds",
            "Time that the loop's thread had something to do and waited for a processor",
            times.iter().map(|times| times.map(|times| times.waiting)),
        )
    }
}

/// A time of all loops, in their order, where it is known.
fn encode_times(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    description: &str,
    times: impl Iterator<Item = Option<Duration>>,
) -> Result<(), std::fmt::Error> {
    let kind = ConstCounter::new(0.0).metric_type();
    let mut family = encoder.encode_descriptor(name, description, None, kind)?;
    for (index, time) in times.enumerate() {
        if let Some(time) = time {
            let labels = [("loop", index.to_string())];
            ConstCounter::new(time.as_secs_f64()).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// The figures of all loops, which have the same in the same order.
fn encode_families(
    encoder: &mut DescriptorEncoder<'_>,
    loops: &[Vec<(&str, Figure, &str, u64)>],
) -> Result<(), std::fmt::Error> {
    for position in 0..loops.first().map_or(0, Vec::len) {
        let (name, figure, description, _) = loops[0][position];
        let values = loops.iter().map(|figures| figures[position].3);
        encode_family(encoder, (name, figure, description), values)?;
    }
    Ok(())
}

/// One figure of all loops, in their order.
fn encode_family(
    encoder: &mut DescriptorEncoder<'_>,
    (name, figure, description): (&str, Figure, &str),
    values: impl Iterator<Item = u64>,
) -> Result<(), std::fmt::Error> {
    let name = format!("quoit_{name}");
    let description = description.trim_end_matches('.');
    let kind = match figure {
        Figure::Counter => ConstCounter::new(0u64).metric_type(),
        Figure::Gauge => ConstGauge::new(0i64).metric_type(),
    };
    let mut family = encoder.encode_descriptor(&name, description, None, kind)?;
    for (index, value) in values.enumerate() {
        let labels = [("loop", index.to_string())];
        let metric = family.encode_family(&labels)?;
        match figure {
            Figure::Counter => ConstCounter::new(value).encode(metric)?,
            Figure::Gauge => ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)?,
        }
    }
    Ok(())
}

/// Connections of the metrics at once, for which [descriptors](super::descriptors) are kept back.
pub(super) const CONNECTIONS: u32 = 32;
/// How long one of them may take to ask, or to take what it is answered: a probe does that at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Ends that loop, once it has answered who has connected to it already.
pub(super) fn end(runtime: Runtime) {
    runtime.drainer().drain(PATIENCE);
    // What has failed serves nobody any more, and everything else has ended well.
    let _ = runtime.join();
}

/// How they are listened for.
pub(super) fn options() -> ListenerOptions {
    ListenerOptions {
        listen: ListenOptions {
            unlink_existing: true,
            ..ListenOptions::default()
        },
        ..ListenerOptions::default()
    }
}

/// Serves `/metrics` and the probes on an address of their own, by one more loop, which is not among the
/// published ones. It runs on epoll: it must also work where the others are being examined. Connections close after one
/// response, and the oldest is given up where many come and say nothing.
pub(super) fn serve(
    listen: Listen,
    published: &Arc<Published>,
    timeouts: Timeouts,
) -> Result<Runtime, StartError> {
    let config = Config {
        engine: EngineChoice::Require(EngineKind::Epoll),
        connections: CONNECTIONS,
        receive_slots: 64,
        // Half of the connections are given up before they hold all of it.
        send_chunks: 8192,
        ..Config::default()
    };
    let listeners = vec![(listen, options())];
    let runtime = RuntimeConfig {
        config,
        listeners,
        ..RuntimeConfig::default()
    };
    let published = Arc::clone(published);
    let timeouts = Timeouts {
        head: timeouts.head.min(PATIENCE),
        idle: timeouts.idle.min(PATIENCE),
        // Who has just connected to the socket that a successor has as well is answered.
        keep_idle: timeouts.keep_idle.min(PATIENCE),
    };
    Runtime::start(runtime, move |_| {
        HttpServer::new(timeouts, Work::of(Duration::ZERO), observed(&published))
            .for_probes(CONNECTIONS as usize / 2)
    })
}
