//! `quoit-deploy`: makes and tries what is in `deploy/`.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::{Args, Parser};
use quoit_deploy::profile::Profile;
use quoit_deploy::restarts::{self, Restarts};
use quoit_deploy::{dashboard, minimal, trace};

/// Make and try what is in deploy/
#[derive(Debug, Parser)]
#[command(name = "quoit-deploy")]
enum Arguments {
    /// Print a runtime's default profile with exactly the calls of io_uring added
    Add {
        /// The profile that the runtime has, such as /usr/share/containers/seccomp.json
        #[arg(long, value_name = "FILE")]
        default: PathBuf,
        /// What it is and of which version: said in the profile that is made
        #[arg(long, value_name = "TEXT")]
        origin: String,
    },
    /// Print the minimal profile of the program, of the calls that strace -f tells of on standard input
    Trace,
    /// Run a program under a profile, as a runtime applies it
    Try(Try),
    /// Print the dashboard for Grafana
    Dashboard,
    /// Restart servers under load, and fail if a request is lost
    Restarts(Restarts),
    /// Print docs/restarts.md with the table of what is kept in lab/restarts
    RestartsPage,
}

#[derive(Debug, Args)]
struct Try {
    #[arg(long, value_name = "FILE")]
    profile: PathBuf,
    /// Calls of it to deny all the same
    #[arg(long, value_name = "CALL,...", value_delimiter = ',')]
    without: Vec<String>,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true)]
    program: Vec<String>,
}

fn main() -> ExitCode {
    let made = match Arguments::parse() {
        Arguments::Add { default, origin } => {
            read(&default).and_then(|profile| Ok(profile.with_io_uring(&origin)?.text()))
        }
        Arguments::Trace => traced(),
        Arguments::Try(arguments) => run(&arguments),
        Arguments::Dashboard => Ok(dashboard::text()),
        Arguments::Restarts(arguments) => restarts::run(&arguments),
        Arguments::RestartsPage => restarts::write_page(Path::new(".")),
    };
    let written = made.and_then(|text| {
        io::stdout()
            .write_all(text.as_bytes())
            .map_err(|error| error.to_string())
    });
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("quoit-deploy: {message}");
            ExitCode::FAILURE
        }
    }
}

fn read(path: &Path) -> Result<Profile, String> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| named(&error))?;
    Profile::parse(&text).map_err(|error| named(&error))
}

fn traced() -> Result<String, String> {
    let mut gathered = trace::Gathered::default();
    gathered.read(io::stdin().lock());
    if gathered.runs() == 0 {
        return Err("no line is of a quoit that was started: give it the output of `strace -f`".to_owned());
    }
    Ok(minimal::profile(gathered.calls()).text())
}

/// Becomes the program; returns only if it cannot.
fn run(arguments: &Try) -> Result<String, String> {
    let without: Vec<&str> = arguments.without.iter().map(String::as_str).collect();
    let filter = read(&arguments.profile)?.without(&without).compile()?;
    let (program, rest) = arguments.program.split_first().ok_or("no program is named")?;
    let mut command = Command::new(program);
    command.args(rest);
    seccompiler::apply_filter(&filter).map_err(|error| format!("the kernel refused the filter: {error}"))?;
    Err(format!("{program}: {}", command.exec()))
}
