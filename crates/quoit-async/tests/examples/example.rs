//! An example that runs as a program of its own.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use signal_hook::consts::SIGTERM;

/// Only what hangs takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

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

impl Example {
    /// Starts it on a free port, and waits for its ready line.
    fn start(name: &str, engine: &str, arguments: &[&str]) -> Self {
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        let mut child = Command::new(&program)
            .args(["--listen", "127.0.0.1:0", "--engine", engine])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
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
