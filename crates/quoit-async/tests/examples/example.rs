//! An example that runs as a program of its own.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use signal_hook::consts::SIGTERM;

/// Only what hangs takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running example.
pub(crate) struct Example {
    child: Child,
    pub(crate) address: SocketAddr,
}

/// Runs an example on each engine, has it talked to, and ends it. It must end by itself then, and without a fault.
pub(crate) fn on_each_engine(name: &str, arguments: &[&str], talk: impl AsyncFn(&Example)) {
    for engine in ["uring", "epoll"] {
        let mut example = Example::start(name, engine, arguments);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            tokio::time::timeout(PATIENCE, talk(&example))
                .await
                .unwrap_or_else(|_| panic!("{name} on {engine} hangs"));
            example.terminate();
            let ended = tokio::task::spawn_blocking(move || example.child.wait().unwrap());
            let status = tokio::time::timeout(PATIENCE, ended)
                .await
                .unwrap_or_else(|_| panic!("{name} on {engine} does not end"));
            assert_eq!(status.unwrap().code(), Some(0), "{name} on {engine}");
        });
    }
}

/// Where an example was built.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    tests.ancestors().nth(2).unwrap().join("examples").join(name)
}

impl Example {
    /// Starts it on a free port, and waits for its ready line.
    fn start(name: &str, engine: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(program(name));
        command.args(["--listen", "127.0.0.1:0", "--engine", engine]);
        Self::run(name, engine, command.args(arguments))
    }

    /// Starts it on a socket that it inherits, as from a service manager. A shell says so, as the number of the process is not
    /// known before.
    pub(crate) fn inheriting(name: &str, engine: &str, socket: &TcpListener) -> Self {
        let mut command = Command::new("sh");
        let script = "exec 3<&0 </dev/null; LISTEN_FDS=1 LISTEN_PID=$$; export LISTEN_FDS LISTEN_PID; exec \"$0\" \"$@\"";
        command.args(["-c", script]).arg(program(name));
        command.stdin(OwnedFd::from(socket.try_clone().unwrap()));
        Self::run(name, engine, command.args(["--engine", engine]))
    }

    fn run(name: &str, engine: &str, command: &mut Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let ["listening", "on", address, runs, loops, version] = words[..] else {
            panic!("{name} is not ready: {line:?}");
        };
        assert_eq!(runs, format!("engine={engine}"));
        assert!(loops.strip_prefix("loops=").unwrap().parse::<u16>().unwrap() > 0);
        assert_eq!(version, format!("version={}", env!("CARGO_PKG_VERSION")));
        Self {
            child,
            address: address.parse().unwrap(),
        }
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        let process = i32::try_from(self.child.id()).unwrap();
        // SAFETY: kill(2) takes no pointer; the child is not waited for before, so the number is its own.
        let result = unsafe { libc::kill(process, SIGTERM) };
        assert_eq!(result, 0);
    }

    /// Waits for its end, which must be without a fault.
    pub(crate) fn ends(&mut self) {
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }

    /// Waits until it takes no more connections.
    pub(crate) fn wait_draining(&self) {
        while TcpStream::connect(self.address).is_ok() {}
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        // After a failure it may run still.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
