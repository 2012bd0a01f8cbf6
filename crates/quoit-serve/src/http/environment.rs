//! What the connections of one loop share.

use std::time::SystemTime;

use serde::Serialize;

use super::respond::Responder;
use super::routes::Probe;
use super::target::JudgedHost;
use super::{DEFAULT_MAX_ECHO_BODY_BYTES, MAX_HEAD_BYTES};

/// Spare head buffers kept by a loop: at most 1 MiB of them. They are used while a head arrives in pieces.
const MAX_SPARE_HEADS: usize = 64;

/// What can be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpConfig {
    /// Largest body of `/echo`, in bytes; past it: 413, or an early close when the response has begun.
    /// Default: [`DEFAULT_MAX_ECHO_BODY_BYTES`].
    pub(crate) max_echo_body_bytes: u64,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            max_echo_body_bytes: DEFAULT_MAX_ECHO_BODY_BYTES,
        }
    }
}

/// What the program says of itself, to those who observe it.
pub(crate) trait Observed {
    /// Appends the text of `/metrics` to an empty string.
    fn metrics(&mut self, text: &mut String);

    /// Appends to an empty string what speaks against sending it new clients, if anything does.
    fn unready(&mut self, reason: &mut String);

    /// Appends to an empty string why only a new start helps, if that is so.
    fn stuck(&mut self, reason: &mut String);
}

/// The state that the connections of one loop share: the configuration, the prepared responses with the
/// present date, and buffers that are used again.
pub(crate) struct Environment {
    pub(super) config: HttpConfig,
    pub(super) responder: Responder,
    pub(super) judged_host: JudgedHost,
    draining: bool,
    closes_idle: bool,
    /// Every response closes its connection.
    closes: bool,
    observed: Box<dyn Observed>,
    /// What it has said last.
    said: String,
    json: Vec<u8>,
    spare_heads: Vec<Vec<u8>>,
}

impl Environment {
    /// An environment whose responses are dated `now` until [`set_time`](Self::set_time) says otherwise.
    pub(crate) fn new(config: HttpConfig, now: SystemTime, observed: Box<dyn Observed>) -> Self {
        Self {
            config,
            responder: Responder::new(now),
            judged_host: JudgedHost::default(),
            draining: false,
            closes_idle: false,
            closes: false,
            observed,
            said: String::new(),
            json: Vec::with_capacity(64),
            spare_heads: Vec::with_capacity(MAX_SPARE_HEADS),
        }
    }

    /// Sets the time that the Date field of the responses says. Formats only when the second changed; to
    /// be called once a turn or once a second.
    pub(crate) fn set_time(&mut self, now: SystemTime) {
        self.responder.set_time(now);
    }

    /// From now on `/healthz` answers 503, and every response closes its connection.
    pub(crate) fn start_draining(&mut self) {
        self.draining = true;
    }

    /// From now on a connection between two requests says [`Next::Close`](super::Next::Close) when it is next called,
    /// with no input too.
    pub(crate) fn close_idle(&mut self) {
        self.closes_idle = true;
    }

    /// Whether connections between two requests close.
    pub(super) fn closes_idle(&self) -> bool {
        self.closes_idle
    }

    /// From now on every response closes its connection.
    pub(crate) fn close_after_each(&mut self) {
        self.closes = true;
    }

    /// Whether a connection may stay open after a response.
    pub(super) fn keeps_connections(&self) -> bool {
        !self.draining && !self.closes
    }

    /// Whether the server drains.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining
    }

    /// The body of `/metrics`.
    pub(super) fn metrics(&mut self) -> (&Responder, &str) {
        self.said.clear();
        self.observed.metrics(&mut self.said);
        (&self.responder, &self.said)
    }

    /// What a probe is answered: nothing speaks against it, or this does.
    pub(super) fn probe(&mut self, probe: Probe) -> (&Responder, Result<(), &str>) {
        self.said.clear();
        match probe {
            Probe::Health if self.draining => self.said.push_str("draining"),
            Probe::Health => {}
            Probe::Ready => self.observed.unready(&mut self.said),
            Probe::Live => self.observed.stuck(&mut self.said),
        }
        let said = if self.said.is_empty() {
            Ok(())
        } else {
            Err(&self.said[..])
        };
        (&self.responder, said)
    }

    /// The body of `/json`, serialised anew as TechEmpower's rules ask.
    pub(super) fn json(&mut self) -> (&Responder, &[u8]) {
        #[derive(Serialize)]
        struct Message {
            message: &'static str,
        }
        self.json.clear();
        serde_json::to_writer(
            &mut self.json,
            &Message {
                message: "Hello, World!",
            },
        )
        .expect("serialising a constant text into memory cannot fail");
        (&self.responder, &self.json)
    }

    /// An empty buffer for a head that arrives in pieces.
    pub(super) fn take_head_buffer(&mut self) -> Vec<u8> {
        self.spare_heads.pop().unwrap_or_default()
    }

    /// Takes a head buffer back for the next connection that needs one.
    pub(super) fn return_head_buffer(&mut self, mut buffer: Vec<u8>) {
        debug_assert!(buffer.len() <= MAX_HEAD_BYTES);
        if buffer.capacity() > 0 && self.spare_heads.len() < MAX_SPARE_HEADS {
            buffer.clear();
            self.spare_heads.push(buffer);
        }
    }
}
