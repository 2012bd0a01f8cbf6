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
use std::sync::{Mutex, PoisonError};

/// The Unix socket where successors connect. It is removed with this value.
#[derive(Debug)]
pub(super) struct Claim {
    listener: UnixListener,
    /// Where it is until it is put in its place, or for ever.
    own: PathBuf,
    path: PathBuf,
    identity: (u64, u64),
    /// The path is a successor's, which may put its own there at any moment.
    is_left: Mutex<bool>,
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let file = fs::symlink_metadata(path)?;
    Ok((file.dev(), file.ino()))
}

/// Removes a file, unless the path names another one by now. One that stays is found stale.
fn remove(path: &Path, known: (u64, u64)) {
    if identity(path).is_ok_and(|found| found == known) {
        let _ = fs::remove_file(path);
    }
}

/// The file of a Unix socket that was handed over. It stays until it is removed: as long as the predecessor may serve on,
/// it is that one's.
#[derive(Debug)]
struct HandedFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl HandedFile {
    /// None if it is not there any more, or cannot be told: the two processes may have started in different folders.
    fn at(path: &Path) -> Option<Self> {
        let identity = path.is_absolute().then(|| identity(path))?.ok()?;
        Some(Self {
            path: path.to_owned(),
            identity,
        })
    }

    /// Removes it, unless the path names another file by then.
    fn remove(&self) {
        remove(&self.path, self.identity);
    }
}

impl Claim {
    /// As [`Claim::new`].
    ///
    /// # Errors
    /// One line: no socket can be made there.
    pub(super) fn at(path: &Path) -> Result<Self, String> {
        Self::new(path)
            .map_err(|error| format!("--hand-over {}: cannot listen there: {error}", path.display()))
    }

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
            is_left: Mutex::new(false),
        };
        // Whoever connects before that is asked for its user all the same.
        fs::set_permissions(&claim.own, fs::Permissions::from_mode(0o600))?;
        Ok(claim)
    }

    /// Takes the path, whoever had it: connections to it come here from now on, and at no moment nowhere.
    fn place(&self) -> io::Result<()> {
        fs::rename(&self.own, &self.path)
    }

    /// Leaves the path to a successor, which is told so after this: to look whose file is there and to remove it are two
    /// steps, and the successor's might come between them.
    fn leave(&self) {
        *self.is_left.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Removes the file, unless the path is left to a successor. What a successor leaves there that comes to nothing is found
    /// stale.
    fn remove(&self) {
        let is_left = self.is_left.lock().unwrap_or_else(PoisonError::into_inner);
        let path = (!*is_left).then_some(&self.path);
        for path in [Some(&self.own), path].into_iter().flatten() {
            remove(path, self.identity);
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// A process that has its path, and the folder that both are in.
    fn placed() -> (tempfile::TempDir, Claim) {
        let folder = tempfile::tempdir().unwrap();
        let claim = Claim::new(&folder.path().join("hand-over")).unwrap();
        claim.place().unwrap();
        (folder, claim)
    }

    #[test]
    fn a_path_that_is_left_to_a_successor_is_not_removed() {
        let (_folder, old) = placed();
        let path = old.path.clone();
        old.leave();
        old.remove();
        assert_eq!(identity(&path).unwrap(), old.identity);
        drop(old);
        assert!(path.exists());
    }

    #[test]
    fn who_has_no_successor_removes_its_own_file_alone() {
        let (folder, old) = placed();
        let (path, own) = (old.path.clone(), folder.path().join("other"));
        // Not by `new`, which names it after the process.
        let other = Claim {
            listener: UnixListener::bind(&own).unwrap(),
            identity: identity(&own).unwrap(),
            own,
            path: path.clone(),
            is_left: Mutex::new(false),
        };
        other.place().unwrap();
        old.remove();
        assert_eq!(identity(&path).unwrap(), other.identity);
        other.remove();
        assert!(!path.exists());
    }
}
