//! What is installed of the library.

use std::process::Command;

use crate::compile::Built;
use crate::link;
use crate::place::{self, Place};
use crate::target::Target;
use crate::tools;
use crate::tree::Tree;

/// The library of one target, ready to be put into any package.
pub(crate) struct Library {
    pub(crate) target: Target,
    version: String,
    shared: Vec<u8>,
    archive: Vec<u8>,
    /// What debuggers take in addition.
    pub(crate) debug: Vec<u8>,
    header: String,
    layout: String,
    pkg_config: String,
    cmake: String,
    cmake_version: String,
}

/// Where the parts go, from the package's root.
pub(crate) struct Layout<'layout> {
    pub(crate) prefix: &'layout str,
    /// Below the prefix.
    pub(crate) lib: &'layout str,
}

/// As pkg-config finds it in an archive, wherever that is unpacked.
pub(crate) const RELOCATABLE: Layout<'static> = Layout {
    prefix: "${pcfiledir}/../..",
    lib: "lib",
};

impl Library {
    /// Takes the debugging information out of what was built, and reads what goes with it.
    pub(crate) fn make(place: &Place, built: &Built) -> Result<Self, String> {
        let work = place.work().join("split").join(built.target.triple);
        let (shared, debug) = split(&link::shared(place, built)?, &work, &shared_name(&place.version))?;
        let archive = work.join("libquoit.a");
        // Bitcode is for the compiler's own link-time optimisation, which is over.
        tools::output(
            tools::objcopy()?
                .args([
                    "--strip-debug",
                    "--remove-section=.llvmbc",
                    "--remove-section=.llvmcmd",
                ])
                .arg(built.folder.join("libquoit_capi.a"))
                .arg(&archive),
        )?;
        let capi = place.root.join("crates/quoit-capi");
        Ok(Self {
            target: built.target,
            version: place.version.clone(),
            shared,
            archive: place::bytes(&archive)?,
            debug,
            header: place::read(&capi.join("include/quoit.h"))?,
            layout: place::read(&capi.join("include/quoit-layout.txt"))?,
            pkg_config: place::read(&capi.join("quoit.pc.in"))?,
            cmake: place::read(&place.root.join("dist/quoitConfig.cmake.in"))?,
            cmake_version: place::read(&place.root.join("dist/quoitConfigVersion.cmake.in"))?,
        })
    }

    /// What programs are run with.
    pub(crate) fn run_time(&self, layout: &Layout<'_>) -> Tree {
        let mut tree = Tree::default();
        let name = shared_name(&self.version);
        tree.add(format!("{}/{name}", layout.lib), self.shared.clone());
        tree.add_link(format!("{}/libquoit.so.0", layout.lib), name);
        tree
    }

    /// What programs are built with.
    pub(crate) fn development(&self, layout: &Layout<'_>) -> Tree {
        let mut tree = Tree::default();
        let lib = layout.lib;
        tree.add("include/quoit.h", self.header.clone());
        tree.add("include/quoit-layout.txt", self.layout.clone());
        tree.add_link(format!("{lib}/libquoit.so"), "libquoit.so.0");
        tree.add(format!("{lib}/libquoit.a"), self.archive.clone());
        let pkg_config = self
            .pkg_config
            .replace("@PREFIX@", layout.prefix)
            .replace("@LIB@", lib)
            .replace("@VERSION@", &self.version);
        tree.add(format!("{lib}/pkgconfig/quoit.pc"), pkg_config);
        // From the folder of the file to the prefix.
        let up = "../".repeat(lib.split('/').count() + 2);
        let cmake = self
            .cmake
            .replace("@UP@", up.trim_end_matches('/'))
            .replace("@LIB@", lib)
            .replace("@VERSION@", &self.version);
        tree.add(format!("{lib}/cmake/quoit/quoitConfig.cmake"), cmake);
        let version = self.cmake_version.replace("@VERSION@", &self.version);
        tree.add(format!("{lib}/cmake/quoit/quoitConfigVersion.cmake"), version);
        tree
    }
}

/// The name of the file.
pub(crate) fn shared_name(version: &str) -> String {
    format!("libquoit.so.{version}")
}

/// Takes the debugging information out of a library or a program: returns it without, and the file that has it, which it names.
pub(crate) fn split(
    from: &std::path::Path,
    work: &std::path::Path,
    name: &str,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    place::make_empty(work)?;
    let (whole, stripped, debug) = (
        work.join("whole"),
        work.join(name),
        work.join(format!("{name}.debug")),
    );
    std::fs::copy(from, &whole).map_err(|error| format!("{}: {error}", from.display()))?;
    tools::output(tools::objcopy()?.arg("--only-keep-debug").arg(&whole).arg(&debug))?;
    let mut strip: Command = tools::objcopy()?;
    strip
        .arg("--strip-all")
        .arg(format!("--add-gnu-debuglink={}", debug.display()))
        .arg(&whole)
        .arg(&stripped);
    tools::output(&mut strip)?;
    Ok((place::bytes(&stripped)?, place::bytes(&debug)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    /// Finds the package, and has the header be where it is said to be.
    const PROJECT: &str = "\
cmake_minimum_required(VERSION 3.10)
project(user NONE)
find_package(quoit REQUIRED)
get_target_property(headers quoit::quoit INTERFACE_INCLUDE_DIRECTORIES)
if(NOT EXISTS \"${headers}/quoit.h\")
  message(FATAL_ERROR \"there is no header in ${headers}\")
endif()
";

    /// Where /bin comes before /usr/bin in the path, CMake looks below / first, and /lib leads to /usr/lib.
    #[test]
    fn cmake_finds_the_header_through_a_link_to_the_folder() {
        if Command::new("cmake").arg("--version").output().is_err() {
            quoit_skipped::skip_this("cmake is not there");
            return;
        }
        let library = Library {
            target: crate::target::ALL[0],
            version: "1.2.3".to_owned(),
            shared: Vec::new(),
            archive: Vec::new(),
            debug: Vec::new(),
            header: String::new(),
            layout: String::new(),
            pkg_config: String::new(),
            cmake: include_str!("../../../dist/quoitConfig.cmake.in").to_owned(),
            cmake_version: include_str!("../../../dist/quoitConfigVersion.cmake.in").to_owned(),
        };
        let layout = Layout {
            prefix: "/usr",
            lib: "lib/x86_64-linux-gnu",
        };
        let mut tree = Tree::default();
        tree.add_all("usr", library.development(&layout));
        tree.add_all("usr", library.run_time(&layout));
        tree.add_link("lib", "usr/lib");
        tree.add("user/CMakeLists.txt", PROJECT);
        let folder = tempfile::tempdir().unwrap();
        tree.write_to(folder.path()).unwrap();
        for lib in ["usr/lib", "lib"] {
            let found = folder.path().join(lib).join("x86_64-linux-gnu/cmake/quoit");
            tools::quiet_output(
                Command::new("cmake")
                    .arg("-S")
                    .arg(folder.path().join("user"))
                    .arg("-B")
                    .arg(folder.path().join("built").join(lib))
                    .arg(format!("-Dquoit_DIR={}", found.display())),
            )
            .unwrap();
        }
    }
}
