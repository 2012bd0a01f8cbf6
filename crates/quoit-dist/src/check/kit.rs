//! How each kind of package is installed and found.

use std::process::Command;

use super::distribution::Kind;
use super::root::Root;
use crate::archive;
use crate::place::{self, Place};
use crate::target::{self, Libc, Target};
use crate::tools;

/// Where archives are unpacked.
const OPT: &str = "/opt/quoit-of-an-archive";
/// Where packages lie to be installed.
const PACKAGES: &str = "/tmp/quoit-packages";

/// A kind of package, for what a root can run.
pub(crate) struct Kit<'check> {
    pub(crate) place: &'check Place,
    pub(crate) root: &'check Root,
    pub(crate) kind: Kind,
}

impl Kit<'_> {
    fn target(&self) -> Target {
        let libc = if self.kind == Kind::Musl {
            Libc::Musl
        } else {
            Libc::Gnu
        };
        let arch = match self.root {
            Root::Emulated(_) => "aarch64",
            Root::Chroot(_) => std::env::consts::ARCH,
        };
        target::of(libc)
            .find(|target| target.arch == arch)
            .unwrap_or(target::ALL[0])
    }

    /// The program.
    pub(crate) fn program(&self) -> String {
        match self.kind {
            Kind::Deb | Kind::Rpm => "/usr/bin/quoit".to_owned(),
            Kind::Archive | Kind::Musl => format!("{OPT}/bin/quoit"),
        }
    }

    /// Where the library is.
    pub(crate) fn lib(&self) -> String {
        match self.kind {
            Kind::Deb => format!("/usr/lib/{}", self.target().multiarch),
            Kind::Rpm => "/usr/lib64".to_owned(),
            Kind::Archive | Kind::Musl => format!("{OPT}/lib"),
        }
    }

    /// Whether the system looks into that folder by itself.
    pub(crate) fn is_found(&self) -> bool {
        match self.kind {
            Kind::Deb => true,
            // Where rpm is the system's own.
            Kind::Rpm => !self.root.has("/etc/debian_version"),
            Kind::Archive | Kind::Musl => false,
        }
    }

    /// The C compiler there.
    pub(crate) fn compiler(&self) -> &'static str {
        let is_debian = self.root.has("/etc/debian_version");
        if self.kind == Kind::Musl && is_debian {
            "musl-gcc"
        } else {
            "cc"
        }
    }

    /// The packages, by their names in the output.
    fn files(&self) -> Vec<String> {
        let (version, target) = (&self.place.version, self.target());
        match self.kind {
            Kind::Deb => ["quoit", "libquoit0", "libquoit-dev"]
                .map(|name| format!("{name}_{version}_{}.deb", target.deb))
                .to_vec(),
            Kind::Rpm => ["quoit", "libquoit0", "libquoit-devel"]
                .map(|name| format!("{name}-{version}-1.{}.rpm", target.arch))
                .to_vec(),
            Kind::Archive | Kind::Musl => vec![
                format!("quoit-{version}-{}-unknown-linux-musl.tar.gz", target.arch),
                format!("libquoit-{version}-{}.tar.gz", target.triple),
            ],
        }
    }

    pub(crate) fn install(&self) -> Result<(), String> {
        let files = self.files();
        if let Root::Emulated(folder) = self.root {
            for file in &files {
                let mut unpack = Command::new("dpkg-deb");
                unpack.arg("-x").arg(self.place.out().join(file)).arg(folder);
                tools::quiet_output(&mut unpack)?;
            }
            return Ok(());
        }
        match self.kind {
            Kind::Deb => self.with_packages("/usr/bin/dpkg", &["--install"], &files),
            // On Debian, rpm knows of no package that is installed.
            Kind::Rpm if !self.is_found() => {
                self.with_packages("/usr/bin/rpm", &["--install", "--nodeps"], &files)
            }
            Kind::Rpm => self.with_packages("/usr/bin/rpm", &["--install"], &files),
            Kind::Archive | Kind::Musl => {
                self.remove(OPT)?;
                for file in &files {
                    let name = file.trim_end_matches(".tar.gz");
                    let tree = archive::open(&place::bytes(&self.place.out().join(file))?)?;
                    let mut inner = crate::tree::Tree::default();
                    for (path, entry) in tree.0 {
                        let path = path.strip_prefix(&format!("{name}/")).unwrap_or(&path).to_owned();
                        inner.0.insert(path, entry);
                    }
                    inner.write_to(&self.root.folder().join(OPT.trim_start_matches('/')))?;
                }
                Ok(())
            }
        }
    }

    fn with_packages(&self, tool: &str, arguments: &[&str], files: &[String]) -> Result<(), String> {
        let mut command = self.root.command(tool);
        command.args(arguments);
        for file in files {
            let path = format!("{PACKAGES}/{file}");
            self.root
                .put(&path, &place::bytes(&self.place.out().join(file))?)?;
            command.arg(path);
        }
        tools::quiet_output(&mut command)?;
        self.remove(PACKAGES)
    }

    /// Takes everything away, and looks whether anything stayed.
    pub(crate) fn uninstall(&self) -> Result<(), String> {
        if matches!(self.root, Root::Emulated(_)) {
            return self.remove("/usr");
        }
        match self.kind {
            Kind::Deb => {
                let mut dpkg = self.root.command("/usr/bin/dpkg");
                dpkg.args(["--purge", "libquoit-dev", "libquoit0", "quoit"]);
                tools::quiet_output(&mut dpkg)?;
            }
            Kind::Rpm => {
                let mut rpm = self.root.command("/usr/bin/rpm");
                rpm.args(["--erase", "libquoit-devel", "libquoit0", "quoit"]);
                tools::quiet_output(&mut rpm)?;
            }
            Kind::Archive | Kind::Musl => self.remove(OPT)?,
        }
        let lib = self.lib();
        let left: Vec<_> = [
            self.program(),
            format!("{lib}/libquoit.so.0"),
            format!("{lib}/libquoit.so"),
            format!("{lib}/cmake/quoit"),
            "/usr/share/doc/quoit".to_owned(),
            "/usr/include/quoit.h".to_owned(),
        ]
        .into_iter()
        .filter(|path| self.root.has(path))
        .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{} stayed", left.join(", ")))
        }
    }

    fn remove(&self, path: &str) -> Result<(), String> {
        let path = self.root.folder().join(path.trim_start_matches('/'));
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", path.display()))
            }
            _ => Ok(()),
        }
    }
}
