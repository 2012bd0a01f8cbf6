//! Packages of Debian's, by dpkg-deb.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::archive::gzip;
use crate::place::{self, Place};
use crate::target::Target;
use crate::tools;
use crate::tree::{Entry, Tree};

/// What each package is, and what is in it.
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) section: &'static str,
    pub(crate) depends: String,
    pub(crate) summary: &'static str,
    /// Lines of at most 76 characters.
    pub(crate) description: &'static str,
    pub(crate) tree: Tree,
    /// Beside `control`: `shlibs` and the like, and scripts.
    pub(crate) control: Vec<(&'static str, String)>,
    pub(crate) is_same_for_all_programs: bool,
    /// What lintian is told, with the reason.
    pub(crate) overrides: Option<&'static str>,
}

/// Writes the package into the output, and returns its name.
pub(crate) fn write(
    place: &Place,
    target: Target,
    mut package: Package,
    papers: &Tree,
) -> Result<String, String> {
    let name = package.name;
    let documents = format!("usr/share/doc/{name}");
    let copyright = place::read(&place.root.join("dist/deb/copyright"))?;
    package.tree.add(format!("{documents}/copyright"), copyright);
    package.tree.add(
        format!("{documents}/changelog.gz"),
        gzip(changelog(place).as_bytes())?,
    );
    package.tree.add_all(&documents, papers.clone());
    if let Some(text) = package.overrides {
        package
            .tree
            .add(format!("usr/share/lintian/overrides/{name}"), text);
    }
    let control = control(place, target, &package);
    let mut sums = String::new();
    for (path, entry) in &package.tree.0 {
        if let Entry::File { bytes, .. } = entry {
            sums.push_str(&format!("{}  {path}\n", md5(place, bytes)?));
        }
    }
    package.tree.add("DEBIAN/control", control);
    package.tree.add("DEBIAN/md5sums", sums);
    for (file, text) in &package.control {
        let (path, text) = (
            format!("DEBIAN/{file}"),
            text.replace("@VERSION@", &place.version),
        );
        if text.starts_with("#!") {
            package.tree.add_program(path, text);
        } else {
            package.tree.add(path, text);
        }
    }
    let folder = place.work().join("deb").join(format!("{name}-{}", target.deb));
    place::make_empty(&folder)?;
    package.tree.write_to(&folder)?;
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755))
        .map_err(|error| format!("{}: {error}", folder.display()))?;
    let file = format!("{name}_{}_{}.deb", place.version, target.deb);
    tools::output(
        Command::new("dpkg-deb")
            .env("SOURCE_DATE_EPOCH", place.epoch.to_string())
            // What every Debian and Ubuntu can unpack.
            .args(["--root-owner-group", "-Zxz", "--threads-max=1", "--build"])
            .arg(&folder)
            .arg(place.out().join(&file)),
    )?;
    Ok(file)
}

/// What dpkg runs for the package with the units: a service must not outlive its program, nor run an older one.
pub(crate) fn service_scripts() -> Vec<(&'static str, String)> {
    [
        ("postinst", include_str!("../../../dist/deb/quoit.postinst")),
        ("prerm", include_str!("../../../dist/deb/quoit.prerm")),
    ]
    .map(|(name, text)| (name, text.to_owned()))
    .into()
}

fn control(place: &Place, target: Target, package: &Package) -> String {
    let mut text = format!(
        "Package: {}\nSource: quoit\nVersion: {}\nArchitecture: {}\nMaintainer: {MAINTAINER}\n",
        package.name, place.version, target.deb
    );
    text.push_str(&format!(
        "Installed-Size: {}\n",
        package.tree.size().div_ceil(1024)
    ));
    if !package.depends.is_empty() {
        text.push_str(&format!(
            "Depends: {}\n",
            package.depends.replace("@VERSION@", &place.version)
        ));
    }
    if package.is_same_for_all_programs {
        text.push_str("Multi-Arch: same\n");
    }
    text.push_str(&format!(
        "Section: {}\nPriority: optional\nHomepage: {HOMEPAGE}\nDescription: {}\n",
        package.section, package.summary
    ));
    for line in package.description.lines() {
        text.push_str(&format!(" {line}\n"));
    }
    text
}

const HOMEPAGE: &str = "https://github.com/quoit-io/quoit";

/// Who answers for the packages.
pub(crate) const MAINTAINER: &str = "The Quoit contributors <quoit@packages.invalid>";

/// In Debian's form, which asks for an entry for each version.
fn changelog(place: &Place) -> String {
    format!(
        "quoit ({}) unstable; urgency=medium\n\n  * Built by the project; what has changed stands in its CHANGELOG.md.\n\n -- \
         {MAINTAINER}  {}\n",
        place.version,
        rfc2822(place.epoch)
    )
}

/// A time, as mail has it.
fn rfc2822(epoch: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let date = crate::manual::date(epoch);
    let mut parts = date.split('-');
    let year = parts.next().unwrap_or_default();
    let month = parts
        .next()
        .and_then(|month| month.parse::<usize>().ok())
        .unwrap_or(1);
    let day = parts.next().unwrap_or_default();
    let (hour, minute, second) = (epoch / 3600 % 24, epoch / 60 % 60, epoch % 60);
    format!(
        "{}, {day} {} {year} {hour:02}:{minute:02}:{second:02} +0000",
        DAYS[(epoch / 86_400 % 7) as usize],
        MONTHS[month - 1]
    )
}

/// dpkg's list of files still has MD5.
fn md5(place: &Place, bytes: &[u8]) -> Result<String, String> {
    let file = place.work().join("md5");
    place::write(&file, bytes)?;
    let printed = tools::output(Command::new("md5sum").arg(&file))?;
    Ok(printed.split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    /// A package with the scripts, in a version, by dpkg-deb.
    fn packed(folder: &Path, version: &str) -> std::path::PathBuf {
        let place = Place::made_up(folder, version);
        place::write(&folder.join("dist/deb/copyright"), "").unwrap();
        place::make(&place.out()).unwrap();
        let mut tree = Tree::default();
        tree.add("usr/share/quoit/text", "text");
        let package = Package {
            name: "quoit",
            section: "net",
            depends: String::new(),
            summary: "a test",
            description: "a test",
            tree,
            control: service_scripts(),
            is_same_for_all_programs: false,
            overrides: None,
        };
        let file = write(&place, crate::target::ALL[0], package, &Tree::default()).unwrap();
        place.out().join(file)
    }

    /// What dpkg does in a root of its own, and what systemctl was told meanwhile. The scripts run outside of that root, with its path
    /// in `DPKG_ROOT`.
    fn dpkg(folder: &Path, action: &str, of: &Path) -> Vec<String> {
        let told = folder.join("told");
        fs::write(&told, "").unwrap();
        let path = std::env::var("PATH").unwrap();
        tools::quiet_output(
            Command::new("dpkg")
                .env("PATH", format!("{}:{path}", folder.join("programs").display()))
                .env("TOLD", &told)
                .arg(format!("--root={}", folder.join("root").display()))
                .args([
                    "--force-not-root",
                    "--force-bad-path",
                    "--force-architecture",
                    "--force-script-chrootless",
                ])
                .arg(action)
                .arg(of),
        )
        .unwrap();
        let lines = fs::read_to_string(&told).unwrap();
        lines.lines().map(str::to_owned).collect()
    }

    /// A folder with a root for dpkg, and a systemctl that writes down what it is told.
    fn empty_root(runs_systemd: bool) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for path in ["status", "available", "info/format"] {
            let text = if path == "info/format" { "1\n" } else { "" };
            place::write(&folder.path().join("root/var/lib/dpkg").join(path), text).unwrap();
        }
        for path in ["updates", "triggers"] {
            place::make(&folder.path().join("root/var/lib/dpkg").join(path)).unwrap();
        }
        if runs_systemd {
            place::make(&folder.path().join("root/run/systemd/system")).unwrap();
        }
        let mut programs = Tree::default();
        programs.add_program("programs/systemctl", "#!/bin/sh\necho \"$*\" >> \"$TOLD\"\n");
        programs.write_to(folder.path()).unwrap();
        folder
    }

    /// Whether it is there; if not, that is said.
    fn has_dpkg() -> bool {
        let is_there = Command::new("dpkg").arg("--version").output().is_ok();
        if !is_there {
            quoit_skipped::skip_this("dpkg is not there");
        }
        is_there
    }

    const UNITS: &str = "quoit-activated.socket quoit-activated.service quoit.service";

    #[test]
    fn services_are_started_again_by_an_upgrade_and_end_when_the_package_is_removed() {
        if !has_dpkg() {
            return;
        }
        let folder = empty_root(true);
        let folder = folder.path();
        let installed = dpkg(folder, "--install", &packed(folder, "1.0.0"));
        assert_eq!(installed, ["daemon-reload"]);
        let upgraded = dpkg(folder, "--install", &packed(folder, "1.1.0"));
        assert_eq!(
            upgraded,
            [
                "daemon-reload",
                "try-restart quoit.service quoit-activated.service"
            ]
        );
        let removed = dpkg(folder, "--remove", Path::new("quoit"));
        assert_eq!(removed, [format!("disable --now {UNITS}")]);
        // Nothing of it is left for dpkg to purge.
        let status = fs::read_to_string(folder.join("root/var/lib/dpkg/status")).unwrap();
        assert_eq!(status.trim(), "");
    }

    /// What rpm runs says the same to systemctl.
    #[test]
    fn both_kinds_of_packages_have_the_same_scripts() {
        let told = |text: &str| {
            let lines = text
                .lines()
                .map(str::trim)
                .filter(|line| line.starts_with("systemctl ") || line.starts_with("units="));
            lines
                .map(|line| line.replace("\"$DPKG_ROOT/\"", "/"))
                .collect::<Vec<_>>()
        };
        let scripts: String = service_scripts().into_iter().map(|(_, text)| text).collect();
        assert_eq!(told(&scripts).len(), 5);
        assert_eq!(told(include_str!("../../../dist/quoit.spec")), told(&scripts));
    }

    /// As where an image is made: no manager runs, and what was enabled are links that would lead nowhere.
    #[test]
    fn without_systemd_only_links_are_taken_away() {
        if !has_dpkg() {
            return;
        }
        let folder = empty_root(false);
        let folder = folder.path();
        for version in ["1.0.0", "1.1.0"] {
            assert_eq!(dpkg(folder, "--install", &packed(folder, version)), [""; 0]);
        }
        let removed = dpkg(folder, "--remove", Path::new("quoit"));
        let root = folder.join("root");
        assert_eq!(removed, [format!("--root={}/ disable {UNITS}", root.display())]);
    }

    #[test]
    fn times_as_mail_has_them() {
        assert_eq!(rfc2822(0), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(rfc2822(1_709_164_800 + 3_661), "Thu, 29 Feb 2024 01:01:01 +0000");
        assert_eq!(rfc2822(1_795_737_600), "Fri, 27 Nov 2026 00:00:00 +0000");
    }
}
