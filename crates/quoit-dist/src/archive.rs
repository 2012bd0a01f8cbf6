//! Archives, as tar and gzip make them, but with nothing in them that differs from build to build.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};

use crate::tree::{Entry, Tree};

/// An archive in which all files are in one folder; without a folder if the name is empty.
pub(crate) fn tar(folder: &str, tree: &Tree, epoch: u64) -> Result<Vec<u8>, String> {
    let mut inner = Tree::default();
    if folder.is_empty() {
        inner = tree.clone();
    } else {
        inner.add_all(folder, tree.clone());
    }
    let mut archive = tar::Builder::new(Vec::new());
    let failed = |error: std::io::Error| format!("an archive: {error}");
    // Sorted by path, folders among files, as `tar --sort=name` has them.
    let mut paths: BTreeMap<String, Option<Entry>> = inner
        .folders()
        .into_iter()
        .map(|path| (format!("{path}/"), None))
        .collect();
    paths.extend(inner.0.into_iter().map(|(path, entry)| (path, Some(entry))));
    for (path, entry) in paths {
        let mut header = tar::Header::new_gnu();
        header.set_mtime(epoch);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(0);
        let done = match entry {
            None => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_mode(0o755);
                archive.append_data(&mut header, path, std::io::empty())
            }
            Some(Entry::Link(to)) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                archive.append_link(&mut header, path, to)
            }
            Some(Entry::File { bytes, is_program }) => {
                header.set_mode(if is_program { 0o755 } else { 0o644 });
                header.set_size(bytes.len() as u64);
                archive.append_data(&mut header, path, bytes.as_slice())
            }
        };
        done.map_err(failed)?;
    }
    archive.into_inner().map_err(failed)
}

/// Compresses, without a name or a time.
pub(crate) fn gzip(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut encoder: GzEncoder<Vec<u8>> = GzBuilder::new().write(Vec::new(), Compression::best());
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.map_err(|error| format!("compressing: {error}"))
}

/// What a compressed archive holds.
pub(crate) fn open(compressed: &[u8]) -> Result<Tree, String> {
    let failed = |error: std::io::Error| error.to_string();
    let mut tree = Tree::default();
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(compressed));
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let path = entry.path().map_err(failed)?.to_string_lossy().into_owned();
        let kind = entry.header().entry_type();
        if let Some(to) = entry.link_name().map_err(failed)? {
            tree.add_link(path, to.to_string_lossy());
        } else if kind.is_file() {
            let is_program = entry.header().mode().map_err(failed)? & 0o111 != 0;
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(failed)?;
            tree.0.insert(path, Entry::File { bytes, is_program });
        } else if !kind.is_dir() {
            return Err(format!("{path} is neither a file nor a folder nor a link"));
        }
    }
    Ok(tree)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        tree.add_program("bin/run", "it");
        tree.add(format!("share/{}", "long/".repeat(40)), "text");
        tree.add_link("share/link", "text");
        tree
    }

    #[test]
    fn an_archive_holds_what_was_put_in_and_is_the_same_each_time() {
        let mut tree = tree();
        tree.0.retain(|path, _| !path.ends_with('/'));
        tree.add(format!("share/{}end", "long/".repeat(40)), "text");
        let packed = gzip(&tar("all-1", &tree, 7).unwrap()).unwrap();
        let mut expected = Tree::default();
        expected.add_all("all-1", tree.clone());
        assert_eq!(open(&packed).unwrap(), expected);
        assert_eq!(gzip(&tar("all-1", &tree, 7).unwrap()).unwrap(), packed);
        assert_ne!(gzip(&tar("all-1", &tree, 8).unwrap()).unwrap(), packed);
    }

    #[test]
    fn what_is_cut_off_is_no_archive() {
        let mut tree = tree();
        tree.0.retain(|path, _| !path.ends_with('/'));
        let packed = gzip(&tar("all-1", &tree, 7).unwrap()).unwrap();
        open(&packed[..packed.len() / 2]).unwrap_err();
    }
}
