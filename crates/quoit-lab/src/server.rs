//! A server under test: a child process that says when it is ready.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::child;
use super::error::{LabError, Result};

/// How long a server may take until it says that it is ready.
pub(crate) const READY_PATIENCE: Duration = Duration::from_secs(10);
/// How long it may take to drain before it is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks whether a server is ready or the wait was given up.
const READY_TICK: Duration = Duration::from_millis(20);
/// Lines of its output that are kept for the error.
const KEPT_LINES: usize = 12;

/// How to start a server.
#[derive(Clone, Debug)]
pub(crate) struct ServerCommand {
    /// What it is called in the results, such as `quoit/uring`.
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<OsString>,
    /// Added to the environment.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) ready: ReadySign,
    /// Words that its ready line has to have, such as `engine=uring`: a server that fell back, or has more loops
    /// than asked for, would be compared unfairly.
    pub(crate) expects: Vec<String>,
}

/// How a server is known to be ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadySign {
    /// It prints a [`ReadyLine`].
    Line,
    /// This port is open.
    Port(SocketAddr),
}

/// What a server prints when it is ready: `listening on ADDR` and further words, such as `engine=E loops=N`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReadyLine {
    pub(crate) address: SocketAddr,
    pub(crate) words: Vec<String>,
}

impl FromStr for ReadyLine {
    type Err = ();

    fn from_str(line: &str) -> std::result::Result<Self, ()> {
        let mut words = line.strip_prefix("listening on ").ok_or(())?.split_whitespace();
        Ok(Self {
            address: words.next().and_then(|word| word.parse().ok()).ok_or(())?,
            words: words.map(str::to_owned).collect(),
        })
    }
}

impl ReadyLine {
    /// The value of a word `NAME=VALUE`.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        let rest = |word: &'_ str| -> Option<usize> {
            let value = word.strip_prefix(name)?.strip_prefix('=')?;
            Some(word.len() - value.len())
        };
        self.words
            .iter()
            .find_map(|word| rest(word).map(|start| &word[start..]))
    }
}

/// Whether an address takes a connection within a time.
pub(crate) fn accepts(address: SocketAddr, patience: Duration) -> bool {
    TcpStream::connect_timeout(&address, patience).is_ok()
}

/// The last lines of a program's output.
#[derive(Clone, Debug, Default)]
pub(crate) struct Output(Arc<Mutex<VecDeque<String>>>);

/// A running server. Dropping it stops it.
pub(crate) struct Server {
    name: String,
    child: Child,
    ready: ReadyLine,
    /// What it printed on standard output that looks like a JSON object.
    reports: Receiver<String>,
    readers: Vec<JoinHandle<()>>,
    output: Output,
}

impl Server {
    /// Starts a server where `place` puts it, and waits until it is ready, at most `patience`, or until
    /// `cancelled` says so. `is_open` tries within a time whether a port of a process is open.
    ///
    /// # Errors
    /// It cannot be started, ends or is not ready in time, or its ready line does not have the words that are
    /// expected. The message carries its last output.
    pub(crate) fn start(
        command: &ServerCommand,
        place: impl FnOnce(&mut Command),
        patience: Duration,
        cancelled: &dyn Fn() -> bool,
        is_open: &dyn Fn(u32, SocketAddr, Duration) -> bool,
    ) -> Result<Self> {
        let name = &command.name;
        let mut process = Command::new(&command.program);
        process.args(&command.arguments);
        process.envs(command.environment.iter().map(|(name, value)| (name, value)));
        process
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // A terminal's interrupt goes to the lab alone, which winds up in order.
            .process_group(0);
        place(&mut process);
        let mut child = process.spawn().map_err(LabError::io(format!(
            "starting {name} ({})",
            command.program.display()
        )))?;

        let output = Output::default();
        let (sender, receiver) = mpsc::channel();
        let (report, reports) = mpsc::channel();
        let mut readers = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            let ready = move |line: &str| {
                if let Ok(ready) = line.parse::<ReadyLine>() {
                    // The receiver is gone when this is not the first ready line.
                    let _ = sender.send(ready);
                } else if line.starts_with('{') {
                    // The receiver is gone with the server that nobody waits for any more.
                    let _ = report.send(line.to_owned());
                }
            };
            readers.push(keep_output(stdout, output.clone(), ready));
        }
        if let Some(stderr) = child.stderr.take() {
            readers.push(keep_output(stderr, output.clone(), |_| {}));
        }
        let mut server = Self {
            name: name.clone(),
            child,
            ready: ReadyLine {
                address: SocketAddr::from(([0, 0, 0, 0], 0)),
                words: Vec::new(),
            },
            reports,
            readers,
            output,
        };
        server.ready = server.await_ready(command.ready, &receiver, patience, cancelled, is_open)?;
        let missing = command
            .expects
            .iter()
            .find(|word| !server.ready.words.contains(word));
        if let (Some(missing), ReadySign::Line) = (missing, command.ready) {
            return Err(server.failure(&format!(
                "does not say `{missing}`, so it is not what was asked for"
            )));
        }
        Ok(server)
    }

    fn await_ready(
        &mut self,
        sign: ReadySign,
        lines: &Receiver<ReadyLine>,
        patience: Duration,
        cancelled: &dyn Fn() -> bool,
        is_open: &dyn Fn(u32, SocketAddr, Duration) -> bool,
    ) -> Result<ReadyLine> {
        let deadline = Instant::now() + patience;
        loop {
            match sign {
                ReadySign::Line => match lines.recv_timeout(READY_TICK) {
                    Ok(ready) => return Ok(ready),
                    Err(RecvTimeoutError::Disconnected) => {
                        let status = child::stop(&mut self.child, STOP_PATIENCE);
                        return Err(match status {
                            Ok(status) => self.failure(&format!("ended before it was ready ({status})")),
                            Err(error) => self.failure(&format!("closed its output ({error})")),
                        });
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                },
                ReadySign::Port(address) => {
                    thread::sleep(READY_TICK);
                    if let Some(status) = self.ended()? {
                        return Err(self.failure(&format!("ended before it was ready ({status})")));
                    }
                    if is_open(self.process_id(), address, READY_TICK) {
                        let words = Vec::new();
                        return Ok(ReadyLine { address, words });
                    }
                }
            }
            if cancelled() {
                return Err(self.failure("was given up before it was ready"));
            }
            if Instant::now() >= deadline {
                return Err(self.failure(&format!("was not ready after {patience:?}")));
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

    pub(crate) fn ready(&self) -> &ReadyLine {
        &self.ready
    }

    /// How it ended, if it has.
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child
            .try_wait()
            .map_err(LabError::io(format!("waiting for {}", self.name)))
    }

    /// Stops it, and makes an error that names it, says what happened and ends with its last output.
    pub(crate) fn failure(&mut self, what: &str) -> LabError {
        let ended = self.child.try_wait();
        self.end();
        let how = match ended {
            Ok(Some(status)) if !what.contains("ended") => format!("; it has ended ({status})"),
            _ => String::new(),
        };
        LabError::new(format!("{} {what}{how}{}", self.name, self.output.said()))
    }

    /// Waits until it has ended by itself, and takes the JSON object that it printed last.
    ///
    /// # Errors
    /// It does not end within `patience`, fails, or has printed none. The message carries its last output.
    pub(crate) fn report(&mut self, patience: Duration) -> Result<String> {
        let status = child::wait_with_deadline(&mut self.child, patience)
            .map_err(LabError::io(format!("waiting for {}", self.name)))?;
        let Some(status) = status else {
            return Err(self.failure(&format!(
                "has not ended after {patience:?}, although all was sent"
            )));
        };
        // Its readers have seen everything when they have ended.
        self.end();
        match self.reports.try_iter().last() {
            Some(report) if status.success() => Ok(report),
            Some(_) => Err(self.failure(&format!("ended ({status})"))),
            None => Err(self.failure(&format!("ended without a report ({status})"))),
        }
    }

    /// Stops it: SIGTERM, then SIGKILL after a deadline.
    ///
    /// # Errors
    /// It had already ended by itself, which voids what was measured.
    pub(crate) fn stop(mut self) -> Result<()> {
        if let Some(status) = self.ended()? {
            return Err(self.failure(&format!("ended while it was measured ({status})")));
        }
        child::stop(&mut self.child, STOP_PATIENCE)
            .map(drop)
            .map_err(LabError::io(format!("stopping {}", self.name)))
    }

    /// Ends what is left of it, workers included.
    fn end(&mut self) {
        // Nothing can be done about a failure here, and `stop` has reported it where it matters.
        let _ = child::stop(&mut self.child, STOP_PATIENCE);
        child::end_group(&self.child);
        for reader in self.readers.drain(..) {
            // A reader's panic has been printed, and costs no more than the server's last words.
            let _ = reader.join();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads a stream to its end on a thread of its own, so that a talkative program never blocks on a full pipe.
pub(crate) fn keep_output(
    stream: impl Read + Send + 'static,
    output: Output,
    mut line_arrived: impl FnMut(&str) + Send + 'static,
) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n') {
            let Ok(line) = line else { return };
            let line = String::from_utf8_lossy(&line).into_owned();
            line_arrived(&line);
            output.keep(line);
        }
    })
}

impl Output {
    fn keep(&self, line: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT_LINES {
            kept.pop_front();
        }
        kept.push_back(line);
    }

    /// The kept lines as the end of a message.
    pub(crate) fn said(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_empty() {
            return "; it printed nothing".to_owned();
        }
        kept.iter()
            .fold(String::from("; its last output:"), |text, line| {
                text + "\n    " + line
            })
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener};

    use super::*;
    use quoit_host::ports;

    fn shell(script: &str, ready: ReadySign) -> ServerCommand {
        ServerCommand {
            name: "script".to_owned(),
            program: "sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("GREETING".to_owned(), "good day".to_owned())],
            ready,
            expects: vec!["engine=epoll".to_owned(), "loops=1".to_owned()],
        }
    }

    fn connects(_process: u32, address: SocketAddr, patience: Duration) -> bool {
        accepts(address, patience)
    }

    fn start(script: &str) -> Result<Server> {
        Server::start(
            &shell(script, ReadySign::Line),
            |_| {},
            READY_PATIENCE,
            &|| false,
            &connects,
        )
    }

    fn error(outcome: Result<Server>) -> String {
        outcome.err().expect("it is refused").to_string()
    }

    #[test]
    fn ready_lines_are_read() {
        let line: ReadyLine = "listening on 127.0.0.1:4711 engine=uring loops=2"
            .parse()
            .expect("it is one");
        assert_eq!(line.address, "127.0.0.1:4711".parse().expect("an address"));
        assert_eq!(
            (line.value("engine"), line.value("loops")),
            (Some("uring"), Some("2"))
        );
        assert_eq!((line.value("loop"), line.value("version")), (None, None));
        let ipv6: ReadyLine = "listening on [::1]:80".parse().expect("words may be absent");
        assert_eq!(ipv6.address, "[::1]:80".parse().expect("an address"));
    }

    #[test]
    fn other_lines_are_not_ready_lines() {
        for line in [
            "",
            "listening on",
            "listening on nowhere engine=uring loops=1",
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
        let text = error(start("echo $GREETING: see sysctl >&2; exit 3"));
        assert!(
            text.contains("exit status: 3") && text.contains("good day: see sysctl"),
            "{text}"
        );
    }

    #[test]
    fn a_server_on_another_engine_or_with_more_loops_is_refused() {
        for ready in ["engine=uring loops=1", "engine=epoll loops=2", ""] {
            let text = error(start(&format!(
                "echo listening on 127.0.0.1:9 {ready}; exec tail -f /dev/null"
            )));
            assert!(text.contains("is not what was asked for"), "{text}");
        }
    }

    #[test]
    fn a_server_that_is_never_ready_is_stopped_in_time_or_when_given_up() {
        let silent = shell("echo loading; exec tail -f /dev/null", ReadySign::Line);
        let text = error(Server::start(
            &silent,
            |_| {},
            Duration::ZERO,
            &|| false,
            &connects,
        ));
        assert!(text.contains("was not ready after"), "{text}");
        let text = error(Server::start(
            &silent,
            |_| {},
            READY_PATIENCE,
            &|| true,
            &connects,
        ));
        assert!(text.contains("was given up"), "{text}");
    }

    #[test]
    fn a_port_that_accepts_is_ready() {
        let host = IpAddr::from([127, 0, 0, 1]);
        let free = || SocketAddr::new(host, ports::free(host).expect("a port is free"));
        let address = free();
        let _listener = TcpListener::bind(address).expect("it is free");
        let command = shell("exec tail -f /dev/null", ReadySign::Port(address));
        let server =
            Server::start(&command, |_| {}, READY_PATIENCE, &|| false, &connects).expect("it is ready");
        assert_eq!(server.address(), address);
        drop(server);
        // Not the first one closed: a process that another test is starting may hold it open for a moment.
        let command = shell("echo no port; exit 4", ReadySign::Port(free()));
        let text = error(Server::start(
            &command,
            |_| {},
            READY_PATIENCE,
            &|| false,
            &connects,
        ));
        assert!(
            text.contains("exit status: 4") && text.contains("no port"),
            "{text}"
        );
    }

    #[test]
    fn workers_end_with_their_master() {
        let script = "sleep 1000 & echo listening on 127.0.0.1:9 engine=epoll loops=1 worker=$!; wait";
        let server = start(script).expect("it is ready");
        let worker = server.ready().value("worker").expect("it says so");
        let worker = worker.parse().expect("it is a number");
        let worker = child::descriptor_of(worker).expect("it runs");
        assert!(!child::ends_within(&worker, Duration::ZERO).expect("it can be waited for"));
        drop(server);
        // A signal that was sent has not arrived yet; far less than the 1000 s that it would live on.
        assert!(child::ends_within(&worker, Duration::from_secs(60)).expect("it can be waited for"));
    }
}
