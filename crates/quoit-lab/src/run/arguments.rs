//! The command line of `quoit lab run`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;

use super::budget;
use crate::environment;
use crate::error::{LabError, Result};
use crate::experiment;
use crate::experiment::model::{Experiment, PlacementKind};
use crate::experiment::own;

/// The folder, in the current one, that new results are put into.
const RESULTS: &str = "quoit-lab-results";

const EXAMPLES: &str = "\
Examples:
  quoit lab run plaintext --quick
  quoit lab run floor --case echo --only quoit-uring,floor-uring
  quoit lab run plaintext --server 'mine=./my-server {listen}' --baseline mine
  quoit lab run my-experiment.toml --placement veth --out results/today
  quoit lab run plaintext --out results/today --resume

Exit status: 0 if all was measured, 1 if something failed or the run was interrupted (what was measured is kept), 2
for wrong usage, mistakes in a file included, 4 if this machine lacks what the experiment needs.";

/// Arguments of `quoit lab run`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArguments {
    /// The experiment: a name that `quoit lab list` shows, or a file
    #[arg(value_name = "NAME|FILE")]
    experiment: String,
    /// Less effort and fewer cases, as the file says, and within two minutes: to see that everything works, not to judge
    /// by. With --pairs, --most-pairs or --seconds it takes as long as these need
    #[arg(long)]
    quick: bool,
    /// Pairs that every comparison has at least
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pairs: Option<u32>,
    /// Pairs that a control may grow to until its band is narrow enough
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    most_pairs: Option<u32>,
    /// Seconds of each measured window
    #[arg(long, value_name = "S", value_parser = parse_seconds)]
    seconds: Option<f64>,
    /// Only the case of this name or, if there is none, those with this in their names; may be given several times
    #[arg(long, value_name = "TEXT")]
    case: Vec<String>,
    /// Only these servers; the baseline, and those that they are compared with, stay. A comma within a name is no border
    #[arg(long, value_name = "SERVER,...")]
    only: Vec<String>,
    /// A server of your own, with {listen}, {host} or {port} where to listen; may be given several times
    #[arg(long, value_name = "[NAME=]COMMAND")]
    server: Vec<String>,
    /// The server that the others are compared with
    #[arg(long, value_name = "SERVER")]
    baseline: Option<String>,
    /// Where servers and generator run
    #[arg(long, value_name = "KIND", value_enum)]
    placement: Option<PlacementKind>,
    /// The program `quoit` to measure, instead of this one
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Where the results go; a new folder below ./quoit-lab-results without it
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    /// Go on with the interrupted run in the folder that --out names
    #[arg(long, requires = "out")]
    resume: bool,
    /// Print the results as JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) experiment: Experiment,
    /// The text of its file.
    pub(crate) file: String,
    pub(crate) quick: bool,
    /// How long the run may take.
    pub(crate) within: Option<Duration>,
}

impl RunArguments {
    /// The experiment as the other arguments change it.
    ///
    /// # Errors
    /// Wrong usage: there is no such experiment, server or case, or the file has mistakes.
    pub(crate) fn choose(&self) -> Result<Chosen> {
        self.chosen().map_err(LabError::into_usage)
    }

    fn chosen(&self) -> Result<Chosen> {
        let (experiment, file) = experiment::find(&self.experiment)?;
        let mut experiment = own::with_servers(experiment, &self.server, self.baseline.as_deref())?;
        self.select_servers(&mut experiment)?;
        if self.quick {
            experiment = experiment.quickened();
        }
        self.select_cases(&mut experiment)?;
        let effort = &mut experiment.effort;
        effort.seconds = self.seconds.unwrap_or(effort.seconds);
        if let Some(pairs) = self.pairs {
            effort.pairs = pairs;
            effort.most_pairs = effort.most_pairs.max(pairs);
        }
        if let Some(most) = self.most_pairs {
            if most < effort.pairs {
                return Err(LabError::new(format!(
                    "--most-pairs {most} has to be at least the number of pairs, which is {}",
                    effort.pairs
                )));
            }
            effort.most_pairs = most;
        }
        if let Some(placement) = self.placement {
            if placement == PlacementKind::Remote && experiment.generators.is_empty() {
                return Err(LabError::new(
                    "--placement remote needs an experiment that says how the generators are started",
                ));
            }
            if placement != PlacementKind::Remote {
                experiment.generators.clear();
                experiment.host = None;
            }
            experiment.placement = placement;
        }
        let own_effort = self.pairs.is_some() || self.most_pairs.is_some() || self.seconds.is_some();
        Ok(Chosen {
            experiment,
            file,
            quick: self.quick,
            within: (self.quick && !own_effort).then_some(budget::QUICK),
        })
    }

    fn select_cases(&self, experiment: &mut Experiment) -> Result<()> {
        if self.case.is_empty() {
            return Ok(());
        }
        let all = names(experiment.cases.iter().map(|case| case.name.as_str()));
        let mut kept = vec![false; experiment.cases.len()];
        for text in &self.case {
            let whole = experiment.cases.iter().any(|case| case.name == *text);
            let mut any = false;
            for (case, kept) in experiment.cases.iter().zip(&mut kept) {
                let named = if whole {
                    case.name == *text
                } else {
                    case.name.contains(text)
                };
                *kept |= named;
                any |= named;
            }
            if !any {
                return Err(LabError::new(format!(
                    "--case {text}: no case has that in its name; there are {all}"
                )));
            }
        }
        let mut kept = kept.into_iter();
        experiment.cases.retain(|_| kept.next() == Some(true));
        Ok(())
    }

    fn select_servers(&self, experiment: &mut Experiment) -> Result<()> {
        if self.only.is_empty() {
            return Ok(());
        }
        let all = names(experiment.servers.iter().map(|server| server.name.as_str()));
        let mut kept = vec![experiment.baseline.clone()];
        let mut asked_for = Vec::new();
        for list in &self.only {
            let mut rest = Some(list.as_str());
            while let Some(list) = rest {
                let known = experiment.servers.iter().map(|server| server.name.as_str());
                let (name, behind) = first_name(list, known).ok_or_else(|| {
                    LabError::new(format!("--only {list}: no server has this name; there are {all}"))
                })?;
                asked_for.push(name.to_owned());
                rest = behind;
            }
        }
        for server in experiment
            .servers
            .iter()
            .filter(|server| asked_for.contains(&server.name))
        {
            kept.extend(experiment.against(server).map(str::to_owned));
            kept.push(server.name.clone());
        }
        for server in &mut experiment.servers {
            // Who names a server wants it in a quick run too.
            server.in_quick |= kept.contains(&server.name);
            server.asked_for |= asked_for.contains(&server.name);
        }
        experiment.servers.retain(|server| kept.contains(&server.name));
        Ok(())
    }

    pub(crate) fn program(&self) -> Option<&Path> {
        self.program.as_deref()
    }

    pub(crate) fn resumes(&self) -> bool {
        self.resume
    }

    pub(crate) fn prints_json(&self) -> bool {
        self.json
    }

    /// The folder of the results, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn folder(&self, experiment: &str) -> Result<PathBuf> {
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => Path::new(RESULTS).join(format!("{experiment}-{}", environment::utc_stamp())),
        };
        fs::create_dir_all(&folder)
            .map_err(LabError::io(format!("making the folder {}", folder.display())))?;
        Ok(folder)
    }
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(", ")
}

fn parse_seconds(text: &str) -> std::result::Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("must lie between 0.1 and 3600".to_owned())
    }
}

/// The first name of a list that commas separate, and what is behind it. Names have commas too: it is the longest that fits.
fn first_name<'a>(list: &'a str, known: impl Iterator<Item = &'a str>) -> Option<(&'a str, Option<&'a str>)> {
    known
        .filter_map(|name| match list.strip_prefix(name)? {
            "" => Some((name, None)),
            rest => Some((name, Some(rest.strip_prefix(',')?))),
        })
        .max_by_key(|(name, _)| name.len())
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        run: RunArguments,
    }

    fn choose(arguments: &str) -> Result<Chosen> {
        choose_from(&arguments.split_whitespace().collect::<Vec<_>>())
    }

    fn choose_from(words: &[&str]) -> Result<Chosen> {
        Program::try_parse_from(std::iter::once(&"quoit").chain(words))
            .expect("it is a command line")
            .run
            .choose()
    }

    fn servers(arguments: &str) -> Vec<String> {
        let chosen = choose(arguments).expect("it can be chosen");
        chosen
            .experiment
            .servers
            .into_iter()
            .map(|server| server.name)
            .collect()
    }

    #[test]
    fn servers_and_cases_are_selected() {
        assert_eq!(
            servers("plaintext --only quoit-uring"),
            ["quoit-epoll", "quoit-uring"]
        );
        assert_eq!(
            servers("plaintext --only nginx --quick"),
            ["quoit-epoll", "nginx"]
        );
        assert_eq!(
            servers("plaintext --only nginx,quoit-uring"),
            ["quoit-epoll", "quoit-uring", "nginx"]
        );
        let chosen = choose("plaintext --case 16").expect("it can be chosen");
        assert_eq!(chosen.experiment.cases.len(), 1);
        // Each in its place, and once.
        let all = choose("plaintext").expect("it can be chosen").experiment.cases;
        let chosen = choose("plaintext --case 16 --case connections").expect("it can be chosen");
        assert_eq!(chosen.experiment.cases, all);
        // A whole name, which others begin with.
        let argument = format!("--case={}", all[0].name);
        let chosen = choose_from(&["plaintext", &argument]).expect("it can be chosen");
        assert_eq!(chosen.experiment.cases, all[..1]);
    }

    #[test]
    fn names_have_commas() {
        let known = ["quoit", "quoit, spin", "recvmmsg"];
        let first = |list| first_name(list, known.into_iter());
        assert_eq!(first("quoit"), Some(("quoit", None)));
        assert_eq!(first("quoit,recvmmsg"), Some(("quoit", Some("recvmmsg"))));
        assert_eq!(first("quoit, spin"), Some(("quoit, spin", None)));
        assert_eq!(first("quoit, spin,quoit"), Some(("quoit, spin", Some("quoit"))));
        // What begins like a name is none, and neither is nothing.
        assert_eq!(first("recvmmsg64"), None);
        assert_eq!(first(""), None);
    }

    #[test]
    fn effort_and_placement_are_changed() {
        let chosen =
            choose("plaintext --pairs 50 --seconds 0.5 --placement split-core").expect("it can be chosen");
        let effort = chosen.experiment.effort;
        assert_eq!((effort.pairs, effort.most_pairs, effort.seconds), (50, 50, 0.5));
        assert_eq!(chosen.experiment.placement, PlacementKind::SplitCore);
    }

    #[test]
    fn only_a_quick_run_as_the_file_has_it_keeps_to_its_time() {
        let within = |arguments: &str| choose(arguments).expect("it can be chosen").within;
        assert_eq!(within("plaintext --quick"), Some(budget::QUICK));
        assert_eq!(within("plaintext"), None);
        for own in ["--pairs 6", "--most-pairs 40", "--seconds 1"] {
            assert_eq!(within(&format!("plaintext --quick {own}")), None);
        }
    }

    #[test]
    fn wrong_usage_is_told_as_such() {
        for (arguments, expected) in [
            ("nothing-of-that-name", "there is no experiment"),
            ("plaintext --only nobody", "no server has this name"),
            ("plaintext --case nothing", "no case has that"),
            (
                "plaintext --case 16 --case nothing",
                "--case nothing: no case has that",
            ),
            (
                "plaintext --pairs 9 --most-pairs 8",
                "at least the number of pairs",
            ),
            ("plaintext --placement remote", "needs an experiment"),
        ] {
            let error = choose(arguments).expect_err(expected);
            assert!(
                error.exit_code() == ExitCode::from(2) && error.to_string().contains(expected),
                "{error}"
            );
        }
    }
}
