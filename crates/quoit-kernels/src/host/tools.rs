//! Programs of the machine that are started.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) use quoit_host::programs::output;

/// What is started, and the package of Debian's that has it.
const TOOLS: [(&str, &str); 9] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("setpriv", "util-linux"),
    ("curl", "curl"),
    ("sha256sum", "coreutils"),
    ("dpkg-deb", "dpkg"),
    ("tar", "tar"),
    ("ldd", "libc-bin"),
    ("strip", "binutils"),
    ("busybox", "busybox-static"),
];

/// Names the programs that are missing, all at once.
pub(crate) fn require() -> Result<(), String> {
    let missing: Vec<_> = TOOLS
        .iter()
        .filter(|(tool, _)| {
            let mut version = Command::new(tool);
            version
                .arg("--version")
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            version.status().is_err()
        })
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = missing.iter().map(|(tool, _)| *tool).collect();
    let packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    Err(format!(
        "{} not found (Debian: apt install {})",
        names.join(" and "),
        packages.join(" ")
    ))
}

/// The files of a folder and of those in it.
pub(crate) fn files_below(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(files_below(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}
