//! Handing the listening sockets over to a new process: `--hand-over PATH`.
//!
//! The process that serves listens on a Unix socket at PATH. One that is started with the same PATH connects to it, and is
//! sent the listening sockets. It serves on them, and says so; then the old one stops accepting, and drains. At each moment
//! somebody accepts, and the queue of connections that the kernel keeps for a listening socket is the same for both, so no
//! client is refused. The protocol is in `docs/restarts.md`.

mod give;
mod take;
mod wire;

pub(super) use give::{Giver, Offer, Use};
pub(super) use take::{Taken, take};

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The Unix socket where successors connect.
#[derive(Debug)]
struct Claim {
    listener: UnixListener,
    /// Where it is until it is put in its place, or for ever.
    own: PathBuf,
    path: PathBuf,
    identity: (u64, u64),
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

impl Claim {
    /// Makes the socket beside the path, which whoever has it keeps: here is all that may fail.
    fn new(path: &Path) -> io::Result<Self> {
        // In the same folder, as it is renamed. The working directory may change.
        let path = std::path::absolute(path)?;
        let mut own = path.as_os_str().to_owned();
        own.push(format!(".{}", std::process::id()));
        let own = PathBuf::from(own);
        // Of an earlier process with this number.
        let _ = fs::remove_file(&own);
        let listener = UnixListener::bind(&own)?;
        let claim = Self {
            identity: identity(&own)?,
            listener,
            own,
            path,
        };
        // Whoever connects before that is asked for its user all the same.
        fs::set_permissions(&claim.own, fs::Permissions::from_mode(0o600))?;
        Ok(claim)
    }

    /// Takes the path, whoever had it: connections to it come here from now on, and at no moment nowhere.
    fn place(&self) -> io::Result<()> {
        fs::rename(&self.own, &self.path)
    }

    /// Removes the file, unless a successor has put its own there.
    fn remove(&self) {
        for path in [&self.own, &self.path] {
            if identity(path).is_ok_and(|found| found == self.identity) {
                // One that stays is found stale.
                let _ = fs::remove_file(path);
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.remove();
    }
}
