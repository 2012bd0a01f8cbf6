//! An example that runs as a program of its own.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// A running example; ended with this value.
pub(crate) struct Example {
    child: Child,
    pub(crate) address: SocketAddr,
    /// It is to end by itself.
    ending: bool,
}

impl Example {
    /// Starts the example, which listens on a free port, and waits for its ready line.
    pub(crate) fn start(name: &str, arguments: &[&str]) -> Self {
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        let mut child = Command::new(&program)
            .arg("127.0.0.1:0")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let words: Vec<_> = line.split_whitespace().collect();
        let ["listening", "on", address, engine] = words[..] else {
            panic!("{name} is not ready: {line:?}");
        };
        assert!(["engine=uring", "engine=epoll"].contains(&engine), "{line}");
        let address = address.parse().unwrap();
        Self {
            child,
            address,
            ending: false,
        }
    }

    /// The most memory that it has had so far, in KiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        peak.trim_end_matches("kB").trim().parse().unwrap()
    }

    /// Tells it to end.
    pub(crate) fn signal(&mut self, signal: i32) {
        self.ending = true;
        // SAFETY: kill(2) takes no pointer; the child is not waited for before, so the number is its own.
        let result = unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
        assert_eq!(result, 0);
    }

    /// Waits until it takes no more connections.
    pub(crate) fn wait_draining(&self) {
        while let Ok(taken) = TcpStream::connect(self.address) {
            reset(taken);
        }
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) fn exit_code(mut self) -> i32 {
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), None, "a signal ended it");
        status.code().unwrap()
    }
}

/// Closes with a reset.
pub(crate) fn reset(client: TcpStream) {
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
}

impl Drop for Example {
    fn drop(&mut self) {
        let ended_itself = self.child.try_wait().unwrap();
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !thread::panicking() && !self.ending {
            assert_eq!(ended_itself, None, "the example ended by itself");
        }
    }
}
