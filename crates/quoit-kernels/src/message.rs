//! What the guest tells the host: a line of JSON each.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::list::{Check, Traffic};

/// Where the guest finds its [`Plan`].
pub const PLAN: &str = "/quoit/plan.json";

/// What the guest is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// In this order.
    pub checks: Vec<Check>,
    /// The rows that they name.
    pub traffic: Vec<Traffic>,
    /// How each is started: `quoit`, `wake_latency`, `rust PACKAGE TEST`, `go MODULE PACKAGE`, `java PROJECT ENGINE`,
    /// `dotnet PROJECT`.
    pub programs: BTreeMap<String, Program>,
    /// The environment of all.
    pub environment: BTreeMap<String, String>,
}

/// A program of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Where it lies there.
    pub path: String,
    /// Its first arguments; those of a check follow.
    pub arguments: Vec<String>,
    /// Where it is started.
    pub folder: String,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Message {
    /// The guest is up.
    Up {
        /// As `uname -r` prints it.
        release: String,
    },
    /// A check begins.
    Begins {
        /// Its name.
        check: String,
    },
    /// A line of what its programs print.
    Says {
        /// The line, without its end.
        line: String,
    },
    /// The kernel warns: a line of its log.
    Warns {
        /// The line.
        line: String,
    },
    /// Something that is kept.
    Finds {
        /// What was found.
        what: Finding,
    },
    /// The check that has begun ends.
    Ends {
        /// How.
        outcome: Outcome,
        /// How long it took.
        seconds: f64,
    },
    /// All were run.
    Done,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All is well.
    Passed,
    /// It is not for this kernel, for this reason.
    LeftOut(String),
    /// What failed.
    Failed(String),
    /// It did not end within its limit; the log has the stacks.
    Hung,
}

/// Something that is kept of each kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finding {
    /// What `quoit doctor --json` printed.
    Doctor(serde_json::Value),
    /// What the example `wake_latency` printed.
    WakeLatency(serde_json::Value),
    /// System calls per request, by case and engine.
    Calls(BTreeMap<String, BTreeMap<String, f64>>),
}
