//! Where messages go, and what the kernel says.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};

use quoit_kernels::message::Message;

/// What in the kernel's log is wrong.
const WARNINGS: [&str; 9] = [
    "WARNING:",
    "BUG:",
    "Oops",
    "general protection fault",
    "refcount_t:",
    "unable to handle",
    "blocked for more than",
    "self-detected stall",
    "Out of memory",
];

/// Writes messages to the second serial port.
pub(crate) struct Reporter {
    port: Mutex<File>,
    log: Mutex<Option<File>>,
}

impl Reporter {
    /// Opens the port and the kernel's log.
    pub(crate) fn open() -> Self {
        let port = OpenOptions::new().write(true).open("/dev/ttyS1");
        let log = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/kmsg");
        Self {
            port: Mutex::new(port.expect("a virtual machine of quoit-kernels has two serial ports")),
            log: Mutex::new(log.ok()),
        }
    }

    /// Tells the host.
    pub(crate) fn tell(&self, message: &Message) {
        let mut line = serde_json::to_string(message).expect("messages are plain data");
        line.push('\n');
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let _unheard = port.write_all(line.as_bytes());
    }

    /// Tells the host a line.
    pub(crate) fn say(&self, line: impl Into<String>) {
        self.tell(&Message::Says { line: line.into() });
    }

    /// Tells the host what the kernel has warned of since the last time.
    pub(crate) fn tell_warnings(&self) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(log) = log.as_mut() else { return };
        let mut record = [0; 8192];
        // One record a read; an error is the end, or records that were lost (EPIPE), of which the next read goes on.
        loop {
            match log.read(&mut record) {
                Ok(length) => {
                    let record = String::from_utf8_lossy(&record[..length]);
                    let text = record.split_once(';').map_or("", |(_, text)| text);
                    let line = text.lines().next().unwrap_or_default();
                    if WARNINGS.iter().any(|warning| line.contains(warning)) {
                        self.tell(&Message::Warns {
                            line: line.to_owned(),
                        });
                    }
                }
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return,
            }
        }
    }
}
