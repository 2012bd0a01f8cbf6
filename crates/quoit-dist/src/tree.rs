//! The files of a package, in memory. Order, owners, times and permissions are fixed, so that the same contents are the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::place;

/// What a path is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    File { bytes: Vec<u8>, is_program: bool },
    Link(String),
}

/// Paths, without a slash before them, and what they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree(pub(crate) BTreeMap<String, Entry>);

impl Tree {
    pub(crate) fn add(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        let entry = Entry::File {
            bytes: bytes.into(),
            is_program: false,
        };
        self.0.insert(path.into(), entry);
    }

    pub(crate) fn add_program(&mut self, path: impl Into<String>, bytes: impl Into<Vec<u8>>) {
        let entry = Entry::File {
            bytes: bytes.into(),
            is_program: true,
        };
        self.0.insert(path.into(), entry);
    }

    pub(crate) fn add_link(&mut self, path: impl Into<String>, to: impl Into<String>) {
        self.0.insert(path.into(), Entry::Link(to.into()));
    }

    pub(crate) fn add_all(&mut self, folder: &str, other: Self) {
        let moved = other
            .0
            .into_iter()
            .map(|(path, entry)| (format!("{folder}/{path}"), entry));
        self.0.extend(moved);
    }

    /// The folders that the files are in, each before what is in it.
    pub(crate) fn folders(&self) -> Vec<String> {
        let mut folders = std::collections::BTreeSet::new();
        for path in self.0.keys() {
            let mut rest = path.as_str();
            while let Some((folder, _)) = rest.rsplit_once('/') {
                folders.insert(folder.to_owned());
                rest = folder;
            }
        }
        folders.into_iter().collect()
    }

    /// How large the files are, together.
    pub(crate) fn size(&self) -> u64 {
        let sizes = self.0.values().map(|entry| match entry {
            Entry::File { bytes, .. } => bytes.len() as u64,
            Entry::Link(_) => 0,
        });
        sizes.sum()
    }

    /// Writes everything into a folder, whatever the caller's umask is.
    pub(crate) fn write_to(&self, folder: &Path) -> Result<(), String> {
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|error| failed(path, error))
        };
        place::make(folder)?;
        mode(folder, 0o755)?;
        for inner in self.folders() {
            let inner = folder.join(inner);
            place::make(&inner)?;
            mode(&inner, 0o755)?;
        }
        for (path, entry) in &self.0 {
            let path = folder.join(path);
            match entry {
                Entry::File { bytes, is_program } => {
                    place::write(&path, bytes)?;
                    mode(&path, if *is_program { 0o755 } else { 0o644 })?;
                }
                Entry::Link(to) => symlink(to, &path).map_err(|error| failed(&path, error))?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_what_is_in_them() {
        let mut tree = Tree::default();
        tree.add("usr/lib/x/a", "1");
        tree.add("usr/bin/b", "22");
        assert_eq!(tree.folders(), ["usr", "usr/bin", "usr/lib", "usr/lib/x"]);
        assert_eq!(tree.size(), 3);
    }

    #[test]
    fn what_is_written_is_what_was_added() {
        let folder = tempfile::tempdir().unwrap();
        let mut tree = Tree::default();
        tree.add_program("bin/run", "it");
        tree.add("share/text", "text");
        tree.add_link("share/link", "text");
        tree.write_to(folder.path()).unwrap();
        let mode = |path: &str| {
            fs::metadata(folder.path().join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o777
        };
        assert_eq!(mode("bin/run"), 0o755);
        assert_eq!(mode("share/text"), 0o644);
        assert_eq!(
            fs::read_to_string(folder.path().join("share/link")).unwrap(),
            "text"
        );
    }
}
