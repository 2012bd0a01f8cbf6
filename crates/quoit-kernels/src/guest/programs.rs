//! Starting programs as a check wants them, and following them to their end or to the limit.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use quoit_kernels::list::Check;
use quoit_kernels::message::Program;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::reporter::Reporter;
use crate::system;

/// The ordinary user of the machine: its number and its group's.
const USER: u32 = 1000;
/// What systemd sets since 2020, and what distributions set for open files.
const USERS_MEMLOCK: u64 = 8 << 20;
const USERS_FILES: (u64, u64) = (1024, 1 << 19);
/// How often is looked whether a program that has closed its output has ended.
const BEAT: Duration = Duration::from_millis(20);

/// A command with the user, the limits and the filter of a check.
pub(crate) fn command(program: &Program, check: &Check, environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(&program.path);
    command
        .args(&program.arguments)
        .env_clear()
        .envs(environment)
        .envs(&check.environment)
        .current_dir(&program.folder)
        .stdin(Stdio::null());
    if check.user {
        command.uid(USER).gid(USER);
    }
    let memlock = check.memlock.or(check.user.then_some(USERS_MEMLOCK));
    let user = check.user;
    let filter = check.seccomp.then(without_io_uring);
    // SAFETY: the closure runs between fork and exec; it makes system calls, and neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            if let Some(bytes) = memlock {
                system::limit(libc::RLIMIT_MEMLOCK, bytes, bytes)?;
            }
            if user {
                system::limit(libc::RLIMIT_NOFILE, USERS_FILES.0, USERS_FILES.1)?;
            }
            if let Some(filter) = &filter {
                seccompiler::apply_filter(filter).map_err(|_| io::Error::last_os_error())?;
            }
            Ok(())
        });
    }
    command
}

/// Refuses io_uring as container engines' default filters do: EPERM.
fn without_io_uring() -> BpfProgram {
    let calls = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];
    let arch = std::env::consts::ARCH
        .try_into()
        .expect("the filter's library knows this processor");
    SeccompFilter::new(
        calls.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        arch,
    )
    .and_then(BpfProgram::try_from)
    .expect("a filter of three calls is a valid one")
}

/// A program that runs, with the lines that it prints.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
}

/// What a program that has ended left.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) lines: Vec<String>,
}

/// The limit has passed.
#[derive(Debug)]
pub(crate) struct TooLate;

impl Running {
    /// Starts a command; its standard output and error are read as one.
    pub(crate) fn start(mut command: Command) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let child = command.stdout(writer.try_clone()?).stderr(writer).spawn()?;
        // The command keeps the writing ends: the output would never end.
        drop(command);
        Ok(Self {
            child,
            lines: lines(reader),
        })
    }

    /// The next line, [`None`] at the output's end.
    pub(crate) fn line(&self, until: Instant) -> Result<Option<String>, TooLate> {
        match self
            .lines
            .recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Disconnected) => Ok(None),
            Err(RecvTimeoutError::Timeout) => Err(TooLate),
        }
    }

    /// Follows the program to its end, and says each line.
    pub(crate) fn end(mut self, reporter: &Reporter, until: Instant) -> Result<Ended, TooLate> {
        let mut kept = Vec::new();
        while let Some(line) = self.line(until)? {
            reporter.say(line.clone());
            kept.push(line);
        }
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Ok(Ended { status, lines: kept }),
                Ok(None) if Instant::now() < until => thread::sleep(BEAT),
                _ => return Err(TooLate),
            }
        }
    }

    /// Asks the program to end (SIGTERM), and follows it.
    pub(crate) fn finish(self, reporter: &Reporter, until: Instant) -> Result<Ended, TooLate> {
        system::ask_to_end(self.child.id());
        self.end(reporter, until)
    }
}

fn lines(reader: PipeReader) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
