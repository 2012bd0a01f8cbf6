//! Processes of a server, one after the other.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::PATIENCE;

/// How the listening socket comes from one process to the next.
pub(super) enum Way {
    /// By themselves.
    HandOver { folder: TempDir, address: String },
    /// It is this program's.
    Inherit(TcpListener),
}

/// Makes descriptor 3 of standard input, which is all that can be given to a child without a fork of one's own, and says by the
/// protocol of service managers that it is there.
const GIVE: &str =
    "exec 3<&0 0</dev/null; LISTEN_FDS=1 LISTEN_PID=$$; export LISTEN_FDS LISTEN_PID; exec \"$@\"";

impl Way {
    pub(super) fn new(hands_over: bool) -> Result<Self, String> {
        let failed = |error: std::io::Error| error.to_string();
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        if !hands_over {
            return Ok(Self::Inherit(listener));
        }
        // A port that was free just now: all processes have to be told the same.
        let address = listener.local_addr().map_err(failed)?.to_string();
        let folder = tempfile::tempdir().map_err(failed)?;
        Ok(Self::HandOver { folder, address })
    }

    /// Starts the next process, and waits until it says that it serves.
    pub(super) fn start(&self, text: &str) -> Result<Process, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (program, rest) = words.split_first().ok_or("no command is given")?;
        let mut command = match self {
            Self::HandOver { folder, address } => {
                let mut command = Command::new(program);
                command.args(rest).args(["--listen", address, "--hand-over"]);
                command.arg(folder.path().join("hand-over")).stdin(Stdio::null());
                command
            }
            Self::Inherit(listener) => {
                let mut command = Command::new("sh");
                let socket = listener.try_clone().map_err(|error| error.to_string())?;
                command.args(["-c", GIVE, "sh", program]).args(rest);
                command.stdin(Stdio::from(OwnedFd::from(socket)));
                command
            }
        };
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let (sender, said) = mpsc::channel();
        let output = child.stdout.take().ok_or("the server has no standard output")?;
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                // Nobody wants the later ones.
                let _ = sender.send(line);
            }
        });
        let process = Process { child, said };
        process.is_ready()?;
        Ok(process)
    }

    pub(super) fn address(&self) -> Result<String, String> {
        match self {
            Self::HandOver { address, .. } => Ok(address.clone()),
            Self::Inherit(listener) => listener
                .local_addr()
                .map(|address| address.to_string())
                .map_err(|error| error.to_string()),
        }
    }

    /// Lets the process end that was before the one that serves now, and waits for that.
    pub(super) fn end(&self, process: Process) -> Result<(), String> {
        if let Self::Inherit(_) = self {
            process.terminate()?;
        }
        process.wait()
    }
}

/// A process of the server, killed when it is dropped before its end.
pub(super) struct Process {
    child: Child,
    said: Receiver<String>,
}

impl Process {
    fn is_ready(&self) -> Result<(), String> {
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) if line.contains("listening on") => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => return Err("it did not come to listen".to_owned()),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err("it ended without listening; standard error says why".to_owned());
                }
            }
        }
    }

    pub(super) fn terminate(&self) -> Result<(), String> {
        signal(&self.child, Signal::TERM)
    }

    /// Waits for its end, which has to be a good one.
    pub(super) fn wait(mut self) -> Result<(), String> {
        // It closes its output at its end, if not before.
        loop {
            match self.said.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => return Err("a process did not end".to_owned()),
            }
        }
        let status = self.child.wait().map_err(|error| error.to_string())?;
        // What a JVM ends with after SIGTERM.
        if status.success() || status.code() == Some(143) {
            Ok(())
        } else {
            Err(format!("a process ended with {status}"))
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has ended, but for an error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn signal(child: &Child, signal: Signal) -> Result<(), String> {
    kill_process(Pid::from_child(child), signal).map_err(|error| format!("a process cannot be told: {error}"))
}
