//! The files of this repository.

use std::path::{Component, Path, PathBuf};

/// Folders that hold what is built or fetched.
const BUILT: [&str; 5] = ["target", "bin", "obj", "node_modules", "quoit-lab-results"];

pub(crate) fn root() -> PathBuf {
    plain(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
}

/// A path without `.` and `..`, of whatever is there.
pub(crate) fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => _ = plain.pop(),
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

/// All documents, in their order.
pub(crate) fn documents() -> Vec<PathBuf> {
    let mut documents = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().unwrap() {
            let entry = entry.unwrap();
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            // A link to a folder elsewhere is not followed.
            let kind = entry.file_type().unwrap();
            if kind.is_dir() && !name.starts_with('.') && !BUILT.contains(&name.as_ref()) {
                folders.push(path);
            } else if kind.is_file() && name.ends_with(".md") {
                documents.push(path);
            }
        }
    }
    documents.sort();
    documents
}
