//! Kernels: fetched once, checked, and unpacked.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use quoit_kernels::list::Kernel;

use crate::tools;

/// The image of a kernel, fetched if it is not in `folder` yet.
///
/// # Errors
/// Why it cannot be had, and what to do, as a sentence.
pub(crate) fn image(kernel: &Kernel, folder: &Path) -> Result<PathBuf, String> {
    let (Some(from), Some(sum)) = (&kernel.from, &kernel.sha256) else {
        return Err(kernel.by_hand.clone().unwrap_or_default());
    };
    // By its checksum, so that a new version is another file.
    let image = folder.join(format!("{}-{}.vmlinuz", kernel.name, &sum[..12]));
    if image.exists() {
        return Ok(image);
    }
    let package = folder
        .join("packages")
        .join(from.rsplit('/').next().unwrap_or(from));
    fs::create_dir_all(folder.join("packages")).map_err(|error| format!("{}: {error}", folder.display()))?;
    if !package.exists() {
        download(from, &package)?;
    }
    check(&package, sum)?;
    unpack(&package, &image)?;
    Ok(image)
}

fn download(from: &str, package: &Path) -> Result<(), String> {
    eprintln!("fetching {from}");
    let partial = package.with_extension("partial");
    let mut curl = Command::new("curl");
    curl.args(["--fail", "--silent", "--show-error", "--location", "--retry", "3"])
        .args(["--connect-timeout", "20", "--max-time", "900", "--output"])
        .arg(&partial)
        .arg(from);
    tools::output(&mut curl).map_err(|error| {
        format!(
            "not fetched: {error}; if the archive has dropped this version, bring lab/kernels/list.toml up to date, or \
             put the package at {}",
            package.display()
        )
    })?;
    fs::rename(&partial, package).map_err(|error| format!("{}: {error}", package.display()))
}

fn check(package: &Path, expected: &str) -> Result<(), String> {
    let printed = tools::output(Command::new("sha256sum").arg(package))?;
    let sum = printed.split_whitespace().next().unwrap_or_default();
    if sum == expected {
        return Ok(());
    }
    Err(format!(
        "{} has the checksum {sum}, and not {expected}; remove it to fetch it again",
        package.display()
    ))
}

/// Takes `vmlinuz` (or `vmlinuz.unsigned`) out of a package, wherever it lies there.
fn unpack(package: &Path, image: &Path) -> Result<(), String> {
    let failed = |error| format!("{}: {error}", package.display());
    let mut archive = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let partial = image.with_extension("partial");
    let unpacked = Command::new("tar")
        .args(["--extract", "--to-stdout", "--wildcards", "*/vmlinuz*"])
        .stdin(archive.stdout.take().map_or_else(Stdio::null, Stdio::from))
        .stdout(fs::File::create(&partial).map_err(failed)?)
        .status()
        .map_err(failed)?;
    let packed = archive.wait().map_err(failed)?;
    let length = fs::metadata(&partial).map_or(0, |found| found.len());
    if !unpacked.success() || !packed.success() || length == 0 {
        return Err(format!("{} has no vmlinuz inside", package.display()));
    }
    fs::rename(&partial, image).map_err(failed)
}
