//! Programs that are run to their end.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Runs a command to its end, and returns its standard output; its standard error is the caller's.
///
/// # Errors
/// What was run, and how it ended, if that was not well.
pub fn output(command: &mut Command) -> Result<String, String> {
    command.stderr(Stdio::inherit());
    finish(command)
}

/// The same, and what it says on standard error is told only if it fails.
///
/// # Errors
/// As of [`output`].
pub fn quiet_output(command: &mut Command) -> Result<String, String> {
    command.stderr(Stdio::piped());
    finish(command)
}

fn finish(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let arguments: Vec<_> = command.get_args().map(OsStr::to_string_lossy).collect();
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    let lead = if said.is_empty() { "" } else { ":\n" };
    Err(format!(
        "{name} {}: {}{lead}{said}",
        arguments.join(" "),
        output.status
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn what_it_prints_is_returned() {
        assert_eq!(output(&mut shell("echo out")), Ok("out\n".to_owned()));
        assert_eq!(
            quiet_output(&mut shell("echo out; echo err >&2")),
            Ok("out\n".to_owned())
        );
    }

    #[test]
    fn a_failure_names_the_command_and_what_it_said() {
        let said = quiet_output(&mut shell("echo too old >&2; exit 3")).expect_err("it failed");
        assert_eq!(said, "sh -c echo too old >&2; exit 3: exit status: 3:\ntoo old");
        let said = output(&mut Command::new("/nowhere/program")).expect_err("it is not there");
        assert!(said.starts_with("/nowhere/program: "), "{said}");
    }
}
