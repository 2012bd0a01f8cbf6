//! What documents say of versions, held against the code.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::target::GLIBC;
use crate::verify::SYMBOLS;

const MANIFEST: &str = include_str!("../../../Cargo.toml");
const PAGE: &str = include_str!("../../../docs/stability.md");
const HEADER: &str = include_str!("../../quoit-capi/include/quoit.h");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn of_the_workspace(key: &str) -> String {
    let manifest: toml::Table = MANIFEST.parse().unwrap();
    manifest["workspace"]["package"][key].as_str().unwrap().to_owned()
}

/// `1.10`.
fn abi() -> String {
    let number = |name: &str| {
        let line = HEADER
            .lines()
            .find_map(|line| line.strip_prefix(&format!("#define {name} ")));
        line.unwrap().trim().to_owned()
    };
    format!("{}.{}", number("QUOIT_ABI_MAJOR"), number("QUOIT_ABI_MINOR"))
}

/// How many functions came with each release.
fn functions() -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for line in SYMBOLS.lines().filter_map(|line| line.strip_prefix(' ')) {
        *counts.entry(line.split_once(' ').unwrap().1).or_default() += 1;
    }
    counts
}

/// Files of a name, in a folder of the checkout and those below it.
fn below(folder: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !["target", "bin", "obj"].iter().any(|built| path.ends_with(built)) {
            found.extend(below(&path, name));
        } else if path.ends_with(name) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The versions that a `pom.xml` gives to modules of ours.
fn versions_of_ours(pom: &str) -> Vec<String> {
    let lines: Vec<_> = pom.lines().map(str::trim).collect();
    let ours = lines
        .iter()
        .enumerate()
        .filter(|(_, line)| **line == "<groupId>io.quoit</groupId>");
    ours.filter_map(|(at, _)| {
        let rest = &lines[at..lines.len().min(at + 4)];
        let version = rest.iter().find_map(|line| line.strip_prefix("<version>"))?;
        Some(version.split('<').next().unwrap().to_owned())
    })
    .collect()
}

#[test]
fn every_module_for_java_has_the_version() {
    let version = of_the_workspace("version");
    let mut poms = below(&root().join("java"), "pom.xml");
    poms.extend(below(&root().join("lab/peers/java"), "pom.xml"));
    assert!(poms.len() > 5, "{poms:?}");
    for pom in poms {
        let versions = versions_of_ours(&std::fs::read_to_string(&pom).unwrap());
        assert!(!versions.is_empty(), "{}", pom.display());
        for found in versions {
            assert!(
                found == version || found == "${project.version}",
                "{}: {found}",
                pom.display()
            );
        }
    }
}

#[test]
fn a_version_in_a_pom_is_found() {
    let pom = "<parent>\n  <groupId>io.quoit</groupId>\n  <artifactId>x</artifactId>\n  <version>9.9.9</version>\n</parent>\n\
               <groupId>io.netty</groupId>\n<version>4</version>\n";
    assert_eq!(versions_of_ours(pom), ["9.9.9"]);
}

#[test]
fn the_package_for_dotnet_has_the_version() {
    let project = read("dotnet/Quoit.Kestrel/Quoit.Kestrel.csproj");
    let wanted = format!("<Version>{}</Version>", of_the_workspace("version"));
    assert!(project.contains(&wanted), "{wanted}");
}

/// What stands before the project's version in the files of `deploy/`.
const DEPLOYED: [&str; 5] = [
    "version: ",
    "appVersion: ",
    "newTag: ",
    "image: quoit:",
    "app.kubernetes.io/version: ",
];

/// The files of `deploy/` that name a version of the project, and what they name.
fn deployed(root: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root.join("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "yaml") {
                let text = std::fs::read_to_string(&path).unwrap();
                let named = text.lines().filter_map(|line| {
                    DEPLOYED
                        .iter()
                        .find_map(|mark| line.trim().strip_prefix(mark))
                        .map(|version| version.trim_matches('"').to_owned())
                });
                found.extend(named.map(|version| (path.clone(), version)));
            }
        }
    }
    found
}

#[test]
fn what_is_deployed_is_this_version() {
    let version = of_the_workspace("version");
    let found = deployed(&root());
    assert!(found.len() > 10, "{found:?}");
    for (path, named) in found {
        assert!(named == version, "{}: {named}", path.display());
    }
}

/// `dist/release version`, in a copy of what it writes into.
#[test]
fn a_new_version_comes_to_all_that_is_deployed() {
    let copy = tempfile::tempdir().unwrap();
    let mut tree = crate::tree::Tree::default();
    for path in ["Cargo.toml", "dotnet/Quoit.Kestrel/Quoit.Kestrel.csproj"] {
        tree.add(path, read(path));
    }
    for path in ["java/pom.xml", "lab/peers/java/pom.xml"] {
        tree.add(path, "");
    }
    tree.add_program("dist/release", read("dist/release"));
    // What it does to the locks is not looked at.
    tree.add_program("programs/cargo", "#!/bin/sh\n");
    for (path, _) in deployed(&root()) {
        let inner = path.strip_prefix(root()).unwrap().to_str().unwrap();
        tree.add(inner, read(inner));
    }
    tree.write_to(copy.path()).unwrap();
    let before = deployed(copy.path()).len();
    let path = std::env::var("PATH").unwrap();
    let mut release = std::process::Command::new(copy.path().join("dist/release"));
    release
        .env(
            "PATH",
            format!("{}:{path}", copy.path().join("programs").display()),
        )
        .args(["version", "98.76.5"]);
    crate::tools::quiet_output(&mut release).unwrap();
    let after = deployed(copy.path());
    assert_eq!(after.len(), before);
    for (path, named) in after {
        assert_eq!(named, "98.76.5", "{}", path.display());
    }
}

/// `quoit_version` returns that of its crate; `make dist-check` asks each library that is installed.
#[test]
fn every_crate_has_the_version() {
    for manifest in below(&root().join("crates"), "Cargo.toml") {
        let read: toml::Table = std::fs::read_to_string(&manifest).unwrap().parse().unwrap();
        let version = &read["package"]["version"];
        assert_eq!(
            version.get("workspace"),
            Some(&toml::Value::Boolean(true)),
            "{}",
            manifest.display()
        );
    }
}

#[test]
fn the_changelog_tells_of_the_version() {
    let changelog = read("CHANGELOG.md");
    let version = of_the_workspace("version");
    assert!(
        changelog.contains(&format!("## [{version}]"))
            || changelog.contains(&format!("This will be {version}")),
        "CHANGELOG.md knows nothing of {version}"
    );
}

#[test]
fn the_page_of_stability_says_what_is() {
    let (major, minor) = GLIBC;
    let rust = of_the_workspace("rust-version");
    let mut wanted = vec![
        format!("version of its own, {} now", abi()),
        format!("| Rust | {rust}, to build."),
        format!("| glibc | {major}.{minor}, for packages"),
    ];
    let functions = functions();
    let newest = of_the_workspace("version");
    for (release, count) in &functions {
        wanted.push(if *release == newest && functions.len() == 1 {
            format!("| {release} | {} | {count}, all of them |", abi())
        } else {
            format!("| {release} | ")
        });
    }
    for text in wanted {
        assert!(PAGE.contains(&text), "docs/stability.md does not say: {text}");
    }
    assert!(read("README.md").contains(&format!("Rust {rust} or newer")));
    assert!(read("CONTRIBUTING.md").contains(&format!("Rust {rust} or newer")));
}

/// A release is told of in the table once its functions are in the list.
#[test]
fn each_release_with_new_functions_is_counted() {
    let functions = functions();
    assert_eq!(
        functions.values().sum::<usize>(),
        crate::verify::symbols(SYMBOLS).count()
    );
    for (release, count) in functions {
        let row = PAGE
            .lines()
            .find(|line| line.starts_with(&format!("| {release} | ")))
            .unwrap_or_else(|| panic!("no row for {release}"));
        assert!(row.contains(&format!("| {count}")), "{row}");
    }
}

#[test]
fn who_installs_or_releases_is_led_to_it() {
    for page in ["README.md", "RELEASING.md", "docs/install.md", "docs/c-abi.md"] {
        assert!(read(page).contains("stability.md"), "{page}");
    }
}
