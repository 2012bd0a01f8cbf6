//! Programs of the machine that are started.

use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) use quoit_host::programs::{output, quiet_output};

/// A program, how it is asked whether it is there, and how to get it.
type Tool = (&'static str, &'static [&'static str], &'static str);

/// What packing starts.
const PACKING: [Tool; 7] = [
    ("git", &["--version"], "Debian: apt install git"),
    (
        "cargo-zigbuild",
        &["--version"],
        "cargo install cargo-zigbuild --locked",
    ),
    (
        "cargo",
        &["about", "--version"],
        "cargo install cargo-about --locked --features cli",
    ),
    (
        "cargo",
        &["cyclonedx", "--version"],
        "cargo install cargo-cyclonedx --locked",
    ),
    ("dpkg-deb", &["--version"], "Debian: apt install dpkg"),
    ("rpmbuild", &["--version"], "Debian: apt install rpm"),
    ("rustup", &["--version"], "https://rustup.rs"),
];

/// What trying the packages starts besides.
const CHECKING: [Tool; 3] = [
    ("debootstrap", &["--version"], "Debian: apt install debootstrap"),
    ("chroot", &["--version"], "Debian: apt install coreutils"),
    ("skopeo", &["--version"], "Debian: apt install skopeo"),
];

/// Names what packing lacks, all at once, with how to get it, and what other ecosystems' scripts lack.
pub(crate) fn require_for_packing(triples: &[&str], others: Vec<String>) -> Result<(), String> {
    let mut missing = missing(&PACKING);
    if zig().is_none() {
        missing.push("zig: pip install ziglang, or https://ziglang.org/download".to_owned());
    }
    if let Err(error) = objcopy() {
        missing.push(error);
    }
    let installed =
        output(Command::new("rustup").args(["target", "list", "--installed"])).unwrap_or_default();
    let lacking: Vec<_> = triples
        .iter()
        .filter(|triple| !installed.lines().any(|line| line == **triple))
        .copied()
        .collect();
    if !lacking.is_empty() {
        missing.push(format!(
            "Rust's standard library for other targets: rustup target add {}",
            lacking.join(" ")
        ));
    }
    missing.extend(others);
    all_or(missing)
}

/// Names what trying the packages lacks.
pub(crate) fn require_for_checking() -> Result<(), String> {
    all_or(missing(&CHECKING))
}

fn all_or(missing: Vec<String>) -> Result<(), String> {
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("this is missing:\n  {}", missing.join("\n  ")))
}

fn missing(tools: &[Tool]) -> Vec<String> {
    let lacking = tools
        .iter()
        .filter(|(tool, arguments, _)| !answers(Command::new(tool).args(*arguments)));
    lacking
        .map(|(tool, arguments, remedy)| match arguments {
            [part, "--version"] => format!("{tool} {part}: {remedy}"),
            _ => format!("{tool}: {remedy}"),
        })
        .collect()
}

/// Whether a program is there and ends well.
pub(crate) fn answers(command: &mut Command) -> bool {
    let quiet = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    quiet.status().is_ok_and(|status| status.success())
}

/// The folder with zig's own libraries, which has their licences.
pub(crate) fn zig() -> Option<PathBuf> {
    let print = "import os, ziglang; print(os.path.dirname(ziglang.__file__))";
    if let Ok(folder) = quiet_output(Command::new("python3").args(["-c", print])) {
        return Some(PathBuf::from(folder.trim()).join("lib"));
    }
    let facts = quiet_output(Command::new("zig").arg("env")).ok()?;
    let line = facts.lines().find(|line| line.contains("lib_dir"))?;
    line.rsplit('"').nth(1).map(PathBuf::from)
}

/// The compiler's own folder.
pub(crate) fn sysroot() -> Result<PathBuf, String> {
    let printed = output(Command::new("rustc").args(["--print", "sysroot"]))?;
    Ok(PathBuf::from(printed.trim()))
}

/// The compiler's own objcopy, which knows all targets.
pub(crate) fn objcopy() -> Result<Command, String> {
    let sysroot = sysroot()?;
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or_default();
    let program = sysroot.join("lib/rustlib").join(host).join("bin/rust-objcopy");
    if !program.exists() {
        return Err("rust-objcopy: rustup update stable (it comes with Rust 1.84 and newer)".to_owned());
    }
    let mut command = Command::new(program);
    // It is linked with the compiler's LLVM, and finds that beside the compiler only.
    command.env("LD_LIBRARY_PATH", sysroot.join("lib"));
    Ok(command)
}
