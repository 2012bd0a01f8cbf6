//! One virtual machine: started, listened to, and ended when it no longer says anything.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use quoit_kernels::list::Check;
use quoit_kernels::message::{Message, Outcome};
use quoit_kernels::results::{CellRun, KernelResults, failed_test};

/// How long a kernel may take until its first process runs, emulated and with others beside it.
const BOOT: Duration = Duration::from_secs(120);
/// What the guest gets beyond a check's limit, to say the stacks and to end what hangs.
const GRACE: Duration = Duration::from_secs(60);
/// Failed tests that are kept of a check, at most.
const MOST_FAILED: usize = 40;

/// What a machine is made of.
pub(crate) struct Machine<'a> {
    pub(crate) kernel: &'a Path,
    pub(crate) archive: &'a Path,
    pub(crate) memory: u32,
    pub(crate) accelerator: &'a str,
    /// Where its logs go.
    pub(crate) logs: PathBuf,
}

/// How a machine ended.
pub(crate) enum End {
    /// All checks were run.
    Done,
    /// It did not come up, for this reason.
    NotUp(String),
    /// It stopped in the middle of this check.
    Stopped(String),
}

struct Running {
    emulator: Child,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended = self.emulator.kill();
        let _reaped = self.emulator.wait();
    }
}

impl Machine<'_> {
    /// Boots, and follows the checks. `tell` is called with each that ends.
    pub(crate) fn run(
        &self,
        checks: &[Check],
        results: &mut KernelResults,
        mut tell: impl FnMut(&str, &CellRun),
    ) -> Result<End, String> {
        let machine = self.start()?;
        let mut until = Instant::now() + BOOT;
        let mut current: Option<Current> = None;
        let mut up = false;
        while let Ok(line) = machine
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            // The port carries nothing else, but for what a kernel that dies may write.
            let Ok(message) = serde_json::from_str(&line) else {
                continue;
            };
            match message {
                Message::Up { release } => {
                    up = true;
                    results.release = release;
                    until = Instant::now() + GRACE;
                }
                Message::Begins { check } => {
                    let limit = checks
                        .iter()
                        .find(|one| one.name == check)
                        .map_or(0, |one| one.limit);
                    until = Instant::now() + Duration::from_secs(limit) + GRACE;
                    current = Some(Current::begin(&self.logs, checks, check)?);
                }
                Message::Says { line } => {
                    if let Some(current) = &mut current {
                        current.say(&line)?;
                    }
                }
                Message::Warns { line } => match &mut current {
                    Some(current) => current.warn(line)?,
                    None => eprintln!("{}: at its start: {line}", results.title),
                },
                Message::Finds { what } => results.keep(what),
                Message::Ends { outcome, seconds } => {
                    let Some(ended) = current.take() else { continue };
                    until = Instant::now() + GRACE;
                    let (check, run) = ended.end(outcome, seconds);
                    tell(&check, &run);
                    results.cells.entry(check).or_default().runs.push(run);
                }
                Message::Done => return Ok(End::Done),
            }
        }
        let console = self.logs.join("console.log");
        if !up {
            let why = format!(
                "it did not come up within {} s; see {}",
                BOOT.as_secs(),
                console.display()
            );
            return Ok(End::NotUp(why));
        }
        let Some(stopped) = current else {
            return Ok(End::Stopped(String::new()));
        };
        let (check, run) = stopped.end(Outcome::Failed("the machine stopped".to_owned()), 0.0);
        tell(&check, &run);
        results.cells.entry(check.clone()).or_default().runs.push(run);
        Ok(End::Stopped(check))
    }

    fn start(&self) -> Result<Running, String> {
        let failed = |error| format!("{}: {error}", self.logs.display());
        fs::create_dir_all(&self.logs).map_err(failed)?;
        let console = self.logs.join("console.log");
        let mut emulator = ending_with(std::process::id(), "qemu-system-x86_64")
            // Without CMPXCHG16B, whose emulation leaves wrong flags behind: some kernels then die at random in the slab
            // allocator.
            .args(["-accel", self.accelerator, "-cpu", "max,-cx16", "-smp", "2"])
            .args(["-m", &format!("{}M", self.memory)])
            .args([
                "-display",
                "none",
                "-monitor",
                "none",
                "-no-reboot",
                "-nodefaults",
            ])
            // The console is the first port, messages are the second's.
            .arg("-chardev")
            .arg(format!("file,id=console,append=on,path={}", console.display()))
            .args(["-serial", "chardev:console"])
            .args(["-serial", "stdio"])
            .arg("-kernel")
            .arg(self.kernel)
            .arg("-initrd")
            .arg(self.archive)
            // Kernels do not trust an emulated processor's time-stamp counter, and then each look at the clock is a system
            // call, which costs time and is counted with the server's.
            .args([
                "-append",
                "console=ttyS0 panic=-1 hung_task_panic=0 tsc=reliable clocksource=tsc",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("qemu-system-x86_64: {error}"))?;
        let output = emulator.stdout.take().expect("it was asked for");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Running { emulator, lines })
    }
}

/// A command that ends with this program, however that ends. One whose starter `parent` ended before the signal was asked for
/// gets none, and so does not begin: to its shell another process is the parent.
fn ending_with(parent: u32, program: &str) -> Command {
    const BEGIN: &str = r#"[ "$PPID" = "$0" ] && exec "$@""#;
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "sh", "-c", BEGIN])
        .arg(parent.to_string())
        .arg(program);
    command
}

/// The check that runs.
struct Current {
    check: String,
    log: File,
    failed_tests: Vec<String>,
    warnings: Vec<String>,
}

impl Current {
    fn begin(logs: &Path, checks: &[Check], check: String) -> Result<Self, String> {
        let name = checks
            .iter()
            .find(|one| one.name == check)
            .map_or_else(String::new, Check::file_name);
        let path = logs.join(format!("{name}.log"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(&path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Self {
            check,
            log,
            failed_tests: Vec::new(),
            warnings: Vec::new(),
        })
    }

    fn say(&mut self, line: &str) -> Result<(), String> {
        if let Some(test) = failed_test(line)
            && self.failed_tests.len() < MOST_FAILED
        {
            self.failed_tests.push(test.to_owned());
        }
        writeln!(self.log, "{line}").map_err(|error| format!("the log of {}: {error}", self.check))
    }

    fn warn(&mut self, line: String) -> Result<(), String> {
        self.say(&format!("kernel: {line}"))?;
        self.warnings.push(line);
        Ok(())
    }

    fn end(self, outcome: Outcome, seconds: f64) -> (String, CellRun) {
        let run = CellRun {
            outcome,
            seconds: (seconds * 10.0).round() / 10.0,
            failed_tests: self.failed_tests,
            warnings: self.warnings,
        };
        (self.check, run)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn a_machine_whose_starter_has_gone_does_not_begin() {
        let begins = |parent| {
            let mut command = ending_with(parent, "echo");
            let output = command.arg("it runs").output().unwrap();
            (output.status.success(), String::from_utf8(output.stdout).unwrap())
        };
        assert_eq!(begins(std::process::id()), (true, "it runs\n".to_owned()));
        // That of another process: as after the death of the own one.
        assert_eq!(
            begins(std::os::unix::process::parent_id()),
            (false, String::new())
        );
    }
}
