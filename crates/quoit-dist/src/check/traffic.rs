//! Servers that were started, and whether they serve.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server; it is ended when this is dropped.
pub(crate) struct Server {
    child: Child,
    /// What it printed first.
    pub(crate) said: String,
}

impl Server {
    /// Starts it, and waits for its first line.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn();
        let mut child = child.map_err(|error| format!("the server: {error}"))?;
        let mut said = String::new();
        if let Some(output) = child.stdout.take() {
            let read = BufReader::new(output).read_line(&mut said);
            read.map_err(|error| format!("the server's address: {error}"))?;
        }
        let server = Self {
            child,
            said: said.trim().to_owned(),
        };
        if server.said.is_empty() {
            Err("the server ended without an address".to_owned())
        } else {
            Ok(server)
        }
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(mut self) -> Result<(), String> {
        let status = self
            .child
            .wait()
            .map_err(|error| format!("the server: {error}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the server ended with {status}"))
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It runs under timeout(1), which hands SIGTERM on; SIGKILL would leave what it started.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .stderr(Stdio::null())
            .status();
        let _ = self.child.wait();
    }
}

/// How many connections the C program is asked to serve.
pub(crate) const CLIENTS: usize = 5;

/// What the C example expects: it greets, and returns what it gets.
pub(crate) fn talk(address: &str) -> Result<(), String> {
    for client in 0..CLIENTS {
        once(address, client).map_err(|error| format!("{address}: {error}"))?;
    }
    Ok(())
}

fn once(address: &str, client: usize) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let mut greeting = [0; 6];
    stream.read_exact(&mut greeting)?;
    let message: Vec<u8> = (0..40_000).map(|index| (index * 7 + client) as u8).collect();
    let mut answer = vec![0; message.len()];
    stream.write_all(&message)?;
    stream.read_exact(&mut answer)?;
    if &greeting == b"hello\n" && answer == message {
        Ok(())
    } else {
        Err(std::io::Error::other("what came back was changed"))
    }
}
