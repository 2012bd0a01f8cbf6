//! What is installed of the program.

use clap_complete::Shell;

use crate::compile::Built;
use crate::library::split;
use crate::place::Place;
use crate::target::Target;
use crate::tree::Tree;

/// What a service of the program needs, and where it is installed below `/usr`. The units are not enabled by that.
const DEPLOYED: [(&str, &str); 6] = [
    (
        "lib/systemd/system/quoit.service",
        include_str!("../../../deploy/systemd/quoit.service"),
    ),
    (
        "lib/systemd/system/quoit-activated.service",
        include_str!("../../../deploy/systemd/quoit-activated.service"),
    ),
    (
        "lib/systemd/system/quoit-activated.socket",
        include_str!("../../../deploy/systemd/quoit-activated.socket"),
    ),
    (
        "share/quoit/seccomp/quoit.json",
        include_str!("../../../deploy/seccomp/quoit.json"),
    ),
    (
        "share/quoit/grafana/dashboard.json",
        include_str!("../../../deploy/grafana/dashboard.json"),
    ),
    (
        "share/quoit/prometheus/rules.yaml",
        include_str!("../../../deploy/prometheus/rules.yaml"),
    ),
];

/// The program of one processor, which runs beside any C library, as it needs none.
pub(crate) struct Program {
    pub(crate) target: Target,
    pub(crate) bytes: Vec<u8>,
    /// What debuggers take in addition.
    pub(crate) debug: Vec<u8>,
}

impl Program {
    /// Takes the debugging information out of what was built.
    pub(crate) fn make(place: &Place, built: &Built) -> Result<Self, String> {
        let work = place.work().join("split-program").join(built.target.triple);
        let (bytes, debug) = split(&built.folder.join("quoit"), &work, "quoit")?;
        Ok(Self {
            target: built.target,
            bytes,
            debug,
        })
    }

    /// In an archive: pages and completions in folders that say what they are.
    pub(crate) fn archived(&self, pages: &Tree, completions: &[(Shell, &str, Vec<u8>)]) -> Tree {
        let mut tree = Tree::default();
        tree.add_program("bin/quoit", self.bytes.clone());
        tree.add_all("share/man/man1", pages.clone());
        for (shell, name, script) in completions {
            tree.add(
                format!("{}/{name}", completion_folder(*shell, false)),
                script.clone(),
            );
        }
        tree
    }

    /// In a package of a system, below `/usr`.
    pub(crate) fn installed(
        &self,
        pages: &Tree,
        completions: &[(Shell, &str, Vec<u8>)],
        is_debian: bool,
    ) -> Tree {
        let mut tree = Tree::default();
        tree.add_program("usr/bin/quoit", self.bytes.clone());
        for (path, text) in DEPLOYED {
            tree.add(format!("usr/{path}"), text);
        }
        tree.add_all("usr/share/man/man1", pages.clone());
        for (shell, name, script) in completions {
            tree.add(
                format!("usr/{}/{name}", completion_folder(*shell, is_debian)),
                script.clone(),
            );
        }
        tree
    }
}

/// Where shells look, below the prefix.
fn completion_folder(shell: Shell, is_debian: bool) -> &'static str {
    match shell {
        Shell::Bash => "share/bash-completion/completions",
        Shell::Zsh if is_debian => "share/zsh/vendor-completions",
        Shell::Zsh => "share/zsh/site-functions",
        _ => "share/fish/vendor_completions.d",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_brings_the_units_and_the_spec_names_all_files() {
        let program = Program {
            target: crate::target::ALL[0],
            bytes: Vec::new(),
            debug: Vec::new(),
        };
        let tree = program.installed(&Tree::default(), &[], false);
        let spec = include_str!("../../../dist/quoit.spec");
        for (path, _) in DEPLOYED {
            assert!(tree.0.contains_key(&format!("usr/{path}")), "{path}");
            assert!(
                spec.lines()
                    .any(|line| line.starts_with('/') && format!("/usr/{path}").starts_with(line)),
                "dist/quoit.spec does not name /usr/{path}"
            );
        }
    }
}
