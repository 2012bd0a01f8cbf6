//! Running the checks of the plan.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use quoit_kernels::list::Run;
use quoit_kernels::message::{Finding, Message, Outcome, PLAN, Plan};
use serde_json::Value;

use crate::context::{Context, Trouble};
use crate::reporter::Reporter;
use crate::{stacks, system, traffic};

/// Runs all checks, and tells the host.
pub(crate) fn run_all() {
    let reporter = Reporter::open();
    let plan = fs::read(PLAN).expect("quoit-kernels has put a plan there");
    let plan: Plan = serde_json::from_slice(&plan).expect("quoit-kernels has written it");
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    reporter.tell(&Message::Up {
        release: release.trim().to_owned(),
    });
    reporter.tell_warnings();
    for check in &plan.checks {
        reporter.tell(&Message::Begins {
            check: check.name.clone(),
        });
        let begun = Instant::now();
        let context = Context {
            plan: &plan,
            check,
            reporter: &reporter,
            until: begun + Duration::from_secs(check.limit),
        };
        let outcome = match run(&context) {
            Ok(()) => Outcome::Passed,
            Err(Trouble::Failed(what)) => Outcome::Failed(what),
            Err(Trouble::LeftOut(why)) => Outcome::LeftOut(why),
            Err(Trouble::Hung) => {
                stacks::say(&reporter);
                Outcome::Hung
            }
        };
        system::end_all_others();
        reporter.tell_warnings();
        reporter.tell(&Message::Ends {
            outcome,
            seconds: begun.elapsed().as_secs_f64(),
        });
    }
    reporter.tell(&Message::Done);
}

fn run(context: &Context<'_>) -> Result<(), Trouble> {
    let before = set(&context.check.sysctl)?;
    let result = match context.check.run {
        Run::Doctor => context
            .doctor()
            .map(|found| tell(context, Finding::Doctor(found))),
        Run::WakeLatency => context
            .run_for_json("wake_latency", &[])
            .map(|found| tell(context, Finding::WakeLatency(found))),
        Run::Rust => context.run_tests(&context.check.arguments),
        Run::Go => {
            let mut arguments = context.check.arguments.clone();
            // Which tests ran is said as they go, and what hangs tells where it is before the check is ended for it.
            arguments.push("-test.v".to_owned());
            let limit = context.check.limit;
            arguments.push(format!("-test.timeout={}s", limit - limit / 10));
            context.run_tests(&arguments)
        }
        Run::Java => context.require_engine().and_then(|()| {
            let classes = context.check.tests.iter();
            let arguments: Vec<_> = classes.map(|class| format!("--select-class={class}")).collect();
            context.run_tests(&arguments)
        }),
        Run::Dotnet => {
            let classes = context.check.tests.iter();
            // With a dot behind: other classes may be called so at first.
            let classes: Vec<_> = classes
                .map(|class| format!("FullyQualifiedName~{class}."))
                .collect();
            let mut arguments = vec![format!("--TestCaseFilter:{}", classes.join("|"))];
            let how = [
                "--logger:console;verbosity=normal",
                "--",
                "xUnit.MaxParallelThreads=1",
            ];
            arguments.extend(how.map(str::to_owned));
            context.run_tests(&arguments)
        }
        Run::Traffic => traffic::run(context),
        Run::Calls => count_calls(context).map(|found| tell(context, Finding::Calls(found))),
    };
    let reset = set(&before).map(drop);
    result.and(reset)
}

fn tell(context: &Context<'_>, what: Finding) {
    context.reporter.tell(&Message::Finds { what });
}

/// Writes settings of the kernel; returns what they were.
fn set(settings: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Trouble> {
    let mut before = BTreeMap::new();
    for (name, value) in settings {
        let file: PathBuf = ["/proc/sys", &name.replace('.', "/")].iter().collect();
        let Ok(was) = fs::read_to_string(&file) else {
            return Err(Trouble::LeftOut(format!("this kernel has no {name}")));
        };
        fs::write(&file, value).map_err(|error| Trouble::Failed(format!("{name} = {value}: {error}")))?;
        before.insert(name.clone(), was.trim().to_owned());
    }
    Ok(before)
}

/// System calls per request, by case and engine, as the lab counts them.
fn count_calls(context: &Context<'_>) -> Result<BTreeMap<String, BTreeMap<String, f64>>, Trouble> {
    let words = ["lab", "run", "/quoit/calls.toml", "--out", "/tmp/calls", "--json"];
    let mut arguments = words.map(str::to_owned).to_vec();
    if context.doctor()?["uring"]["usable"] != true {
        arguments.extend(["--only", "epoll", "--only", "epoll, parked"].map(str::to_owned));
    }
    context.run("quoit", &arguments)?;
    let results = fs::read("/tmp/calls/results.json").unwrap_or_default();
    let results: Value = serde_json::from_slice(&results)
        .map_err(|error| Trouble::Failed(format!("results.json: {error}")))?;
    let mut found: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for case in results["cases"].as_array().into_iter().flatten() {
        for server in case["servers"].as_array().into_iter().flatten() {
            // Such as `epoll` or `epoll, parked`.
            let name = text(&server["server"]);
            let (engine, how) = name.split_at(name.find(',').unwrap_or(name.len()));
            let counts = found.entry(format!("{}{how}", text(&case["name"]))).or_default();
            if let Some(calls) = server["system_calls_per_unit"].as_f64() {
                counts.insert(engine.to_owned(), calls);
            }
        }
    }
    if found.values().all(BTreeMap::is_empty) {
        return Err(Trouble::Failed("the lab counted no system calls".to_owned()));
    }
    Ok(found)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
