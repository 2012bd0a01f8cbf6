//! A server under test: a child process that says when it is ready.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::child;
use super::error::{LabError, Result};
use super::placement;

/// How long a server may take until it says that it is ready.
const READY_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to drain before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Lines of its output that are kept for the error.
const KEPT_LINES: usize = 12;

/// How to start a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerCommand {
    /// What it is called in the results, such as `quoit/uring`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// The engine that its ready line has to name.
    pub(crate) engine: &'static str,
    /// The number of loops that it has to name: a server with more would be compared unfairly.
    pub(crate) loops: usize,
}

/// What a server prints when it is ready: `listening on ADDR engine=E loops=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadyLine {
    pub(crate) address: SocketAddr,
    pub(crate) engine: String,
    pub(crate) loops: usize,
}

impl FromStr for ReadyLine {
    type Err = ();

    fn from_str(line: &str) -> std::result::Result<Self, ()> {
        let mut words = line
            .trim_end()
            .strip_prefix("listening on ")
            .ok_or(())?
            .split(' ');
        let address = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let (mut engine, mut loops) = (None, None);
        // Unknown words are passed over, so that a newer server can say more.
        for word in words {
            match word.split_once('=') {
                Some(("engine", value)) if !value.is_empty() => engine = Some(value.to_owned()),
                Some(("loops", value)) => loops = value.parse().ok(),
                _ => {}
            }
        }
        Ok(Self {
            address,
            engine: engine.ok_or(())?,
            loops: loops.ok_or(())?,
        })
    }
}

/// The last lines of a server's output.
type Output = Arc<Mutex<VecDeque<String>>>;

/// A running server. Dropping it stops it.
pub(crate) struct Server {
    name: String,
    child: Child,
    ready: ReadyLine,
    readers: Vec<JoinHandle<()>>,
    output: Output,
}

impl Server {
    /// Starts a server on one core and waits until it is ready.
    ///
    /// # Errors
    /// It cannot be started, ends or stays silent before its ready line, or runs on another engine or
    /// with more loops than it should. The message carries its last output.
    pub(crate) fn start(command: &ServerCommand, core: usize) -> Result<Self> {
        let name = &command.name;
        let mut process = Command::new(&command.program);
        process.args(&command.arguments);
        process
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        placement::confine(&mut process, &[core]);
        let mut child = process.spawn().map_err(LabError::io(format!(
            "starting {name} ({})",
            command.program.display()
        )))?;

        let output = Output::default();
        let (sender, receiver) = mpsc::channel();
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let ready = move |line: &str| {
                if let Ok(ready) = line.parse::<ReadyLine>() {
                    // The receiver is gone when this is not the first ready line.
                    let _ = sender.send(ready);
                }
            };
            readers.push(keep_output(stdout, Arc::clone(&output), ready));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(keep_output(stderr, Arc::clone(&output), |_| {}));
        }

        match receiver.recv_timeout(READY_PATIENCE) {
            Ok(ready) if ready.engine == command.engine && ready.loops == command.loops => Ok(Self {
                name: name.clone(),
                child,
                ready,
                readers,
                output,
            }),
            Ok(ready) => {
                let _ = child::stop(&mut child, STOP_PATIENCE);
                join(readers);
                Err(LabError::new(format!(
                    "{name} runs {} loop(s) of the engine {} and not {} of {}{}",
                    ready.loops,
                    ready.engine,
                    command.loops,
                    command.engine,
                    said(&output)
                )))
            }
            Err(reason) => {
                let status = child::stop(&mut child, STOP_PATIENCE);
                join(readers);
                let what = match (reason, status) {
                    (RecvTimeoutError::Timeout, _) => format!("was not ready after {READY_PATIENCE:?}"),
                    (RecvTimeoutError::Disconnected, Ok(status)) => {
                        format!("ended before it was ready ({status})")
                    }
                    (RecvTimeoutError::Disconnected, Err(error)) => format!("closed its output ({error})"),
                };
                Err(LabError::new(format!("{name} {what}{}", said(&output))))
            }
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.ready.address
    }

    /// Stops it: SIGTERM, then SIGKILL after a deadline.
    ///
    /// # Errors
    /// It had already ended by itself, which voids what was measured.
    pub(crate) fn stop(mut self) -> Result<()> {
        let ended = self
            .child
            .try_wait()
            .map_err(LabError::io(format!("waiting for {}", self.name)))?;
        if let Some(status) = ended {
            join(std::mem::take(&mut self.readers));
            return Err(LabError::new(format!(
                "{} ended while it was measured ({status}){}",
                self.name,
                said(&self.output)
            )));
        }
        child::stop(&mut self.child, STOP_PATIENCE)
            .map(drop)
            .map_err(LabError::io(format!("stopping {}", self.name)))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Nothing can be done about a failure here, and `stop` has reported it where it matters.
        let _ = child::stop(&mut self.child, STOP_PATIENCE);
        join(std::mem::take(&mut self.readers));
    }
}

/// Reads a stream to its end on a thread of its own, so that a talkative server never blocks on a full pipe.
fn keep_output(
    stream: impl Read + Send + 'static,
    output: Output,
    mut line_arrived: impl FnMut(&str) + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            line_arrived(&line);
            let mut kept = output.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() == KEPT_LINES {
                kept.pop_front();
            }
            kept.push_back(line);
        }
    })
}

fn join(readers: Vec<JoinHandle<()>>) {
    for reader in readers {
        // A reader's panic has been printed, and costs no more than the server's last words.
        let _ = reader.join();
    }
}

/// The kept output as the end of a message.
fn said(output: &Output) -> String {
    let kept = output.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.is_empty() {
        return "; it printed nothing".to_owned();
    }
    kept.iter()
        .fold(String::from("; its last output:"), |text, line| {
            text + "\n    " + line
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> ServerCommand {
        ServerCommand {
            name: "script".to_owned(),
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            engine: "epoll",
            loops: 1,
        }
    }

    fn start(script: &str) -> Result<Server> {
        let cores = placement::Cores::choose(placement::Placement::SameCore)?;
        Server::start(&shell(script), cores.server)
    }

    #[test]
    fn ready_lines_are_read() {
        assert_eq!(
            "listening on 127.0.0.1:4711 engine=uring loops=2\n".parse(),
            Ok(ReadyLine {
                address: "127.0.0.1:4711".parse().expect("an address"),
                engine: "uring".to_owned(),
                loops: 2
            })
        );
        let ipv6: ReadyLine = "listening on [::1]:80 engine=epoll loops=1 metrics=127.0.0.1:9"
            .parse()
            .expect("further words are allowed");
        assert_eq!(ipv6.address, "[::1]:80".parse().expect("an address"));
    }

    #[test]
    fn other_lines_are_not_ready_lines() {
        for line in [
            "",
            "listening on",
            "listening on nowhere engine=uring loops=1",
            "listening on 127.0.0.1:1 engine=uring",
            "listening on 127.0.0.1:1 loops=1",
            "listening on 127.0.0.1:1 engine= loops=1",
            "listening on 127.0.0.1:1 engine=uring loops=many",
            "warning: listening on 127.0.0.1:1 engine=uring loops=1",
        ] {
            assert_eq!(line.parse::<ReadyLine>(), Err(()), "{line}");
        }
    }

    #[test]
    fn a_server_is_started_found_and_stopped() {
        let server =
            start("echo hello; echo listening on 127.0.0.1:9 engine=epoll loops=1; exec tail -f /dev/null")
                .expect("it is ready");
        assert_eq!(server.address(), "127.0.0.1:9".parse().expect("an address"));
        assert!(PathBuf::from(format!("/proc/{}", server.process_id())).exists());
        server.stop().expect("it still ran");
    }

    #[test]
    fn a_server_that_ends_early_is_quoted() {
        let error = start("echo io_uring is denied: see sysctl >&2; exit 3")
            .err()
            .expect("it ended");
        let text = error.to_string();
        assert!(
            text.contains("exit status: 3") && text.contains("io_uring is denied: see sysctl"),
            "{text}"
        );
    }

    #[test]
    fn a_server_on_another_engine_or_with_more_loops_is_refused() {
        for ready in ["engine=uring loops=1", "engine=epoll loops=2"] {
            let error = start(&format!(
                "echo listening on 127.0.0.1:9 {ready}; exec tail -f /dev/null"
            ))
            .err()
            .expect("it is not what was asked for");
            assert!(error.to_string().contains("and not 1 of epoll"), "{error}");
        }
    }
}
