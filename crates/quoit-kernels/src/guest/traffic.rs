//! Servers under a load that checks every reply.

use std::time::Instant;

use quoit_kernels::list::Traffic;

use crate::context::{Context, Trouble};
use crate::programs::Running;

/// Runs each row, also after one that failed.
pub(crate) fn run(context: &Context<'_>) -> Result<(), Trouble> {
    let engine = engine(context)?;
    let rows = context.plan.traffic.iter();
    let wanted = &context.check.rows;
    let mut failed = 0;
    for row in rows.filter(|row| wanted.is_empty() || wanted.contains(&row.name)) {
        let begun = Instant::now();
        match serve(context, row, &engine) {
            Ok(()) => {
                let seconds = begun.elapsed().as_secs_f64();
                context
                    .reporter
                    .say(format!("passed: {}, {seconds:.1} s", row.name));
            }
            Err(Trouble::Failed(what)) => {
                context.reporter.say(format!("failed: {}: {what}", row.name));
                failed += 1;
            }
            Err(other) => return Err(other),
        }
    }
    match failed {
        0 => Ok(()),
        some => Err(Trouble::Failed(format!("{some} of the servers or their loads"))),
    }
}

/// The engine that the servers have to run on.
fn engine(context: &Context<'_>) -> Result<String, Trouble> {
    let found = context.doctor()?;
    let usable = &found["uring"];
    match context.check.engine.as_str() {
        "uring" if usable["usable"] != true => {
            Err(Trouble::LeftOut(format!("no io_uring: {}", usable["missing"])))
        }
        "auto" => {
            let chosen = found["engine"].as_str().unwrap_or_default();
            let expected = &context.check.expects;
            if !expected.is_empty() && chosen != expected {
                return Err(Trouble::Failed(format!(
                    "doctor names {chosen}, and not {expected}"
                )));
            }
            if chosen == "epoll" && (usable["missing"].is_null() || found["reason"].is_null()) {
                return Err(Trouble::Failed(
                    "doctor does not say why it names epoll".to_owned(),
                ));
            }
            Ok(chosen.to_owned())
        }
        engine => Ok(engine.to_owned()),
    }
}

fn serve(context: &Context<'_>, row: &Traffic, engine: &str) -> Result<(), Trouble> {
    let words =
        |line: &str| shell_words::split(line).map_err(|error| Trouble::Failed(format!("{line}: {error}")));
    let mut arguments = vec!["serve".to_owned()];
    arguments.extend(words(&row.serve)?);
    arguments.extend(["--listen", "127.0.0.1:0", "--engine", &context.check.engine].map(str::to_owned));
    let server = context.start("quoit", &arguments)?;
    let address = ready(context, &server, engine)?;
    let mut arguments = vec!["load".to_owned()];
    arguments.extend(words(&row.load)?);
    arguments.extend(["--connect".to_owned(), address]);
    let loaded = context.run("quoit", &arguments);
    let served = server.finish(context.reporter, context.until)?;
    loaded?;
    if served.status.success() {
        return Ok(());
    }
    Err(Trouble::Failed(format!("the server: {}", served.status)))
}

/// Waits for the ready line, `listening on ADDRESS engine=...`; the engine has to be this one. Returns the address.
fn ready(context: &Context<'_>, server: &Running, engine: &str) -> Result<String, Trouble> {
    while let Some(line) = server.line(context.until)? {
        context.reporter.say(line.clone());
        let Some(rest) = line.split_once("listening on ").map(|(_, rest)| rest) else {
            continue;
        };
        if !line.contains(&format!("engine={engine}")) {
            return Err(Trouble::Failed(format!("the server is not on {engine}: {line}")));
        }
        return Ok(rest.split_whitespace().next().unwrap_or_default().to_owned());
    }
    Err(Trouble::Failed("the server ended before it was ready".to_owned()))
}
