//! What has to be true of each artefact before anybody takes it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::elf::Elf;
use crate::library::shared_name;
use crate::place::{self, Place};
use crate::target::{ALL, GLIBC, Libc, Target};
use crate::tree::{Entry, Tree};
use crate::{archive, crates, sums, tools};

/// The functions that the library shows, each with the version that had it first: as Debian keeps such a list, so that it is one.
pub(crate) const SYMBOLS: &str = include_str!("../../../dist/libquoit0.symbols");

const MIB: usize = 1 << 20;
/// Of a shared library, stripped.
const LIBRARY_LIMIT: usize = 2 * MIB;
/// Of the image, compressed, of one processor.
const IMAGE_LIMIT: usize = 15 * MIB;

/// Looks into everything, prints what each weighs, and names what is wrong; returns the exit status.
pub(crate) fn run() -> Result<u8, String> {
    let place = Place::find()?;
    let names = sums::files(&place)?;
    let mut problems = Vec::new();
    for name in &names {
        let bytes = place::bytes(&place.out().join(name))?;
        if !name.contains('/') {
            println!("{:>10.2} MiB  {name}", bytes.len() as f64 / MIB as f64);
        }
        for file in telling(name, &bytes, &[&place.root, &place.cargo()])? {
            problems.push(format!("{name}: {file} tells where it was built"));
        }
    }
    let expected = expected(&place.version);
    problems.extend(missing(&expected, &names));
    for target in ALL {
        let name = format!("libquoit-{}-{}", place.version, target.triple);
        problems.extend(of(&name, &place, |tree| {
            library_problems(&name, tree, target, &place.version)
        }));
    }
    for target in ALL.iter().filter(|target| target.libc == Libc::Musl) {
        let name = format!("quoit-{}-{}", place.version, target.triple);
        problems.extend(of(&name, &place, |tree| program_problems(&name, tree, *target)));
    }
    for name in names.iter().filter(|name| name.ends_with(".deb")) {
        problems.extend(lint(&place, name));
    }
    let listed = place::read(&place.out().join(sums::NAME))?;
    let listed: Vec<_> = listed
        .lines()
        .filter_map(|line| Some(line.split_once("  ")?.1.to_owned()))
        .collect();
    if listed != names {
        problems.push(format!("{} does not name what is there", sums::NAME));
    }
    let image = format!("quoit-{}-oci.tar", place.version);
    let weight = std::fs::metadata(place.out().join(&image)).map_or(0, |found| found.len() as usize) / 2;
    if weight > IMAGE_LIMIT {
        problems.push(format!("{image} weighs {weight} bytes for each processor"));
    }
    for problem in &problems {
        eprintln!("quoit-dist: {problem}");
    }
    Ok(u8::from(!problems.is_empty()))
}

/// The files, of an archive those in it, that name one of these folders.
fn telling(name: &str, bytes: &[u8], folders: &[&Path]) -> Result<Vec<String>, String> {
    let tells = |bytes: &[u8]| {
        folders
            .iter()
            .any(|folder| contains(bytes, folder.to_string_lossy().as_bytes()))
    };
    if !name.ends_with(".tar.gz") && !name.ends_with(".crate") {
        return Ok(if tells(bytes) {
            vec![name.to_owned()]
        } else {
            Vec::new()
        });
    }
    let tree = archive::open(bytes).map_err(|error| format!("{name}: {error}"))?;
    let files = tree.0.into_iter().filter_map(|(path, entry)| match entry {
        Entry::File { bytes, .. } if tells(&bytes) => Some(path),
        _ => None,
    });
    Ok(files.collect())
}

/// What `make dist` makes here.
fn expected(version: &str) -> Vec<String> {
    let mut names = vec![
        format!("quoit-{version}-oci.tar"),
        format!("quoit-{version}.cdx.json"),
        format!("libquoit-{version}.cdx.json"),
    ];
    names.extend(
        crates::PUBLISHED
            .iter()
            .map(|name| format!("{name}-{version}.crate")),
    );
    for target in ALL {
        names.push(format!("libquoit-{version}-{}.tar.gz", target.triple));
        names.push(format!("libquoit-debug-{version}-{}.tar.gz", target.triple));
        match target.libc {
            Libc::Musl => names.push(format!("quoit-{version}-{}.tar.gz", target.triple)),
            Libc::Gnu => {
                for package in ["quoit", "libquoit0", "libquoit-dev"] {
                    names.push(format!("{package}_{version}_{}.deb", target.deb));
                }
                for package in ["quoit", "libquoit0", "libquoit-devel"] {
                    names.push(format!("{package}-{version}-1.{}.rpm", target.arch));
                }
            }
        }
    }
    names
}

fn missing(expected: &[String], names: &[String]) -> Vec<String> {
    let lacking = expected.iter().filter(|name| !names.contains(name));
    lacking.map(|name| format!("{name} was not made")).collect()
}

/// Opens an archive and looks into it.
fn of(name: &str, place: &Place, look: impl FnOnce(&Tree) -> Vec<String>) -> Vec<String> {
    let file = format!("{name}.tar.gz");
    let opened = place::bytes(&place.out().join(&file)).and_then(|bytes| archive::open(&bytes));
    match opened {
        Ok(tree) => look(&tree),
        Err(error) => vec![format!("{file}: {error}")],
    }
}

/// What every archive has.
const PAPERS: [&str; 5] = [
    "README.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "THIRD-PARTY-NOTICES.txt",
];

/// What is wrong with the archive of a library.
pub(crate) fn library_problems(name: &str, tree: &Tree, target: Target, version: &str) -> Vec<String> {
    let shared = format!("lib/{}", shared_name(version));
    let mut wanted = PAPERS.to_vec();
    wanted.extend([
        "include/quoit.h",
        "include/quoit-layout.txt",
        &shared,
        "lib/libquoit.a",
        "lib/pkgconfig/quoit.pc",
        "lib/cmake/quoit/quoitConfig.cmake",
        "lib/cmake/quoit/quoitConfigVersion.cmake",
    ]);
    let mut problems = lacking(name, tree, &wanted);
    for (link, to) in [
        ("lib/libquoit.so", "libquoit.so.0"),
        ("lib/libquoit.so.0", &shared["lib/".len()..]),
    ] {
        if tree.0.get(&format!("{name}/{link}")) != Some(&Entry::Link(to.to_owned())) {
            problems.push(format!("{name}: {link} does not lead to {to}"));
        }
    }
    if let Some(Entry::File { bytes, .. }) = tree.0.get(&format!("{name}/lib/pkgconfig/quoit.pc"))
        && contains(bytes, b"@")
    {
        problems.push(format!("{name}: quoit.pc has a name where a value belongs"));
    }
    if let Some(Entry::File { bytes, .. }) = tree.0.get(&format!("{name}/{shared}")) {
        if bytes.len() > LIBRARY_LIMIT {
            problems.push(format!("{name}: the library weighs {} bytes", bytes.len()));
        }
        match Elf::read(bytes) {
            Ok(elf) => problems.extend(shared_problems(name, &elf, target)),
            Err(error) => problems.push(format!("{name}: {error}")),
        }
    }
    problems
}

/// What is wrong with a shared library.
fn shared_problems(name: &str, elf: &Elf, target: Target) -> Vec<String> {
    let mut problems = system_problems(name, elf, target);
    if elf.soname.as_deref() != Some("libquoit.so.0") {
        problems.push(format!("{name}: its name is {:?}", elf.soname));
    }
    let kept: BTreeSet<_> = symbols(SYMBOLS).map(str::to_owned).collect();
    for gone in kept.difference(&elf.exported) {
        problems.push(format!("{name}: {gone} is gone, which programs use"));
    }
    for new in elf.exported.difference(&kept) {
        problems.push(format!("{name}: {new} is not in dist/libquoit0.symbols"));
    }
    problems
}

/// What is wrong with what a shared library asks of the system.
pub(crate) fn system_problems(name: &str, elf: &Elf, target: Target) -> Vec<String> {
    let mut problems = Vec::new();
    if elf.machine != target.machine {
        problems.push(format!("{name}: it is for {:?}", elf.machine));
    }
    if elf.has_debug {
        problems.push(format!("{name}: debugging information was left in"));
    }
    let allowed: &[&str] = match target.libc {
        Libc::Musl => &["libc.so"],
        // Those of glibc, whatever it has in one.
        Libc::Gnu => &[
            "libc.so.6",
            "libpthread.so.0",
            "libdl.so.2",
            "libm.so.6",
            "librt.so.1",
            "ld-linux-x86-64.so.2",
            "ld-linux-aarch64.so.1",
        ],
    };
    for needed in elf
        .needed
        .iter()
        .filter(|needed| !allowed.contains(&needed.as_str()))
    {
        problems.push(format!("{name}: it needs {needed}"));
    }
    match (target.libc, elf.glibc) {
        (Libc::Gnu, Some(needed)) if needed <= GLIBC => {}
        (Libc::Musl, None) => {}
        (_, needed) => problems.push(format!("{name}: of glibc it needs {needed:?}")),
    }
    problems
}

/// What is wrong with the archive of a program.
pub(crate) fn program_problems(name: &str, tree: &Tree, target: Target) -> Vec<String> {
    let mut wanted = PAPERS.to_vec();
    wanted.extend([
        "bin/quoit",
        "share/man/man1/quoit.1.gz",
        "share/man/man1/quoit-serve-http.1.gz",
        "share/bash-completion/completions/quoit",
        "share/zsh/site-functions/_quoit",
        "share/fish/vendor_completions.d/quoit.fish",
    ]);
    let mut problems = lacking(name, tree, &wanted);
    let Some(Entry::File { bytes, is_program }) = tree.0.get(&format!("{name}/bin/quoit")) else {
        return problems;
    };
    if !is_program {
        problems.push(format!("{name}: bin/quoit cannot be run"));
    }
    match Elf::read(bytes) {
        Ok(elf) => {
            if elf.machine != target.machine {
                problems.push(format!("{name}: it is for {:?}", elf.machine));
            }
            if !elf.needed.is_empty() || elf.has_interpreter {
                problems.push(format!("{name}: it is not static, but needs {:?}", elf.needed));
            }
            if elf.has_debug {
                problems.push(format!("{name}: debugging information was left in"));
            }
        }
        Err(error) => problems.push(format!("{name}: {error}")),
    }
    problems
}

fn lacking(name: &str, tree: &Tree, wanted: &[&str]) -> Vec<String> {
    let is_there = |path: &str| {
        let entry = tree.0.get(&format!("{name}/{path}"));
        entry.is_some_and(|entry| !matches!(entry, Entry::File { bytes, .. } if bytes.is_empty()))
    };
    let lacking = wanted.iter().filter(|path| !is_there(path));
    let mut problems: Vec<_> = lacking.map(|path| format!("{name}: {path} is missing")).collect();
    let strays = tree
        .0
        .keys()
        .filter(|path| !path.starts_with(&format!("{name}/")));
    problems.extend(strays.map(|path| format!("{name}: {path} is not in its folder")));
    problems
}

/// The functions in a list of Debian's, each with `@` and its version.
pub(crate) fn symbols(list: &str) -> impl Iterator<Item = &str> {
    list.lines()
        .filter_map(|line| line.strip_prefix(' ')?.split(' ').next())
}

/// What lintian calls an error, if it is here.
fn lint(place: &Place, name: &str) -> Vec<String> {
    if !tools::answers(Command::new("lintian").arg("--version")) {
        eprintln!(
            "quoit-dist: lintian was not found, so {name} was not looked at (Debian: apt install lintian)"
        );
        return Vec::new();
    }
    let mut lintian = Command::new("lintian");
    lintian
        .args([
            "--fail-on",
            "error",
            "--display-level",
            "error",
            "--no-tag-display-limit",
        ])
        .arg(place.out().join(name));
    tools::quiet_output(&mut lintian).map_or_else(|error| vec![error], |_| Vec::new())
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else {
        return true;
    };
    let mut left = bytes;
    while let Some(at) = left.iter().position(|byte| byte == first) {
        left = &left[at + 1..];
        if left.starts_with(rest) {
            return true;
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    fn elf(target: Target) -> Elf {
        Elf {
            machine: target.machine,
            needed: vec!["libc.so.6".to_owned()],
            soname: Some("libquoit.so.0".to_owned()),
            exported: symbols(SYMBOLS).map(str::to_owned).collect(),
            glibc: Some(GLIBC),
            has_interpreter: false,
            has_debug: false,
        }
    }

    #[test]
    fn a_library_as_it_should_be_has_no_problem() {
        assert_eq!(shared_problems("it", &elf(ALL[0]), ALL[0]), [""; 0]);
    }

    #[test]
    fn each_fault_of_a_library_is_found() {
        type Fault = fn(&mut Elf);
        let faults: [(Fault, &str); 7] = [
            (|elf| elf.machine = object::Architecture::Aarch64, "it is for"),
            (|elf| elf.soname = None, "its name"),
            (|elf| elf.has_debug = true, "left in"),
            (
                |elf| elf.exported.retain(|name| name != "quoit_turn@QUOIT_0.1"),
                "quoit_turn@QUOIT_0.1 is gone",
            ),
            (
                |elf| elf.exported.extend(["quoit_turn".to_owned()]),
                "quoit_turn is not in",
            ),
            (
                |elf| elf.needed.push("libssl.so.3".to_owned()),
                "it needs libssl.so.3",
            ),
            (|elf| elf.glibc = Some((2, 34)), "of glibc"),
        ];
        for (fault, said) in faults {
            let mut elf = elf(ALL[0]);
            fault(&mut elf);
            let problems = shared_problems("it", &elf, ALL[0]);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(said), "{problems:?}");
        }
    }

    #[test]
    fn what_an_archive_lacks_is_named() {
        let mut tree = Tree::default();
        tree.add("x-1/README.md", "text");
        tree.add("x-1/empty", "");
        tree.add("stray", "text");
        let problems = lacking("x-1", &tree, &["README.md", "empty", "bin/quoit"]);
        assert_eq!(
            problems,
            [
                "x-1: empty is missing",
                "x-1: bin/quoit is missing",
                "x-1: stray is not in its folder"
            ]
        );
    }

    #[test]
    fn a_file_that_tells_where_it_was_built_is_found() {
        let mut tree = Tree::default();
        tree.add("good", "from /quoit/src");
        tree.add("bad", "from /home/me/quoit/src");
        let bytes = archive::gzip(&archive::tar("x-1", &tree, 0).unwrap()).unwrap();
        let folders = [Path::new("/home/me/quoit")];
        assert_eq!(telling("x-1.tar.gz", &bytes, &folders).unwrap(), ["x-1/bad"]);
        assert_eq!(telling("x", b"in /home/me/quoit/y", &folders).unwrap(), ["x"]);
    }

    #[test]
    fn a_program_has_to_be_static_and_runnable() {
        let this = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut tree = Tree::default();
        tree.add("x-1/bin/quoit", this);
        let problems = program_problems("x-1", &tree, ALL[2]).join("\n");
        assert!(problems.contains("bin/quoit cannot be run"), "{problems}");
        assert!(problems.contains("left in"), "{problems}");
        assert!(
            problems.contains("share/man/man1/quoit.1.gz is missing"),
            "{problems}"
        );
    }

    #[test]
    fn what_was_not_made_is_named() {
        let expected = expected("1.2.3");
        assert!(expected.contains(&"libquoit0_1.2.3_arm64.deb".to_owned()));
        let made: Vec<_> = expected
            .iter()
            .filter(|name| !name.ends_with(".crate"))
            .cloned()
            .collect();
        assert_eq!(missing(&expected, &made).len(), crates::PUBLISHED.len());
    }
}
