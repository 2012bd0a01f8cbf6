//! The shared library with a version for each of its functions, linked from what cargo has built of it.
//!
//! By these versions a program says which release's functions it needs, and the loader says which the library has (`ld.so(8)`;
//! "How To Write Shared Libraries", section 3.7). rustc links shared libraries with a list of its own, in which no function has a
//! version, and a linker takes one list.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::compile::{self, Built};
use crate::place::{self, Place};
use crate::tools;
use crate::verify::SYMBOLS;

/// Links it, and returns where it is.
pub(crate) fn shared(place: &Place, built: &Built) -> Result<PathBuf, String> {
    let folder = place.work().join("link").join(built.target.triple);
    let (versions, library) = (folder.join("versions"), folder.join("libquoit.so"));
    place::write(&versions, version_script(SYMBOLS))?;
    let named = |option: &str, path: &Path| format!("-Wl,{option}={}", path.display());
    let mut zig = compile::zig_cc(built.target);
    zig.args(["-shared", "-o"])
        .arg(&library)
        .arg("-Wl,--whole-archive")
        .arg(built.folder.join("libquoit_capi.a"))
        .arg("-Wl,--no-whole-archive")
        .arg(named("--version-script", &versions))
        // As build.rs and rustc have it.
        .args(["-Wl,-soname,libquoit.so.0", "-Wl,-z,defs,-z,now,-z,relro"])
        .args(["-Wl,--gc-sections", "-Wl,-O1", "-Wl,--build-id=sha1"])
        .args(["-lunwind", "-lc"]);
    tools::quiet_output(&mut zig)?;
    Ok(library)
}

/// What the linker is told (`VERSION` in the manual of GNU ld): each version with its functions, on the one before it. The first
/// keeps all else within the library.
fn version_script(symbols: &str) -> String {
    let mut versions = BTreeMap::<_, Vec<_>>::new();
    for line in symbols.lines().filter_map(|line| line.strip_prefix(' ')) {
        if let Some((function, version)) = line.split(' ').next().and_then(|name| name.split_once('@')) {
            versions
                .entry(order_of(version))
                .or_default()
                .push((function, version));
        }
    }
    let mut script = String::new();
    let mut before: Option<&str> = None;
    for functions in versions.values() {
        let version = functions[0].1;
        let _ = writeln!(script, "{version} {{\n  global:");
        for (function, _) in functions {
            let _ = writeln!(script, "    {function};");
        }
        match before.replace(version) {
            None => script.push_str("  local:\n    *;\n};\n"),
            Some(before) => {
                let _ = writeln!(script, "}} {before};");
            }
        }
    }
    script
}

/// `QUOIT_0.10` is newer than `QUOIT_0.9`.
fn order_of(version: &str) -> Vec<u32> {
    version
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|number| number.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_stands_on_the_one_before_it() {
        let symbols = "libquoit.so.0 libquoit0 #MINVER#\n quoit_turn@QUOIT_0.9 0.9.0\n quoit_new@QUOIT_0.10 0.10.2\n \
                       quoit_fd@QUOIT_0.9 0.9.0\n";
        assert_eq!(
            version_script(symbols),
            "QUOIT_0.9 {\n  global:\n    quoit_turn;\n    quoit_fd;\n  local:\n    *;\n};\n\
             QUOIT_0.10 {\n  global:\n    quoit_new;\n} QUOIT_0.9;\n"
        );
    }

    /// The version of a function is that of the release that had it first, without the patch.
    #[test]
    fn the_list_names_the_versions_of_releases() {
        for line in SYMBOLS.lines().filter_map(|line| line.strip_prefix(' ')) {
            let (name, release) = line.split_once(' ').expect("a name and a release");
            let (_, version) = name.split_once('@').expect("a function and its version");
            let minor = release.rsplit_once('.').expect("a release has three numbers").0;
            assert_eq!(version, format!("QUOIT_{minor}"), "{line}");
        }
    }
}
