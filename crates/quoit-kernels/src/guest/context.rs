//! What a check of the plan is given, and why it may not pass.

use std::time::Instant;

use quoit_kernels::list::Check;
use quoit_kernels::message::Plan;
use serde_json::Value;

use crate::programs::{self, Ended, Running, TooLate};
use crate::reporter::Reporter;

/// What went on in a check.
pub(crate) struct Context<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) check: &'a Check,
    pub(crate) reporter: &'a Reporter,
    /// When the check has hung.
    pub(crate) until: Instant,
}

/// Why a check did not pass.
pub(crate) enum Trouble {
    Failed(String),
    LeftOut(String),
    Hung,
}

impl From<TooLate> for Trouble {
    fn from(TooLate: TooLate) -> Self {
        Self::Hung
    }
}

impl Context<'_> {
    /// Runs one of the plan's programs to its end. What it prints is said; a status other than 0 is a failure.
    pub(crate) fn run(&self, program: &str, arguments: &[String]) -> Result<Ended, Trouble> {
        let ended = self.start(program, arguments)?.end(self.reporter, self.until)?;
        if ended.status.success() {
            return Ok(ended);
        }
        Err(Trouble::Failed(format!("{program}: {}", ended.status)))
    }

    /// Runs each of the tests' programs, also after one that failed.
    pub(crate) fn run_tests(&self, arguments: &[String]) -> Result<(), Trouble> {
        let mut failed = Vec::new();
        for program in self.check.test_programs() {
            self.reporter.say(format!("{program}:"));
            match self.run(&program, arguments) {
                Err(Trouble::Failed(what)) => failed.push(what),
                other => drop(other?),
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        Err(Trouble::Failed(failed.join("; ")))
    }

    /// Starts one of the plan's programs.
    pub(crate) fn start(&self, program: &str, arguments: &[String]) -> Result<Running, Trouble> {
        let Some(found) = self.plan.programs.get(program) else {
            return Err(Trouble::Failed(format!("{program} was not built")));
        };
        let mut command = programs::command(found, self.check, &self.plan.environment);
        command.args(arguments);
        Running::start(command)
            .map_err(|error| Trouble::Failed(format!("{program} cannot be started: {error}")))
    }

    /// The JSON that `quoit doctor` prints.
    pub(crate) fn doctor(&self) -> Result<Value, Trouble> {
        self.run_for_json("quoit", &["doctor".to_owned(), "--json".to_owned()])
    }

    /// Leaves the check out where the engine that it names does not run.
    pub(crate) fn require_engine(&self) -> Result<(), Trouble> {
        let usable = &self.doctor()?["uring"];
        if self.check.engine == "uring" && usable["usable"] != true {
            return Err(Trouble::LeftOut(format!("no io_uring: {}", usable["missing"])));
        }
        Ok(())
    }

    /// The JSON that one of the programs prints.
    pub(crate) fn run_for_json(&self, program: &str, arguments: &[String]) -> Result<Value, Trouble> {
        let lines = self.run(program, arguments)?.lines;
        // What goes before is from its standard error.
        let json: Vec<_> = lines
            .iter()
            .map(String::as_str)
            .skip_while(|line| !line.starts_with('{'))
            .collect();
        let printed = json.join("\n");
        serde_json::from_str(&printed)
            .map_err(|error| Trouble::Failed(format!("what {program} printed is no JSON: {error}")))
    }
}
