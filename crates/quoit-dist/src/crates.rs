//! The crates that Rust's users need.

use std::process::Command;

use crate::place::{self, Place};
use crate::tools;

/// In the order in which they are published.
pub(crate) const PUBLISHED: [&str; 2] = ["quoit", "quoit-async"];

/// Packs them, and goes through publishing up to the upload, in which the registry's rules are looked at; returns their names. They
/// are compiled where they are tried, by `make dist-check`.
pub(crate) fn write(place: &Place) -> Result<Vec<String>, String> {
    let folder = place.cargo().join("crates");
    for arguments in [&["package"][..], &["publish", "--dry-run"]] {
        let mut cargo = Command::new("cargo");
        cargo
            .current_dir(&place.root)
            .args(arguments)
            .args(["--quiet", "--locked", "--no-verify", "--target-dir"])
            .arg(&folder);
        for name in PUBLISHED {
            cargo.args(["--package", name]);
        }
        if place.is_dirty {
            cargo.arg("--allow-dirty");
        }
        tools::quiet_output(&mut cargo)?;
    }
    let mut names = Vec::new();
    for name in PUBLISHED {
        let file = format!("{name}-{}.crate", place.version);
        let bytes = place::bytes(&folder.join("package").join(&file))?;
        place::write(&place.out().join(&file), bytes)?;
        names.push(file);
    }
    Ok(names)
}
