//! Root file systems, and programs that are run in them.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::distribution::Distribution;
use crate::place::{self, Place};
use crate::tools;

/// What every one has beside the smallest system: what a C program is compiled with.
const INCLUDE: [&str; 6] = [
    "ca-certificates",
    "cmake",
    "gcc",
    "libc6-dev",
    "make",
    "pkg-config",
];

/// No step of a check takes longer, emulated or not.
const LIMIT: &str = "300";

/// The emulator, and the compiler for what it runs.
const QEMU: (&str, &str) = ("qemu-aarch64-static", "qemu-user-static");
const CROSS: (&str, &str) = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu");

/// Where programs are run.
#[derive(Debug)]
pub(crate) enum Root {
    /// In a file system of their own.
    Chroot(PathBuf),
    /// On this one, by an emulator.
    Emulated(PathBuf),
}

impl Root {
    /// Finds it, or makes it.
    ///
    /// # Errors
    /// `Ok(Err(..))` is the reason why it is left out.
    pub(crate) fn of(place: &Place, distribution: &Distribution) -> Result<Result<Self, String>, String> {
        let folder = place.root.join("target/dist-roots").join(&distribution.name);
        if distribution.emulated {
            for (tool, package) in [QEMU, CROSS] {
                if !tools::answers(Command::new(tool).arg("--version")) {
                    return Ok(Err(format!(
                        "{tool} was not found (Debian: apt install {package})"
                    )));
                }
            }
            place::make_empty(&folder)?;
            return Ok(Ok(Self::Emulated(folder)));
        }
        if !is_root() {
            return Ok(Err("chroot(2) needs root".to_owned()));
        }
        if let Some(how) = &distribution.by_hand {
            if folder.join("bin").exists() {
                return Ok(Ok(Self::Chroot(folder)));
            }
            return Ok(Err(format!(
                "no root file system: {how}, into target/dist-roots/{}",
                distribution.name
            )));
        }
        Ok(make(distribution, &folder).map(|()| Self::Chroot(folder)))
    }

    /// The folder that is its `/`.
    pub(crate) fn folder(&self) -> &Path {
        match self {
            Self::Chroot(folder) | Self::Emulated(folder) => folder,
        }
    }

    /// A program in it, by its path there.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("timeout");
        // In the foreground it signals the program once, and not its group as well.
        command.args(["--foreground", LIMIT]);
        match self {
            Self::Chroot(folder) => {
                command
                    .arg("chroot")
                    .arg(folder)
                    .arg(program)
                    .env_clear()
                    .env(
                        "PATH",
                        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                    )
                    .env("HOME", "/root")
                    .env("LC_ALL", "C");
            }
            Self::Emulated(folder) => {
                command
                    .arg(QEMU.0)
                    .args(["-L", "/usr/aarch64-linux-gnu"])
                    .arg(folder.join(program.trim_start_matches('/')));
            }
        }
        command
    }

    /// Puts a file into it.
    pub(crate) fn put(&self, path: &str, bytes: &[u8]) -> Result<(), String> {
        place::write(&self.folder().join(path.trim_start_matches('/')), bytes)
    }

    /// Whether a path is there.
    pub(crate) fn has(&self, path: &str) -> bool {
        let path = self.folder().join(path.trim_start_matches('/'));
        path.symlink_metadata().is_ok()
    }

    /// The compiler for programs of another processor, which runs outside.
    pub(crate) fn cross_compiler() -> &'static str {
        CROSS.0
    }
}

/// What a root was made of; if that changes, it is made again.
fn recipe(distribution: &Distribution) -> String {
    let mut include: Vec<&str> = INCLUDE.to_vec();
    include.extend(distribution.include.iter().map(String::as_str));
    let suite = distribution.suite.as_deref().unwrap_or_default();
    format!("{suite} {}\n", include.join(","))
}

fn make(distribution: &Distribution, folder: &Path) -> Result<(), String> {
    let recipe = recipe(distribution);
    let made = folder.with_file_name(format!("{}.made", distribution.name));
    let is_kept = place::read(&made).is_ok_and(|kept| kept == recipe);
    if is_kept && folder.join("bin").exists() {
        return Ok(());
    }
    println!(
        "dist-check: making {} with debootstrap; some minutes",
        distribution.title
    );
    place::make_empty(folder)?;
    let (suite, include) = recipe.trim().split_once(' ').unwrap_or_default();
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--include={include}")]);
    if distribution.mirror.is_some() {
        // Ubuntu's, where cmake is beside the main part.
        debootstrap.arg("--components=main,universe");
    }
    debootstrap.arg(suite).arg(folder);
    if let Some(mirror) = &distribution.mirror {
        let is_port = std::env::consts::ARCH != "x86_64";
        debootstrap.arg(distribution.ports.as_ref().filter(|_| is_port).unwrap_or(mirror));
        let scripts = Path::new("/usr/share/debootstrap/scripts");
        // An older debootstrap does not know the newest names; what it does is the same for all.
        if !scripts.join(suite).exists() {
            debootstrap.arg(scripts.join("jammy"));
        }
    }
    tools::quiet_output(&mut debootstrap)?;
    let _ = std::fs::remove_dir_all(folder.join("var/cache/apt/archives"));
    place::write(&made, recipe)
}

fn is_root() -> bool {
    tools::quiet_output(Command::new("id").arg("-u")).is_ok_and(|printed| printed.trim() == "0")
}
