//! What an experiment comes to: for each case, which servers are compared with which.

use quoit_report::results::model::{Judge, LeftOut};

use super::schedule::Series;
use crate::experiment::model::{Case, ClientSpec, DatagramSpec, Experiment, Pace, ServerSpec, Workload};

/// One case, under `quoit load` or under one client.
#[derive(Clone, Debug)]
pub(crate) struct Work<'a> {
    /// That of the case, with that of the client if there is one.
    pub(crate) name: String,
    pub(crate) case: &'a Case,
    pub(crate) client: Option<&'a ClientSpec>,
    /// Controls first.
    pub(crate) series: Vec<Series>,
    /// Those that take part, in the order of the file.
    pub(crate) servers: Vec<&'a ServerSpec>,
}

/// All that is measured, and what is not although the file has it.
pub(crate) fn works(experiment: &Experiment) -> (Vec<Work<'_>>, Vec<LeftOut>) {
    let mut left_out = Vec::new();
    let mut works = Vec::new();
    for case in &experiment.cases {
        let (series, servers) = series(experiment, case, &mut left_out);
        if series.is_empty() {
            left_out.push(LeftOut {
                what: case.name.clone(),
                why: "no server is left to compare others with".to_owned(),
            });
            continue;
        }
        let work = |name: String, client| Work {
            name,
            case,
            client,
            series: series.clone(),
            servers: servers.clone(),
        };
        match (&case.workload, &experiment.clients[..]) {
            (Workload::Load(_), clients @ [_, ..]) => works.extend(clients.iter().map(|client| {
                let name = match clients {
                    [_] => case.name.clone(),
                    _ => format!("{}, {}", case.name, client.name),
                };
                work(name, Some(client))
            })),
            _ => works.push(work(case.name.clone(), None)),
        }
    }
    (works, left_out)
}

fn series<'a>(
    experiment: &'a Experiment,
    case: &Case,
    left_out: &mut Vec<LeftOut>,
) -> (Vec<Series>, Vec<&'a ServerSpec>) {
    let servers: Vec<&ServerSpec> = experiment
        .servers
        .iter()
        .filter(|server| !server.not_in.contains(&case.name))
        .collect();
    let takes_part = |name: &str| servers.iter().any(|server| server.name == name);
    let mut comparisons = Vec::new();
    for server in &servers {
        match experiment.against(server) {
            Some(against) if takes_part(against) => comparisons.push(Series {
                server: server.name.clone(),
                against: Some(against.to_owned()),
            }),
            Some(against) => left_out.push(LeftOut {
                what: format!("{} in {}", server.name, case.name),
                why: format!("{against}, which it is compared with, does not take part"),
            }),
            None => {}
        }
    }
    let mut controls: Vec<String> = Vec::new();
    let baseline = Some(experiment.baseline.as_str()).filter(|baseline| takes_part(baseline));
    let others = comparisons.iter().filter_map(|series| series.against.as_deref());
    for server in baseline.into_iter().chain(others) {
        if !controls.iter().any(|control| control == server) {
            controls.push(server.to_owned());
        }
    }
    let controls = controls.into_iter().map(|server| Series {
        server,
        against: None,
    });
    let series: Vec<Series> = controls.chain(comparisons).collect();
    let in_series = |name: &str| series.iter().any(|series| series.sides().contains(&name));
    let servers = servers
        .into_iter()
        .filter(|server| in_series(&server.name))
        .collect();
    (series, servers)
}

impl Work<'_> {
    /// What the cost is for.
    pub(crate) fn unit(&self) -> &'static str {
        match &self.case.workload {
            Workload::Load(load) if ["rpc", "rsocket"].contains(&load.protocol.as_str()) => "message",
            Workload::Load(_) => "request",
            Workload::Bulk { .. } => "MiB",
            Workload::Idle { .. } => "connection",
            Workload::Datagrams(_) => "datagram",
        }
    }

    /// What the cost is.
    pub(crate) fn judge(&self) -> Judge {
        match &self.case.workload {
            Workload::Load(_) | Workload::Bulk { .. } => Judge::Cpu,
            Workload::Idle { .. } => Judge::Memory,
            Workload::Datagrams(datagrams) => datagrams.judge,
        }
    }

    /// The ladder of rates that it is a rung of.
    pub(crate) fn ladder(&self) -> Option<&str> {
        match &self.case.workload {
            Workload::Datagrams(datagrams) => datagrams.ladder.as_deref(),
            Workload::Load(_) | Workload::Bulk { .. } | Workload::Idle { .. } => None,
        }
    }

    /// Whether servers are watched by the lab, counters and system calls included, while load goes on. Idle
    /// connections are no load, and a sink times itself.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.case.workload, Workload::Load(_) | Workload::Bulk { .. })
    }

    /// What sets the rate, if anything does.
    fn pace(&self) -> Option<Pace> {
        match &self.case.workload {
            Workload::Load(load) => Some(load.pace),
            Workload::Datagrams(datagrams) => Some(datagrams.pace),
            Workload::Bulk { .. } | Workload::Idle { .. } => None,
        }
    }

    pub(crate) fn server(&self, name: &str) -> Option<&ServerSpec> {
        self.servers.iter().copied().find(|server| server.name == name)
    }

    /// The case in a closed loop.
    pub(crate) fn closed(&self) -> Case {
        let mut case = self.case.clone();
        match &mut case.workload {
            Workload::Load(load) => load.pace = Pace::Closed,
            Workload::Datagrams(datagrams) => datagrams.pace = Pace::Closed,
            Workload::Bulk { .. } | Workload::Idle { .. } => {}
        }
        case
    }

    /// The share of the baseline's peak that is offered, if that sets the rate.
    pub(crate) fn share_of_peak(&self) -> Option<f64> {
        match self.pace()? {
            Pace::ShareOfPeak(share) => Some(share),
            Pace::Closed | Pace::Rate(_) => None,
        }
    }

    /// Offered requests per second, if there is a schedule; `peak` is what the baseline reaches in a closed loop.
    pub(crate) fn rate(&self, peak: Option<f64>) -> Option<f64> {
        match self.pace()? {
            Pace::Closed => None,
            Pace::Rate(rate) => Some(rate),
            Pace::ShareOfPeak(share) => peak.map(|peak| peak * share),
        }
    }

    fn datagrams_in_words(&self, datagrams: &DatagramSpec, peak: Option<f64>) -> String {
        let mut text = format!("udp {}", datagrams.arguments.join(" "));
        if let Some(count) = datagrams.count {
            text += &format!(", {count} datagrams");
        }
        text += &format!(
            ", {} sender(s), {} ns of work for each",
            datagrams.senders, datagrams.work
        );
        text += &match (datagrams.pace, self.rate(peak)) {
            (Pace::ShareOfPeak(share), Some(rate)) => format!(
                ", {rate:.0} datagrams/s offered ({:.0} % of what the baseline handles)",
                share * 100.0
            ),
            (Pace::ShareOfPeak(share), None) => {
                format!(", {:.0} % of what the baseline handles offered", share * 100.0)
            }
            (_, Some(rate)) => format!(", {rate:.0} datagrams/s offered"),
            (_, None) => ", flat out".to_owned(),
        };
        if let Some(overload) = datagrams.overload {
            text += &format!(", behind {overload} times as many for a third of the time");
        }
        text += match datagrams.judge {
            Judge::Handled => "; judged by what is handled",
            Judge::Cpu | Judge::Memory => "; judged by CPU per datagram",
        };
        text
    }

    /// The workload in words.
    pub(crate) fn in_words(&self, peak: Option<f64>) -> String {
        let load = match &self.case.workload {
            Workload::Load(load) => load,
            Workload::Bulk { path, mebibytes } => {
                return format!("{mebibytes} MiB of http {path} on one connection");
            }
            Workload::Idle { connections, seconds } => {
                return format!("{connections} connections, watched for {seconds} s");
            }
            Workload::Datagrams(datagrams) => return self.datagrams_in_words(datagrams, peak),
        };
        if let Some(client) = self.client.filter(|_| load.is_for_clients()) {
            return format!("{}, by {}", load.protocol, client.name);
        }
        let mut words = vec![load.protocol.clone()];
        words.extend(load.arguments.iter().cloned());
        let mut text = words.join(" ");
        text += &format!(", {} connections", load.connections);
        if load.pipeline != 1 {
            text += &format!(", {} deep", load.pipeline);
        }
        text += &match (load.pace, self.rate(peak)) {
            (Pace::ShareOfPeak(share), Some(rate)) => {
                format!(
                    ", {rate:.0} requests/s offered ({:.0} % of the baseline's peak)",
                    share * 100.0
                )
            }
            (Pace::ShareOfPeak(share), None) => {
                format!(", {:.0} % of the baseline's peak offered", share * 100.0)
            }
            (_, Some(rate)) => format!(", {rate:.0} requests/s offered"),
            (_, None) => ", closed loop".to_owned(),
        };
        if let Some(client) = self.client {
            text += &format!(", by {}", client.name);
        }
        text
    }
}
