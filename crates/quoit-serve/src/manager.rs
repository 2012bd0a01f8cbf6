//! What the service manager is told: `sd_notify(3)`, and `sd_watchdog_enabled(3)`.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use quoit::Remote;

use super::liveness;
use quoit_host::console::say;

/// The way to the manager that started this process; none if it wants to hear nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Manager {
    socket: Option<Arc<UnixDatagram>>,
    /// Within how long it wants to hear that this process is well.
    watchdog: Option<Duration>,
}

impl Manager {
    /// What the environment says of it. A manager that cannot be told anything is worth a warning and no failure: this
    /// process serves all the same.
    pub(super) fn from_environment() -> Self {
        let read = |variable| env::var_os(variable).map(|value| value.to_string_lossy().into_owned());
        let warn = |warning: String| say(format_args!("quoit serve: warning: {warning}"));
        let socket = read("NOTIFY_SOCKET").and_then(|name| match connect(&name) {
            Ok(socket) => Some(Arc::new(socket)),
            Err(error) => {
                warn(format!(
                    "the service manager is told nothing: NOTIFY_SOCKET is `{name}`: {error}"
                ));
                None
            }
        });
        let watchdog = watchdog(
            std::process::id(),
            read("WATCHDOG_PID").as_deref(),
            read("WATCHDOG_USEC").as_deref(),
        );
        let watchdog = watchdog.unwrap_or_else(|warning| {
            warn(warning);
            None
        });
        Self { socket, watchdog }
    }

    /// It serves; the line says what and where.
    pub(super) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// It has begun to drain, and will have ended when so much time is over.
    pub(super) fn stopping(&self, within: Duration, connections: u64) {
        let seconds = within.as_secs();
        // Whatever the unit's TimeoutStopSec= is. The rest is for what comes after the connections.
        let patience = (within + Duration::from_secs(5)).as_micros();
        self.tell(&format!(
            "STOPPING=1\nEXTEND_TIMEOUT_USEC={patience}\nSTATUS=draining for at most {seconds} s: connections={connections}"
        ));
    }

    /// From now on tells the manager that this process is well, for as long as every loop turns.
    pub(super) fn watch(&self, loops: Vec<Remote>, status: String) {
        let Some(within) = self.watchdog.filter(|_| self.socket.is_some()) else {
            return;
        };
        // With four looks in the time that is given, a loop that stands still for less than half of it costs nothing.
        let interval = within / 4;
        let manager = self.clone();
        let mut watched = Watched::new(loops.len());
        std::thread::spawn(move || {
            // Each is woken, so that one that sleeps turns too.
            let woken = || {
                for event_loop in &loops {
                    event_loop.wake();
                }
            };
            woken();
            loop {
                std::thread::sleep(interval);
                if let Some(text) = watched.look(loops.iter().map(liveness::turns), &status) {
                    manager.tell(&text);
                }
                woken();
            }
        });
    }

    fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // A manager that does not take it in has gone, or will time out and say so.
            let _ = socket.send(text.as_bytes());
        }
    }
}

/// How often each loop had turned when it was last looked at.
#[derive(Debug)]
struct Watched {
    turns: Vec<u64>,
    standing: Option<usize>,
}

impl Watched {
    fn new(loops: usize) -> Self {
        Self {
            turns: vec![0; loops],
            standing: None,
        }
    }

    /// Takes how often each has turned by now, and returns what the manager is to be told. Loops that are gone have none: they
    /// have drained.
    fn look(&mut self, turns: impl Iterator<Item = Option<u64>>, status: &str) -> Option<String> {
        let mut standing = None;
        for (index, (seen, now)) in self.turns.iter_mut().zip(turns).enumerate() {
            if let Some(now) = now {
                if *seen == now {
                    standing.get_or_insert(index);
                }
                *seen = now;
            }
        }
        let before = std::mem::replace(&mut self.standing, standing);
        match (standing, before) {
            (None, None) => Some("WATCHDOG=1".to_owned()),
            (None, Some(_)) => Some(format!("WATCHDOG=1\nSTATUS={status}")),
            (Some(index), before) if before != Some(index) => Some(format!(
                "STATUS=loop {index} stands still, so the watchdog is told nothing"
            )),
            (Some(_), _) => None,
        }
    }
}

/// A path, or a name that no file has.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None if name.starts_with('/') => SocketAddr::from_pathname(name)?,
        None => {
            let problem = "it has to begin with / or @";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // What is told matters less than serving.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Within how long the manager of the process `own_pid` wants to hear of it.
fn watchdog(own_pid: u32, pid: Option<&str>, within: Option<&str>) -> Result<Option<Duration>, String> {
    let Some(within) = within else {
        return Ok(None);
    };
    if let Some(pid) = pid {
        match pid.parse::<u32>() {
            Ok(pid) if pid == own_pid => {}
            Ok(_) => return Ok(None),
            Err(_) => {
                return Err(format!(
                    "the watchdog is told nothing: WATCHDOG_PID is `{pid}`, which is no process id"
                ));
            }
        }
    }
    match within.parse() {
        Ok(microseconds) if microseconds > 0 => Ok(Some(Duration::from_micros(microseconds))),
        _ => Err(format!(
            "the watchdog is told nothing: WATCHDOG_USEC is `{within}`, which is no number of microseconds"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(watched: &mut Watched, turns: &[Option<u64>]) -> String {
        watched.look(turns.iter().copied(), "serving").unwrap_or_default()
    }

    #[test]
    fn the_watchdog_is_told_only_while_every_loop_turns() {
        let mut watched = Watched::new(2);
        assert_eq!(look(&mut watched, &[Some(1), Some(9)]), "WATCHDOG=1");
        assert_eq!(
            look(&mut watched, &[Some(2), Some(9)]),
            "STATUS=loop 1 stands still, so the watchdog is told nothing"
        );
        // Said once.
        assert_eq!(look(&mut watched, &[Some(3), Some(9)]), "");
        assert_eq!(
            look(&mut watched, &[Some(4), Some(10)]),
            "WATCHDOG=1\nSTATUS=serving"
        );
        // One that has drained is not missed.
        assert_eq!(look(&mut watched, &[Some(5), None]), "WATCHDOG=1");
    }

    #[test]
    fn what_the_environment_says_of_the_watchdog() {
        assert_eq!(watchdog(7, None, None), Ok(None));
        assert_eq!(watchdog(7, Some("8"), Some("1000")), Ok(None));
        for pid in [None, Some("7")] {
            assert_eq!(watchdog(7, pid, Some("1000")), Ok(Some(Duration::from_millis(1))));
        }
        for (pid, within, named) in [
            (Some("x"), "1", "WATCHDOG_PID is `x`"),
            (None, "0", "WATCHDOG_USEC is `0`"),
            (None, "soon", "WATCHDOG_USEC is `soon`"),
        ] {
            let warning = watchdog(7, pid, Some(within)).expect_err("it is wrong");
            assert!(warning.contains(named), "{warning}");
        }
    }

    #[test]
    fn only_paths_and_abstract_names_are_sockets() {
        for name in ["", "relative", "vsock:2:1"] {
            let error = connect(name).expect_err("it is no name of a socket");
            assert!(error.to_string().contains("begin with / or @"), "{error}");
        }
    }
}
