//! Two servers under the same load, in pairs, and what comes out of it.

use serde::Serialize;

use super::error::{LabError, Result};
use super::measure::{Figures, Rig};
use super::pairs::{self, NoiseBand, Ratio, Side, Verdict};
use super::server::{Server, ServerCommand};
use super::syscalls::SystemCalls;

/// The seed of all bootstrap intervals: the same data give the same interval.
const SEED: u64 = 2_026;

/// The two runs of a pair.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Pair {
    pub(crate) a: Figures,
    pub(crate) b: Figures,
}

/// Runs pairs of freshly started servers: how a process's memory happens to lie then averages out, too.
///
/// `warm` starts a server and warms it up, `run` measures it once, `done` is called after every pair.
pub(crate) fn run_pairs(
    sides: [&ServerCommand; 2],
    count: usize,
    warm: impl Fn(&ServerCommand) -> Result<Server>,
    run: impl Fn(&Server) -> Result<Figures>,
    done: impl Fn(),
) -> Result<Vec<Pair>> {
    let [a, b] = sides;
    (0..count)
        .map(|pair| {
            let servers = [warm(a)?, warm(b)?];
            let mut figures = [None; 2];
            for side in pairs::order(pair) {
                let index = match side {
                    Side::A => 0,
                    Side::B => 1,
                };
                figures[index] = Some(run(&servers[index])?);
            }
            for server in servers {
                server.stop()?;
            }
            done();
            match figures {
                [Some(a), Some(b)] => Ok(Pair { a, b }),
                _ => Err(LabError::new("a pair ran one of its sides twice")),
            }
        })
        .collect()
}

/// The ratio A over B of one figure over all pairs; `None` where the figure is absent.
pub(crate) fn ratio_of(pairs: &[Pair], figure: impl Fn(&Figures) -> Option<f64>) -> Option<Ratio> {
    let ratios: Option<Vec<f64>> = pairs
        .iter()
        .map(|pair| Some(figure(&pair.a)? / figure(&pair.b)?))
        .collect();
    Ratio::of(&ratios?, SEED)
}

/// The noise of a control's pairs: the ratio of the server's CPU time between two equal sides.
pub(crate) fn noise_of(control: &[Pair]) -> Option<NoiseBand> {
    ratio_of(control, |figures| Some(figures.server_cpu_ns_per_unit)).map(NoiseBand::of_control)
}

/// One side of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SideSummary {
    pub(crate) name: String,
    /// Medians over the pairs.
    pub(crate) server_cpu_ns_per_unit: f64,
    pub(crate) units_per_second: f64,
    pub(crate) context_switches_per_unit: f64,
    pub(crate) system_calls_per_unit: SystemCalls,
}

impl SideSummary {
    fn of(name: &str, runs: &[Figures], system_calls: SystemCalls) -> Self {
        let median =
            |figure: fn(&Figures) -> f64| pairs::median(&mut runs.iter().map(figure).collect::<Vec<_>>());
        Self {
            name: name.to_owned(),
            server_cpu_ns_per_unit: median(|figures| figures.server_cpu_ns_per_unit),
            units_per_second: median(|figures| figures.units_per_second),
            context_switches_per_unit: median(|figures| figures.context_switches_per_unit),
            system_calls_per_unit: system_calls,
        }
    }
}

/// What a comparison came to. All ratios are A over B.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Workload and sides, such as `echo-1 quoit/uring:floor/uring`.
    pub(crate) name: String,
    /// What the figures are a unit of: `request` or `MiB`.
    pub(crate) unit: &'static str,
    pub(crate) verdict: Verdict,
    /// Server CPU time a unit.
    pub(crate) cost: Ratio,
    /// CPU time a unit of server and generator together, where the generator reports its own.
    pub(crate) total_cost: Option<Ratio>,
    pub(crate) rate: Ratio,
    pub(crate) noise: NoiseBand,
    pub(crate) a: SideSummary,
    pub(crate) b: SideSummary,
    pub(crate) pairs: Vec<Pair>,
}

impl Outcome {
    /// Sums up the pairs of a comparison.
    ///
    /// # Errors
    /// There are no pairs.
    pub(crate) fn of(
        name: String,
        unit: &'static str,
        sides: [(&ServerCommand, SystemCalls); 2],
        pairs: Vec<Pair>,
        noise: NoiseBand,
    ) -> Result<Self> {
        let missing = || LabError::new(format!("{name} has no pairs to sum up"));
        let cost = ratio_of(&pairs, |figures| Some(figures.server_cpu_ns_per_unit)).ok_or_else(missing)?;
        let rate = ratio_of(&pairs, |figures| Some(figures.units_per_second)).ok_or_else(missing)?;
        let [(a, a_calls), (b, b_calls)] = sides;
        let runs = |figures: fn(&Pair) -> Figures| pairs.iter().map(figures).collect::<Vec<_>>();
        Ok(Self {
            unit,
            verdict: Verdict::of(cost, noise),
            cost,
            total_cost: ratio_of(&pairs, Figures::total_cpu_ns_per_unit),
            rate,
            noise,
            a: SideSummary::of(&a.name, &runs(|pair| pair.a), a_calls),
            b: SideSummary::of(&b.name, &runs(|pair| pair.b), b_calls),
            pairs,
            name,
        })
    }
}

/// Counts the system calls of a freshly started and warmed server.
pub(crate) fn count_system_calls(
    rig: &Rig,
    command: &ServerCommand,
    load: super::generator::Load,
) -> Result<SystemCalls> {
    let server = rig.start_warm(command, load)?;
    let calls = rig.count_system_calls(&server, load)?;
    server.stop()?;
    Ok(calls)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(cpu: f64, generator: Option<f64>) -> Figures {
        Figures {
            units: 1.0,
            units_per_second: 1e9 / cpu,
            server_cpu_ns_per_unit: cpu,
            generator_cpu_ns_per_unit: generator,
            context_switches_per_unit: 0.0,
            latency_p50_ns: None,
            latency_p99_ns: None,
        }
    }

    fn command(name: &str) -> ServerCommand {
        ServerCommand {
            name: name.to_owned(),
            program: "true".into(),
            arguments: Vec::new(),
            engine: "epoll",
            loops: 1,
        }
    }

    #[test]
    fn ratios_are_a_over_b_and_pairwise() {
        // The machine halves its speed between the pairs; the ratios do not see it.
        let pairs: Vec<Pair> = [1.0, 2.0, 4.0]
            .map(|slow| Pair {
                a: figures(120.0 * slow, Some(80.0 * slow)),
                b: figures(100.0 * slow, Some(60.0 * slow)),
            })
            .to_vec();
        let uncounted = || SystemCalls::NotCounted("no".to_owned());
        let (a, b) = (command("a"), command("b"));
        let noise = NoiseBand { factor: 1.1 };
        let outcome = Outcome::of(
            "x".to_owned(),
            "request",
            [(&a, uncounted()), (&b, uncounted())],
            pairs,
            noise,
        )
        .expect("there are pairs");
        assert!((outcome.cost.median - 1.2).abs() < 1e-9 && (outcome.cost.high - outcome.cost.low) < 1e-9);
        assert!((outcome.total_cost.expect("both ends report").median - 1.25).abs() < 1e-9);
        assert!((outcome.rate.median - 1.0 / 1.2).abs() < 1e-9);
        assert_eq!(outcome.verdict, Verdict::Loss);
        assert_eq!(outcome.a.server_cpu_ns_per_unit, 240.0);
    }

    #[test]
    fn an_absent_figure_has_no_ratio() {
        let pairs = [Pair {
            a: figures(1.0, Some(1.0)),
            b: figures(1.0, None),
        }];
        assert_eq!(ratio_of(&pairs, Figures::total_cpu_ns_per_unit), None);
        assert!(noise_of(&[]).is_none());
    }
}
