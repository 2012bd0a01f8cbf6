//! One slice: a server started anew, warmed up, and watched for one window of load.

use std::time::Duration;

use quoit_host::monotonic_now;
use quoit_report::results::model::{Figures, ReadingCost, Slice};
use serde_json::Value;

use super::generator::{Generator, Report, Window};
use super::interrupt::Interrupts;
use super::launch::{self, Launched};
use super::reading::{self, Reader};
use super::sink_watch::SinkWatch;
use super::watch::{Look, Seen, Watch};
use super::{Halt, datagrams, idle, stream};
use crate::error::LabError;
use crate::experiment::model::{Case, ClientSpec, DatagramSpec, LoadSpec, ServerSpec, Workload};
use crate::placement::remote;
use crate::placement::site::Site;
use crate::programs::Programs;

/// How long a generator may take to open its connections, and to end after its window.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a sink may take to end once the senders have.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);
/// The longest window in which system calls are counted. Their number per unit does not depend on neighbours, so that
/// one short run is enough.
pub(crate) const COUNT_SECONDS: f64 = 1.0;

/// Why a slice has no figures.
const NOT_SEEN: &str = "the lab did not come to run during the window";
const NOTHING_DONE: &str = "no reply came during the window";

/// The counter of a runtime that compiles what it runs while it runs: the seconds that it has spent on that.
const COMPILING: &str = "compiling_seconds";

/// What all slices of a run have in common.
pub(crate) struct Rig<'a> {
    pub(crate) programs: &'a Programs,
    pub(crate) site: &'a Site,
    pub(crate) interrupts: &'a Interrupts,
    /// Of the window.
    pub(crate) seconds: f64,
    /// Of the load before it.
    pub(crate) warm_up: f64,
}

/// What is put under what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job<'a> {
    pub(crate) server: &'a ServerSpec,
    pub(crate) case: &'a Case,
    /// In place of `quoit load`.
    pub(crate) client: Option<&'a ClientSpec>,
    /// Offered requests per second; without, the loop is closed.
    pub(crate) rate: Option<f64>,
    /// What reading its counters costs; without, they are read at the bounds of the window only.
    pub(crate) reading: Option<ReadingCost>,
}

/// A slice, not yet part of a series, and what its server says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) slice: Slice,
    pub(crate) version: Option<String>,
    /// Of a slice that has no figures: that, with the last output of the server.
    pub(crate) nothing: Option<String>,
}

/// A load that is over.
struct Driven {
    looks: Vec<Look>,
    report: Report,
    /// Of a generator that announces it.
    window: Option<Window>,
}

type Outcome<T> = Result<T, Halt>;

impl Rig<'_> {
    /// Measures one slice.
    ///
    /// # Errors
    /// The run was interrupted. Or the server does not start, dies, or serves wrongly, or the generator fails: the
    /// message ends with the last output of whoever failed.
    pub(crate) fn measure(&self, job: Job<'_>) -> Outcome<Measured> {
        let mut launched = self.launch(job)?;
        let outcome = match &job.case.workload {
            Workload::Idle { connections, seconds } => {
                idle::measure(&launched, *connections, *seconds, self.site, self.interrupts)
            }
            Workload::Datagrams(datagrams) => self.send_datagrams(&mut launched, datagrams, job),
            Workload::Load(_) | Workload::Bulk { .. } => {
                let driven = self.drive(&launched, job, false, self.seconds);
                driven.and_then(|driven| self.slice(job, &driven))
            }
        };
        let slice = blame(&mut launched, outcome)?;
        let nothing = slice.spoiled.as_ref().map(|reason| {
            let told = launched
                .server
                .failure(&format!("could not be measured: {reason}"));
            told.to_string()
        });
        let version = launched.server.ready().value("version").map(str::to_owned);
        match &job.case.workload {
            // It was ended to quote its output.
            _ if nothing.is_some() => drop(launched),
            // A sink ends by itself, and has when its report was read.
            Workload::Datagrams(_) => drop(launched),
            Workload::Load(_) | Workload::Bulk { .. } | Workload::Idle { .. } => launched.server.stop()?,
        }
        Ok(Measured {
            slice,
            version,
            nothing,
        })
    }

    /// System calls per unit, counted in a run of its own; the reason if this machine does not let us count.
    ///
    /// # Errors
    /// As [`Rig::measure`].
    pub(crate) fn count_system_calls(&self, job: Job<'_>) -> Outcome<Result<f64, String>> {
        let mut launched = self.launch(job)?;
        // Asked first: where it is not permitted, no load has to be made.
        if let Err(reason) = Watch::new(&launched.server, None).count_system_calls() {
            return Ok(Err(reason));
        }
        let driven = self.drive(&launched, job, true, self.seconds.min(COUNT_SECONDS));
        let driven = blame(&mut launched, driven)?;
        launched.server.stop()?;
        let counted = Seen::of(&driven.looks).and_then(|seen| {
            let scale = driven.window.map_or(Some(1.0), |window| seen.scale(window))?;
            Some(seen.system_calls()? as f64 * scale)
        });
        let units = driven.report.units();
        if units <= 0.0 {
            return Ok(Err(NOTHING_DONE.to_owned()));
        }
        Ok(counted
            .map(|calls| calls / units)
            .ok_or_else(|| NOT_SEEN.to_owned()))
    }

    /// What reading the counters of a server costs, in a run of its own without load; `None` if it shows none.
    ///
    /// # Errors
    /// As [`Rig::measure`].
    pub(crate) fn cost_of_reading(&self, job: Job<'_>) -> Outcome<Option<ReadingCost>> {
        let mut launched = self.launch(job)?;
        let Some(address) = launched.metrics else {
            return Ok(None);
        };
        let cost = reading::cost(&launched.server, address, self.site);
        let cost = blame(&mut launched, cost.map_err(Halt::from))?;
        launched.server.stop()?;
        Ok(cost)
    }

    /// Lets a sink take what is sent.
    fn send_datagrams(
        &self,
        launched: &mut Launched,
        datagrams: &DatagramSpec,
        job: Job<'_>,
    ) -> Outcome<Slice> {
        let address = self.site.address_for_generator(launched.server.address());
        let mut words = vec![self.programs.quoit.display().to_string(), "load".to_owned()];
        words.extend(datagrams.load_arguments(address, job.rate, self.seconds));
        let command = self.site.generator_command(0, &words)?;
        let watch = SinkWatch::new(&launched.server);
        let generator = Generator::start("the load", command, self.site.is_local())?;
        let patience = match (datagrams.count, job.rate) {
            (Some(count), Some(rate)) => Duration::from_secs_f64(count as f64 / rate),
            // Slower than this no sender is.
            (Some(count), None) => Duration::from_micros(20 * count),
            (None, _) => Duration::from_secs_f64(self.seconds),
        };
        let deadline = monotonic_now() + patience + PATIENCE;
        let looks = watch.watch(self.interrupts, &generator, deadline)?;
        let sent = generator.finish(self.interrupts, deadline)?;
        let found = launched.server.report(REPORT_PATIENCE)?;
        Ok(datagrams::slice(&job.server.name, sent, &found, &looks)?)
    }

    fn launch(&self, job: Job<'_>) -> Outcome<Launched> {
        launch::start_server(job.server, job.case, self.programs, self.site, self.interrupts)
    }

    /// Puts a server under load and watches it.
    fn drive(&self, launched: &Launched, job: Job<'_>, counting: bool, seconds: f64) -> Outcome<Driven> {
        // What answers for them makes system calls, too.
        let metrics = launched.metrics.filter(|_| !counting);
        let reader = metrics.map(|address| Reader::new(address, job.reading, self.site));
        let mut watch = Watch::new(&launched.server, reader);
        if counting {
            watch
                .count_system_calls()
                .map_err(|reason| LabError::new(format!("counting system calls: {reason}")))?;
        }
        match (&job.case.workload, job.client) {
            (Workload::Load(load), None) => self.drive_announced(launched, load, job.rate, watch, seconds),
            (Workload::Load(_), Some(client)) if client.announces => {
                self.drive_client(launched, job, client, watch, seconds)
            }
            _ => self.drive_whole(launched, job, watch, seconds),
        }
    }

    /// Our own generator: one process with its own warm-up, whose window is known ahead.
    fn drive_announced(
        &self,
        launched: &Launched,
        load: &LoadSpec,
        rate: Option<f64>,
        mut watch: Watch<'_>,
        seconds: f64,
    ) -> Outcome<Driven> {
        let address = self.site.address_for_generator(launched.server.address());
        let shares = self.site.generators();
        let mut generators = Vec::new();
        for index in 0..shares {
            let share = remote::share(load, index, shares);
            // As the connections are shared out.
            let rate = rate.map(|rate| rate * f64::from(share.connections) / f64::from(load.connections));
            let mut words = vec![self.programs.quoit.display().to_string()];
            words.extend(launch::load_arguments(
                &share,
                address,
                rate,
                seconds,
                self.warm_up,
            ));
            let command = self.site.generator_command(index, &words)?;
            generators.push(Generator::start("the load", command, self.site.is_local())?);
        }
        let mut shared: Option<Window> = None;
        for generator in &generators {
            let Some(window) = generator.window(self.interrupts, PATIENCE)? else {
                break;
            };
            shared = Some(shared.map_or(window, |shared| shared.shared(window)));
        }
        let mut looks = Vec::new();
        let mut deadline = monotonic_now() + PATIENCE;
        if let Some(window) = shared {
            deadline = window.closes + PATIENCE;
            looks = watch.looks(self.interrupts, &generators[0], Some(window), deadline)?;
        }
        let reports = generators
            .into_iter()
            .map(|generator| generator.finish(self.interrupts, deadline))
            .collect::<Outcome<Vec<Value>>>()?;
        let report = match <[Value; 1]>::try_from(reports) {
            Ok([report]) => report,
            Err(reports) => remote::merge(&reports)?,
        };
        accept(report).map(|report| Driven {
            looks,
            report,
            window: shared,
        })
    }

    /// A client under test with its own warm-up, which announces its window.
    fn drive_client(
        &self,
        launched: &Launched,
        job: Job<'_>,
        client: &ClientSpec,
        watch: Watch<'_>,
        seconds: f64,
    ) -> Outcome<Driven> {
        let (generator, _folder) = self.start_client(launched, job, seconds, false)?;
        let patience = PATIENCE + Duration::from_secs_f64(self.warm_up);
        let window = generator.window(self.interrupts, patience)?;
        let mut looks = Vec::new();
        let mut deadline = monotonic_now() + PATIENCE;
        if let Some(window) = window {
            deadline = window.closes + PATIENCE;
            let mut watch = watch.with_client(generator.process_id());
            looks = watch.looks(self.interrupts, &generator, Some(window), deadline)?;
        }
        let report = accept(generator.finish(self.interrupts, deadline)?)?;
        if window.is_none() {
            return Err(LabError::new(format!("{} has not announced its window", client.name)).into());
        }
        Ok(Driven {
            looks,
            report,
            window,
        })
    }

    /// A client of its own kind: what it does from its start to its end is measured, after another run of it to warm
    /// up.
    fn drive_whole(
        &self,
        launched: &Launched,
        job: Job<'_>,
        mut watch: Watch<'_>,
        seconds: f64,
    ) -> Outcome<Driven> {
        if self.warm_up > 0.0 {
            let (generator, _folder) = self.start_client(launched, job, self.warm_up, true)?;
            accept(generator.finish(self.interrupts, until(self.warm_up))?)?;
        }
        let first = watch.look_first()?;
        let (generator, _folder) = self.start_client(launched, job, seconds, false)?;
        let mut watch = watch.with_client(generator.process_id());
        let mut looks = vec![first];
        looks.extend(watch.looks(self.interrupts, &generator, None, until(seconds))?);
        let report = generator.finish(self.interrupts, until(seconds))?;
        accept(report).map(|report| Driven {
            looks,
            report,
            window: None,
        })
    }

    fn start_client(
        &self,
        launched: &Launched,
        job: Job<'_>,
        seconds: f64,
        warming: bool,
    ) -> Outcome<(Generator, Option<tempfile::TempDir>)> {
        match (&job.case.workload, job.client) {
            (_, Some(client)) => {
                let server = &launched.server;
                let (command, folder) = launch::client(
                    client,
                    job.case,
                    server,
                    self.programs,
                    self.site,
                    self.warm_up,
                    seconds,
                )?;
                Ok((Generator::start(&client.name, command, true)?, Some(folder)))
            }
            (Workload::Bulk { path, mebibytes }, None) => {
                let leave_after = warming.then_some(seconds);
                let address = self.site.address_for_generator(launched.server.address());
                let mut command =
                    stream::command(&self.programs.quoit, address, path, *mebibytes, leave_after);
                self.site.place_generator(&mut command);
                Ok((Generator::start("the reader", command, true)?, None))
            }
            (Workload::Load(_) | Workload::Idle { .. } | Workload::Datagrams(_), None) => {
                Err(LabError::new(format!("the case {} has no client", job.case.name)).into())
            }
        }
    }

    /// The figures of a load that is over.
    fn slice(&self, job: Job<'_>, driven: &Driven) -> Outcome<Slice> {
        let Driven {
            looks,
            report,
            window,
        } = driven;
        let units = report.units();
        let mut slice = Slice {
            server: job.server.name.clone(),
            ..Slice::default()
        };
        // Of a generator that did not come to run at all the window has no length either.
        if units <= 0.0 {
            slice.spoiled = Some(NOTHING_DONE.to_owned());
            return Ok(slice);
        }
        let elapsed = report
            .elapsed_seconds
            .filter(|elapsed| *elapsed > 0.0)
            .ok_or_else(|| LabError::new("its report has no `elapsed_seconds`"))?;
        let seen = Seen::of(looks);
        let scale = match (&seen, window) {
            (Some(seen), Some(window)) => seen.scale(*window),
            (Some(_), None) => Some(1.0),
            (None, _) => None,
        };
        let (Some(seen), Some(scale)) = (seen, scale) else {
            slice.spoiled = Some(NOT_SEEN.to_owned());
            return Ok(slice);
        };
        let server = seen.server();
        let client = seen.client();
        let generator_ns = report
            .generator_cpu_ns_per_request
            .map(|each| each * units)
            .or(client.map(|client| client.cpu_ns * scale));
        let per_unit = |figure: f64| figure * scale / units;
        slice.figures = Figures {
            units,
            units_per_second: units / elapsed,
            server_cpu_ns_per_unit: per_unit(server.cpu_ns),
            server_user_share: server.user_share(),
            generator_cpu_ns_per_unit: generator_ns.map(|used| used / units),
            kernel_thread_cpu_ns_per_unit: server.poller_ns.filter(|used| *used > 0.0).map(per_unit),
            context_switches_per_unit: server.context_switches.map(|count| per_unit(count as f64)),
            resident_bytes: Some(server.resident_bytes),
            peak_resident_bytes: server.peak_resident_bytes,
            client_resident_bytes: client.map(|client| client.resident_bytes),
            client_peak_resident_bytes: client.and_then(|client| client.peak_resident_bytes),
            minor_faults: Some(server.minor_faults),
            major_faults: Some(server.major_faults),
            ..report.figures()
        };
        slice.counters = seen.counters(*window);
        slice.figures.compiling_share = slice.counters.get(COMPILING).map(|spent| spent / elapsed);
        // What generators use elsewhere is no time of these processors.
        let generator_here = generator_ns.filter(|_| self.site.is_local());
        let shares = seen.shares(server.cpu_ns + generator_here.unwrap_or(0.0));
        slice.stolen_share = shares.map(|(stolen, _)| stolen);
        slice.foreign_share = shares.map(|(_, foreign)| foreign);
        slice.observer_cpu_share = Some(seen.observer_share());
        let opens = window.map_or(looks[0].at, |window| window.opens);
        slice.samples = seen.samples(opens, |seconds| report.units_until(seconds));
        slice.histogram.clone_from(&report.histogram);
        Ok(slice)
    }
}

/// The latest moment at which a client that runs for so long has to have ended.
fn until(seconds: f64) -> Duration {
    monotonic_now() + Duration::from_secs_f64(seconds) + PATIENCE
}

/// Refuses the report of a server that failed.
fn accept(report: Value) -> Outcome<Report> {
    let report = Report::of(report)?;
    match report.failure() {
        None => Ok(report),
        Some(reason) => Err(LabError::new(reason).into()),
    }
}

/// Makes a failure the server's, with its last output.
fn blame<T>(launched: &mut Launched, outcome: Outcome<T>) -> Outcome<T> {
    outcome.map_err(|halt| match halt {
        Halt::Interrupted => Halt::Interrupted,
        Halt::Failed(error) => launched
            .server
            .failure(&format!("did not serve the load: {error}"))
            .into(),
    })
}
