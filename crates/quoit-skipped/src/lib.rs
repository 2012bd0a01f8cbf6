//! How a test says that it, or a part of it, was left out: by its name and with what is missing, past the test harness,
//! which swallows what a passing test prints.

use std::fmt::{Arguments, Display};
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::process::Output;

/// What each such line begins with.
pub const MARK: &str = "left out:";

/// Says that `what` was left out, and what is missing for it.
pub fn skip(what: impl Display, reason: impl Display) {
    say(format_args!("{MARK} {what}: {reason}"));
}

/// Says that this test was left out, or the part of it that needs what is missing.
pub fn skip_this(reason: impl Display) {
    skip(this_test(), reason);
}

/// Names the engines that must run, with spaces between them, where tests that are left out would pass unseen: in CI.
const REQUIRED_ENGINES: &str = "QUOIT_TEST_ENGINES";

/// Says that `what` was left out, as an engine does not run here.
///
/// # Panics
/// If `QUOIT_TEST_ENGINES` names the engine.
pub fn skip_engine(engine: &str, what: impl Display, reason: impl Display) {
    let required = std::env::var(REQUIRED_ENGINES).unwrap_or_default();
    assert!(
        !required.split_whitespace().any(|name| name == engine),
        "{REQUIRED_ENGINES} names {engine}, and it does not run here: {reason}"
    );
    skip(what, reason);
}

/// Says that `what` was left out because of an error: for want of privileges, if that is what the error says, which are
/// those of `capabilities` (capabilities(7)).
pub fn skip_for(what: impl Display, error: &io::Error, capabilities: &str) {
    if error.kind() == ErrorKind::PermissionDenied {
        say(format_args!("{MARK} {what} needs root ({capabilities}): {error}"));
    } else {
        skip(what, error);
    }
}

/// Says that `what` was left out, as this process is not root.
pub fn needs_root(what: impl Display, capabilities: &str) {
    say(format_args!("{MARK} {what} needs root ({capabilities})"));
}

/// The name of the test that calls this: that of its thread. With `--test-threads=1` tests run on the program's first
/// thread, whose name is no test's: there it is that of the program.
#[must_use]
pub fn this_test() -> String {
    let thread = std::thread::current();
    match thread.name() {
        Some(name) if name != "main" => name.to_owned(),
        _ => std::env::args().next().unwrap_or_default(),
    }
}

/// Says again what a child has said was left out.
pub fn pass_on(child: &Output) {
    let said = String::from_utf8_lossy(&child.stderr);
    for line in said.lines().filter(|line| line.starts_with(MARK)) {
        say(format_args!("{line}"));
    }
}

/// Names the file that tests which leave something out add their names to, a line each: `.ci/rust-tests` has root run these.
const LEFT_OUT: &str = "QUOIT_TESTS_LEFT_OUT";

/// Prints the line, and adds this test's name to the file.
///
/// # Panics
/// If the file cannot be written: root would not run the test, and nobody would know.
fn say(line: Arguments<'_>) {
    // Nobody may be listening.
    let _ = writeln!(io::stderr(), "{line}");
    let Some(file) = std::env::var_os(LEFT_OUT) else {
        return;
    };
    // What a test has run says it to that test, which passes it on.
    if std::thread::current().name() == Some("main") {
        return;
    }
    let added = OpenOptions::new()
        .append(true)
        .open(&file)
        .and_then(|mut file| file.write_all(format!("{}\n", this_test()).as_bytes()));
    if let Err(error) = added {
        panic!("{LEFT_OUT}: {}: {error}", file.display());
    }
}
