//! One run: what a server used for the work that it did.

use std::time::Instant;

use serde::Serialize;

use super::cpu;
use super::error::{LabError, Result};
use super::generator::{self, Load};
use super::placement::Cores;
use super::programs::Programs;
use super::server::{Server, ServerCommand};
use super::syscalls::{SystemCallCounter, SystemCalls};
use crate::load::Report;

/// Seconds that a server is loaded before anything is measured: its pools fill, its memory is touched.
const WARM_UP_SECONDS: u32 = 1;
/// Seconds for which system calls are counted. Their number a request does not depend on neighbours, so
/// that one run is enough.
const COUNT_SECONDS: u32 = 1;

/// The figures of one run. The unit is a request, or a mebibyte of a stream.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) units: f64,
    pub(crate) units_per_second: f64,
    pub(crate) server_cpu_ns_per_unit: f64,
    /// CPU time of the other end, which on loopback also runs part of the server's share of the kernel.
    pub(crate) generator_cpu_ns_per_unit: Option<f64>,
    pub(crate) context_switches_per_unit: f64,
    pub(crate) latency_p50_ns: Option<f64>,
    pub(crate) latency_p99_ns: Option<f64>,
}

impl Figures {
    /// CPU time of both ends.
    pub(crate) fn total_cpu_ns_per_unit(&self) -> Option<f64> {
        Some(self.server_cpu_ns_per_unit + self.generator_cpu_ns_per_unit?)
    }
}

/// What a server has used up to a moment.
pub(crate) struct Usage {
    cpu_ns: u64,
    context_switches: u64,
    at: Instant,
}

impl Usage {
    pub(crate) fn of(server: &Server) -> Result<Self> {
        Ok(Self {
            cpu_ns: cpu::cpu_time_ns(server.process_id())?,
            context_switches: cpu::context_switches(server.process_id())?,
            at: Instant::now(),
        })
    }

    /// Nanoseconds of CPU time and of the clock on the wall since then.
    pub(crate) fn elapsed_ns(&self, server: &Server) -> Result<(u64, u64)> {
        let now = Self::of(server)?;
        Ok((now.cpu_ns - self.cpu_ns, (now.at - self.at).as_nanos() as u64))
    }

    /// Figures for so many units of work since then. The rate is by the wall clock.
    pub(crate) fn figures(&self, server: &Server, units: f64) -> Result<Figures> {
        let now = Self::of(server)?;
        Ok(Figures {
            units,
            units_per_second: units / (now.at - self.at).as_secs_f64(),
            server_cpu_ns_per_unit: (now.cpu_ns - self.cpu_ns) as f64 / units,
            generator_cpu_ns_per_unit: None,
            // A thread that has ended takes its count with it.
            context_switches_per_unit: now.context_switches.saturating_sub(self.context_switches) as f64
                / units,
            latency_p50_ns: None,
            latency_p99_ns: None,
        })
    }
}

/// What all runs of a measurement have in common.
pub(crate) struct Rig {
    pub(crate) programs: Programs,
    pub(crate) cores: Cores,
}

impl Rig {
    pub(crate) fn start(&self, command: &ServerCommand) -> Result<Server> {
        Server::start(command, self.cores.server)
    }

    /// Starts a server and loads it until its figures mean something.
    pub(crate) fn start_warm(&self, command: &ServerCommand, load: Load) -> Result<Server> {
        let server = self.start(command)?;
        self.load(&server, load, WARM_UP_SECONDS)?;
        Ok(server)
    }

    fn load(&self, server: &Server, load: Load, seconds: u32) -> Result<Report> {
        generator::run(
            &self.programs.quoit,
            self.cores.generator,
            server.address(),
            load,
            seconds,
        )
        .map_err(|error| LabError::new(format!("loading {}: {error}", server.name())))
    }

    /// One timed run. The generator is a fresh process without a warm-up of its own, so that all that the
    /// server uses meanwhile belongs to requests that are counted (but for opening the connections).
    pub(crate) fn measure(&self, server: &Server, load: Load, seconds: u32) -> Result<Figures> {
        let before = Usage::of(server)?;
        let report = self.load(server, load, seconds)?;
        let figures = before.figures(server, report.requests as f64)?;
        Ok(Figures {
            units_per_second: report.requests_per_second,
            generator_cpu_ns_per_unit: Some(report.generator_cpu_ns_per_request),
            latency_p50_ns: report.latency.as_ref().map(|latency| latency.p50_ns as f64),
            latency_p99_ns: report.latency.as_ref().map(|latency| latency.p99_ns as f64),
            ..figures
        })
    }

    /// System calls a request, counted in a run that is not timed.
    pub(crate) fn count_system_calls(&self, server: &Server, load: Load) -> Result<SystemCalls> {
        let mut counter = match SystemCallCounter::start(server.process_id()) {
            Ok(counter) => counter,
            Err(reason) => return Ok(SystemCalls::NotCounted(reason)),
        };
        let report = self.load(server, load, COUNT_SECONDS)?;
        let calls = counter.read().map_err(LabError::io(format!(
            "reading the system call count of {}",
            server.name()
        )))?;
        Ok(SystemCalls::Counted(calls as f64 / report.requests as f64))
    }
}
