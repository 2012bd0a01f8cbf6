//! A run under the tracer, read line by line.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::mark::Mark;
use crate::subject::{ROUNDS, Server, Work};

/// What the program's addresses are counted from: where it is mapped is known by where this is.
#[inline(never)]
pub(crate) extern "C" fn anchor() {}

/// An access to memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// An instruction was executed.
    Code { address: u64, size: u8 },
    /// The last instruction read or wrote.
    Data { address: u64, size: u32 },
}

/// Rounds that were traced.
#[derive(Debug)]
pub(crate) struct Traced {
    pub(crate) program: PathBuf,
    /// What an address of the program in memory is above that in its file.
    pub(crate) bias: u64,
    /// The turns of a round.
    pub(crate) turns: f64,
    pub(crate) rounds: Vec<Vec<Access>>,
}

/// Runs the server under the tracer.
pub(crate) fn run(server: Server, work: Work, requests: u32) -> Result<Traced, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program's file: {error}"))?;
    let (reader, writer) = std::io::pipe().map_err(|error| format!("a pipe: {error}"))?;
    let name = |value: &dyn ToString| value.to_string();
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=lackey", "--trace-mem=yes", "--basic-counts=no"])
        .arg(format!("--log-fd={}", writer.as_raw_fd()))
        .arg(&program)
        .arg("subject")
        .args(["--server", &value_name(&server), "--work", &value_name(&work)])
        .args(["--requests", &name(&requests)])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    inherit(&writer)?;
    let filter = no_threads()?;
    // SAFETY: the call makes system calls only, of which it is known that they may stand between fork and exec.
    unsafe {
        command.pre_exec(move || {
            seccompiler::apply_filter(&filter).map_err(|_| std::io::Error::last_os_error())
        });
    }
    let mut child = command.spawn().map_err(|error| {
        format!(
            "valgrind could not be started: {error}; install it (Debian, Ubuntu, Fedora: package valgrind)"
        )
    })?;
    drop(writer);
    let rounds = read(BufReader::with_capacity(1 << 20, reader));
    let (mut said, mut complained) = (String::new(), String::new());
    for (pipe, text) in [
        (
            child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
            &mut said,
        ),
        (
            child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read>),
            &mut complained,
        ),
    ] {
        if let Some(mut pipe) = pipe {
            pipe.read_to_string(text).map_err(|error| error.to_string())?;
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    if !status.success() {
        return Err(format!("{status}: {}", complained.trim()));
    }
    let rounds = rounds?;
    if rounds.len() != ROUNDS {
        return Err(format!(
            "{} rounds are in the trace, and not {ROUNDS}",
            rounds.len()
        ));
    }
    let word = |key: &str| said.lines().find_map(|line| line.strip_prefix(key));
    let at = word("anchor 0x")
        .and_then(|hex| u64::from_str_radix(hex, 16).ok())
        .ok_or("the traced program did not say where it is mapped")?;
    let turns: u64 = word("turns ")
        .and_then(|turns| turns.parse().ok())
        .ok_or("the traced program did not say how many turns it made")?;
    // The traced program is this one, so the distance between a function and the start of the file's mapping is the same.
    let bias = at - (anchor as *const () as u64 - own_bias()?);
    Ok(Traced {
        program,
        bias,
        turns: turns as f64 / ROUNDS as f64,
        rounds,
    })
}

/// Lets no thread begin. The tracer runs one thread at a time, so that a ring which waits cannot be woken by another thread; where
/// that was seen, io_uring is not used. A process without a second thread has none that could wake it.
fn no_threads() -> Result<BpfProgram, String> {
    let rules = [libc::SYS_clone, libc::SYS_clone3].map(|call| (call, Vec::new()));
    SeccompFilter::new(
        rules.into_iter().collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EAGAIN.cast_unsigned()),
        std::env::consts::ARCH
            .try_into()
            .map_err(|error| format!("no filter for this processor: {error}"))?,
    )
    .and_then(TryInto::try_into)
    .map_err(|error| format!("a filter: {error}"))
}

fn value_name(value: &impl clap::ValueEnum) -> String {
    value
        .to_possible_value()
        .map_or_else(String::new, |value| value.get_name().to_owned())
}

/// Lets the tracer have the descriptor.
fn inherit(writer: &std::io::PipeWriter) -> Result<(), String> {
    // SAFETY: the descriptor is open, and the call takes no pointer.
    if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETFD, 0) } < 0 {
        return Err(std::io::Error::last_os_error().to_string());
    }
    Ok(())
}

/// Where this process has the start of its program.
fn own_bias() -> Result<u64, String> {
    let maps =
        std::fs::read_to_string("/proc/self/maps").map_err(|error| format!("/proc/self/maps: {error}"))?;
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let program = program.to_string_lossy();
    maps.lines()
        .find(|line| line.ends_with(&*program))
        .and_then(|line| u64::from_str_radix(line.split('-').next()?, 16).ok())
        .ok_or_else(|| format!("{program} is not in /proc/self/maps"))
}

fn read(mut trace: impl BufRead) -> Result<Vec<Vec<Access>>, String> {
    let mut rounds = Vec::new();
    let mut round: Option<Vec<Access>> = None;
    let mut line = String::new();
    loop {
        line.clear();
        if trace
            .read_line(&mut line)
            .map_err(|error| format!("the trace: {error}"))?
            == 0
        {
            return Ok(rounds);
        }
        let Some((kind, address, size)) = parse(&line) else {
            continue;
        };
        match (kind, Mark::at(address as usize)) {
            ('S', Some(Mark::Begin)) => round = Some(Vec::new()),
            ('S', Some(Mark::End)) => rounds.extend(round.take()),
            _ => {
                if let Some(round) = &mut round {
                    round.push(match kind {
                        'I' => Access::Code {
                            address,
                            size: size.min(15) as u8,
                        },
                        _ => Access::Data { address, size },
                    });
                }
            }
        }
    }
}

/// A line of lackey's trace: `I  04001000,3`, ` L 1ffe,8`, ` S ...`, ` M ...`.
fn parse(line: &str) -> Option<(char, u64, u32)> {
    let (kind, rest) = line.trim_end().split_at_checked(3)?;
    let kind = kind.trim();
    if !matches!(kind, "I" | "L" | "S" | "M") {
        return None;
    }
    let (address, size) = rest.split_once(',')?;
    Some((
        kind.chars().next()?,
        u64::from_str_radix(address, 16).ok()?,
        size.parse().ok()?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_trace_are_read() {
        assert_eq!(parse("I  04001a90,3\n"), Some(('I', 0x0400_1a90, 3)));
        assert_eq!(parse(" S 1ffefff8d8,8\n"), Some(('S', 0x001f_feff_f8d8, 8)));
        assert_eq!(parse("==12== Lackey, an example\n"), None);
    }

    #[test]
    fn what_is_between_the_marks_counts() {
        let begin = crate::mark::PAGE;
        let end = begin + Mark::End as usize;
        let text =
            format!("I  1000,4\n S {begin:x},1\nI  2000,4\n L 3000,8\nI  2004,2\n S {end:x},1\nI  5000,1\n");
        let rounds = read(text.as_bytes()).expect("a trace");
        assert_eq!(rounds.len(), 1);
        assert_eq!(rounds[0].len(), 3, "{rounds:?}");
    }
}
