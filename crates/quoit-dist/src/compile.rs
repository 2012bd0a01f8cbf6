//! The library and the program, by cargo-zigbuild: zig has every glibc's symbols and musl itself, for every processor.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{self, Place};
use crate::target::{Libc, Target, of};
use crate::tools;

/// What was built for a target.
pub(crate) struct Built {
    pub(crate) target: Target,
    /// Where it lies.
    pub(crate) folder: PathBuf,
}

/// Builds the library for each target.
pub(crate) fn libraries(place: &Place) -> Result<Vec<Built>, String> {
    shared(place, "quoit-capi")
}

/// Builds what Java calls it by.
pub(crate) fn jni(place: &Place) -> Result<Vec<Built>, String> {
    shared(place, "quoit-jni")
}

fn shared(place: &Place, package: &str) -> Result<Vec<Built>, String> {
    let mut built = build(place, package, "library", Libc::Gnu, &[])?;
    // A shared library cannot be static; and a static one that brought musl along would clash with the program's.
    built.extend(build(
        place,
        package,
        "library",
        Libc::Musl,
        &["-Ctarget-feature=-crt-static"],
    )?);
    Ok(built)
}

/// Builds the program, static, for each processor.
pub(crate) fn programs(place: &Place) -> Result<Vec<Built>, String> {
    build(place, "quoit-cli", "program", Libc::Musl, &[])
}

fn build(
    place: &Place,
    package: &str,
    folder: &str,
    libc: Libc,
    flags: &[&str],
) -> Result<Vec<Built>, String> {
    let folder = place.cargo().join(folder);
    let mut command = Command::new("cargo");
    command
        .current_dir(&place.root)
        .args([
            "zigbuild",
            "--quiet",
            "--release",
            "--locked",
            "--package",
            package,
        ])
        .arg("--target-dir")
        .arg(&folder)
        .env("SOURCE_DATE_EPOCH", place.epoch.to_string())
        .env("CARGO_INCREMENTAL", "0")
        .env("ZIG_GLOBAL_CACHE_DIR", ZIG_CACHE)
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            rust_flags(place, flags)?.join("\u{1f}"),
        )
        .env_remove("RUSTFLAGS");
    make_zig_cache()?;
    for target in of(libc) {
        prepare_zig(target)?;
        command.arg("--target").arg(target.zig());
    }
    tools::output(&mut command)?;
    Ok(of(libc)
        .map(|target| Built {
            target,
            folder: folder.join(target.triple).join("release"),
        })
        .collect())
}

/// Where zig compiles its own parts. Their debugging information names the folder, and so does what the linker makes the build's
/// identity of: it has to be the same for every checkout.
const ZIG_CACHE: &str = "/tmp/quoit-dist-zig";

/// Makes that folder, which belongs to this user alone: what lies in it is linked into packages.
fn make_zig_cache() -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{ZIG_CACHE}: {error}");
    let mut folder = fs::DirBuilder::new();
    match folder.mode(0o700).create(ZIG_CACHE) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let found = fs::symlink_metadata(ZIG_CACHE).map_err(failed)?;
    let user = fs::metadata("/proc/self").map_err(failed)?.uid();
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(format!(
            "{ZIG_CACHE} belongs to somebody else, or others may write to it: remove it, and it is made anew"
        ));
    }
    Ok(())
}

/// Has zig compile all of it anew.
pub(crate) fn forget_zig_cache() -> Result<(), String> {
    match fs::remove_dir_all(ZIG_CACHE) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(format!("{ZIG_CACHE}: {error}")),
        _ => Ok(()),
    }
}

/// Has zig compile its own parts for a target, the unwinder and musl among them. Their debugging information names the working
/// folder, and cargo would have that be the checkout's.
fn prepare_zig(target: Target) -> Result<(), String> {
    let folder = Path::new(ZIG_CACHE).join("prepared");
    let (source, library) = (
        folder.join("empty.c"),
        folder.join(format!("{}.so", target.triple)),
    );
    if library.exists() {
        return Ok(());
    }
    place::write(&source, "int main(void) { return 0; }\n")?;
    let link = |kind: &str, to: &Path| {
        let mut zig = zig_cc(target);
        zig.args([kind, "-lunwind", "-o"]).arg(to).arg(&source);
        tools::quiet_output(&mut zig).map(drop)
    };
    if target.libc == Libc::Musl {
        link("-static", &folder.join(target.triple))?;
    }
    link("-shared", &library)
}

/// zig's C compiler and linker for a target, at work outside of the checkout.
pub(crate) fn zig_cc(target: Target) -> Command {
    let name = target.zig().replace("-unknown", "");
    let mut zig = Command::new("cargo-zigbuild");
    zig.current_dir("/").env("ZIG_GLOBAL_CACHE_DIR", ZIG_CACHE).args([
        "zig",
        "cc",
        "--",
        "-g",
        "-fno-sanitize=all",
        "-target",
        &name,
    ]);
    zig
}

/// No file may tell where it was built, and a build elsewhere has to give the same bytes.
fn rust_flags(place: &Place, more: &[&str]) -> Result<Vec<String>, String> {
    let home = std::env::var_os("CARGO_HOME").map_or_else(
        || {
            std::env::home_dir()
                .map(|home| home.join(".cargo"))
                .ok_or("there is no home folder, and CARGO_HOME is not set")
        },
        |home| Ok(PathBuf::from(home)),
    )?;
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec![
        remap(&place.root, "/quoit"),
        remap(&home.join("registry/src"), "/crates"),
        // The last that fits is taken, and the folder may lie within the checkout.
        remap(&place.cargo(), "/build"),
        // By which debuggers find the file with the debugging information.
        "-Clink-arg=-Wl,--build-id=sha1".to_owned(),
    ];
    flags.extend(more.iter().map(|flag| (*flag).to_owned()));
    Ok(flags)
}
