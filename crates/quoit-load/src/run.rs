//! Runs a plan, whatever it sends.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;

use super::control::Control;
use super::coordinator::{Findings, Run};
use super::echo::Echo;
use super::error::LoadError;
use super::histograms::Latencies;
use super::http::{self, Http};
use super::plan::{Plan, Workload};
use super::preflight::{
    DESCRIPTORS_PER_THREAD, check_echo, check_rpc, ensure_descriptors, ensure_ports, record_http,
};
use super::progress::Progress;
use super::protocol::Protocol;
use super::report::Report;
use super::request_reply::InOrder;
use super::rpc::Rpc;
use super::start;
use super::tally::{Merge, Tally};
use super::udp;
use super::worker::Worker;

/// Makes one run: checks the server, opens the connections, warms up and measures; or sends datagrams.
///
/// `stop` ends the run early when it becomes true; what was measured until then is reported. `observe` is
/// told of the progress about ten times per second.
///
/// # Errors
/// The server cannot be reached or does not answer the check as it should, no connection can be opened,
/// descriptors do not suffice, or epoll fails. Errors during the load are in the report, but for those that end the
/// sending of datagrams for good.
pub(crate) fn run(
    plan: &Plan,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Findings, LoadError> {
    start::check(plan)?;
    if matches!(plan.workload, Workload::Datagrams(_)) {
        ensure_descriptors(plan.connections, "senders", 0)?;
    } else {
        let of_threads = plan.threads as u64 * DESCRIPTORS_PER_THREAD;
        ensure_descriptors(plan.connections, "connections", of_threads)?;
        ensure_ports(plan)?;
    }
    match &plan.workload {
        Workload::Datagrams(datagrams) => udp::run(plan, datagrams, stop, observe),
        Workload::Echo { sizes } => {
            let mut echo = Echo::new(sizes.clone(), plan.seed);
            check_echo(plan, stop, &mut echo)?;
            run_protocol(plan, &InOrder(echo), stop, observe)
        }
        Workload::Http {
            path,
            host,
            body,
            expect,
        } => {
            let request = http::request(path, host, *body);
            let recorded = record_http(plan, stop, path, &request, expect.as_deref())?;
            run_protocol(plan, &InOrder(Http::new(request, recorded)), stop, observe)
        }
        Workload::Rpc(streams) => {
            check_rpc(plan, stop, streams)?;
            run_protocol(plan, &Rpc::new(*streams, plan.pipeline), stop, observe)
        }
    }
}

fn run_protocol<P: Protocol>(
    plan: &Plan,
    protocol: &P,
    stop: &AtomicBool,
    observe: &mut dyn FnMut(Progress),
) -> Result<Findings, LoadError> {
    start::await_opening(plan, stop, observe);
    let control = Arc::new(Control::new(plan.threads));
    let (sender, messages) = mpsc::channel();
    let mut workers = Vec::new();
    let mut wakers = Vec::new();
    for thread in 0..plan.threads {
        let (worker, waker) = Worker::new(plan, thread, control.clone(), sender.clone(), protocol.clone())?;
        workers.push(worker);
        wakers.push(waker);
    }
    let mut run = Run::new(plan, &control, &wakers, stop, observe);
    let (ending, tallies) = run.together((sender, messages), workers, Worker::run)?;
    let intervals = run.intervals.finish();
    let tally = Tally::of_all(tallies)?;
    let started_at = tally.window.map(|(start, _)| control.wall(start));
    let latencies = Latencies::new(&tally, started_at)?;
    let report = Report::of_streams(plan, &tally, &latencies, intervals, ending)?;
    Ok(Findings {
        report,
        latencies: Some(latencies),
    })
}
