//! One stream that pushes as fast as it is taken: `/bytes/N` over one connection.

use std::io;
use std::thread;

use super::error::{LabError, Result};
use super::http;
use super::measure::{Figures, Rig, Usage};
use super::placement;
use super::server::Server;

/// Length of the timed stream: two seconds or so, as long as the other runs.
const STREAM_BYTES: u64 = 4 << 30;
/// Length of the stream before it.
const WARM_UP_BYTES: u64 = 64 << 20;
/// Warms a server up for [`measure`].
pub(crate) fn warm(rig: &Rig, server: &Server) -> Result<()> {
    fetch_pinned(rig, server, WARM_UP_BYTES)
}

/// Reads one stream from the server; the unit is a mebibyte. The content is the tests' affair: checking
/// it here would take the core from the server.
pub(crate) fn measure(rig: &Rig, server: &Server) -> Result<Figures> {
    let before = Usage::of(server)?;
    fetch_pinned(rig, server, STREAM_BYTES)?;
    before.figures(server, (STREAM_BYTES >> 20) as f64)
}

/// Reads from a thread of its own, because only that is bound to the generator's core.
fn fetch_pinned(rig: &Rig, server: &Server, bytes: u64) -> Result<()> {
    let (address, core) = (server.address(), rig.cores.generator);
    let reader = thread::spawn(move || {
        placement::pin_thread(&[core])?;
        match http::get(address, &format!("/bytes/{bytes}"), |_| {})? {
            length if length == bytes => Ok(()),
            length => Err(io::Error::other(format!("the stream has {length} bytes"))),
        }
    });
    let outcome = reader
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the reader panicked")));
    outcome.map_err(LabError::io(format!(
        "reading {bytes} bytes from {}",
        server.name()
    )))
}
