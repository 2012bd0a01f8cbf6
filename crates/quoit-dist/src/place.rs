//! The checkout that is packed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools;

/// Where and what.
#[derive(Debug)]
pub(crate) struct Place {
    /// The checkout.
    pub(crate) root: PathBuf,
    /// Of the workspace.
    pub(crate) version: String,
    /// The commit.
    pub(crate) revision: String,
    /// When it was made, in seconds since 1970: the time of everything that is packed.
    pub(crate) epoch: u64,
    /// Whether something was changed since.
    pub(crate) is_dirty: bool,
}

impl Place {
    /// One that tests make up: a clean checkout there.
    #[cfg(test)]
    pub(crate) fn made_up(root: impl Into<PathBuf>, version: &str) -> Self {
        Self {
            root: root.into(),
            version: version.to_owned(),
            revision: String::new(),
            epoch: 1_709_164_800,
            is_dirty: false,
        }
    }

    /// Finds the checkout around the working folder.
    pub(crate) fn find() -> Result<Self, String> {
        let here = std::env::current_dir().map_err(|error| error.to_string())?;
        let root = here
            .ancestors()
            .find(|folder| folder.join("dist/distributions.toml").exists())
            .ok_or("run it inside a checkout: dist/distributions.toml was not found")?
            .to_owned();
        let manifest = read(&root.join("Cargo.toml"))?;
        let version = version(&manifest).ok_or("Cargo.toml has no version of the workspace")?;
        let revision = git(&root, &["rev-parse", "HEAD"])?;
        let epoch = git(&root, &["log", "-1", "--format=%ct"])?;
        let epoch = epoch
            .parse()
            .map_err(|error| format!("the commit's time, {epoch}: {error}"))?;
        let is_dirty = !git(&root, &["status", "--porcelain", "--untracked-files=no"])?.is_empty();
        Ok(Self {
            root,
            version,
            revision,
            epoch,
            is_dirty,
        })
    }

    /// What users take.
    pub(crate) fn out(&self) -> PathBuf {
        self.root.join("target/dist")
    }

    /// What is laid out on the way there; the scripts of other ecosystems find the library in it.
    pub(crate) fn work(&self) -> PathBuf {
        self.root.join("target/dist-build")
    }

    /// Where cargo builds.
    pub(crate) fn cargo(&self) -> PathBuf {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), PathBuf::from);
        self.root.join(target).join("dist-cargo")
    }
}

/// The version of the workspace: the one place that has it.
fn version(manifest: &str) -> Option<String> {
    let manifest: toml::Table = manifest.parse().ok()?;
    let version = manifest.get("workspace")?.get("package")?.get("version")?;
    version.as_str().map(str::to_owned)
}

fn git(root: &Path, arguments: &[&str]) -> Result<String, String> {
    let printed = tools::output(Command::new("git").current_dir(root).args(arguments))?;
    Ok(printed.trim().to_owned())
}

/// Reads a text file.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Reads a file.
pub(crate) fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file, and the folder it is in.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<(), String> {
    if let Some(folder) = path.parent() {
        make(folder)?;
    }
    fs::write(path, contents).map_err(|error| format!("{}: {error}", path.display()))
}

/// Makes a folder.
pub(crate) fn make(folder: &Path) -> Result<(), String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Makes a folder that is empty.
pub(crate) fn make_empty(folder: &Path) -> Result<(), String> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{}: {error}", folder.display()))
        }
        _ => make(folder),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::{bytes, read, version};

    #[test]
    fn the_version_is_that_of_the_workspace() {
        let manifest =
            "[workspace.package]\nversion = \"1.2.3\"\n[workspace.dependencies]\nx = { version = \"9\" }\n";
        assert_eq!(version(manifest).as_deref(), Some("1.2.3"));
        assert_eq!(version("[package]\nversion = \"1.2.3\"\n"), None);
    }

    /// Cargo wants the version of a crate that is depended on and published as a literal.
    #[test]
    fn the_crates_depend_on_the_version_that_they_have() {
        let manifest = include_str!("../../../Cargo.toml");
        let version = version(manifest).expect("it has one");
        let parsed: toml::Table = manifest.parse().expect("it is TOML");
        let depended = &parsed["workspace"]["dependencies"]["quoit"]["version"];
        assert_eq!(depended.as_str(), Some(version.as_str()));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let path = std::path::Path::new("/nowhere/at/all");
        assert!(read(path).unwrap_err().starts_with("/nowhere/at/all: "));
        assert!(bytes(path).unwrap_err().starts_with("/nowhere/at/all: "));
    }
}
