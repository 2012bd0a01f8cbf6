//! `make dist`: from the checkout to the packages.

use std::time::Instant;

use crate::arguments::BuildArguments;
use crate::deb::{self, Package};
use crate::library::{Layout, Library, RELOCATABLE};
use crate::place::{self, Place};
use crate::program::Program;
use crate::target::{ALL, Libc, Target};
use crate::tree::Tree;
use crate::{archive, compile, crates, image, jni, manual, others, papers, rpm, sums, tools, verify};

const ABOUT_PROGRAM: &str = "\
The program says what io_uring gives a server on this machine (quoit doctor),
serves echo, HTTP and more on io_uring or epoll (quoit serve), and measures
servers (quoit load, quoit lab).";

const ABOUT_LIBRARY: &str = "\
Commands go in and events come out, with one call for each turn of a loop. On
io_uring where the kernel allows that, and on epoll elsewhere. The behaviour
is the same on both.";

const ABOUT_DEVELOPMENT: &str = "\
The header, the static library, and files for pkg-config and CMake.";

/// Why the program is as lintian does not want it.
const OVERRIDES: &str = "\
# It runs on every distribution, and so stands on no C library.
quoit: statically-linked-binary
";

/// How long each step takes, as it ends.
struct Steps {
    began: Instant,
    last: Instant,
}

impl Steps {
    fn done(&mut self, what: &str) {
        println!("dist: {what} took {:.0} s", self.last.elapsed().as_secs_f64());
        self.last = Instant::now();
    }
}

/// Builds everything; returns the exit status.
pub(crate) fn run(arguments: &BuildArguments) -> Result<u8, String> {
    let place = Place::find()?;
    let triples: Vec<_> = ALL.iter().map(|target| target.triple).collect();
    let others = if arguments.native {
        Vec::new()
    } else {
        others::missing(&place)?
    };
    tools::require_for_packing(&triples, others)?;
    if place.is_dirty {
        eprintln!(
            "quoit-dist: the checkout has changes that are in no commit; what is packed names {}",
            place.revision
        );
    }
    place::make_empty(&place.out())?;
    place::make_empty(&place.work())?;
    let now = Instant::now();
    let mut steps = Steps {
        began: now,
        last: now,
    };

    let library_papers = papers::make(&place, "quoit-capi")?;
    let program_papers = papers::make(&place, "quoit-cli")?;
    papers::bill(&place, "quoit-capi", "libquoit")?;
    papers::bill(&place, "quoit-cli", "quoit")?;
    steps.done("notices and bills of materials");
    crates::write(&place)?;
    steps.done("the crates");

    let libraries = compile::libraries(&place)?;
    steps.done("compiling the library");
    let programs = compile::programs(&place)?;
    steps.done("compiling the program");

    let libraries: Vec<_> = libraries
        .iter()
        .map(|built| Library::make(&place, built))
        .collect::<Result<_, _>>()?;
    let programs: Vec<_> = programs
        .iter()
        .map(|built| Program::make(&place, built))
        .collect::<Result<_, _>>()?;
    let pages = manual::pages(&place)?;
    let completions = manual::completions();
    for library in &libraries {
        write_library(&place, library, &library_papers)?;
    }
    for program in &programs {
        let mut tree = program.archived(&pages, &completions);
        add_documents(&mut tree, &place, &program_papers)?;
        write_archive(&place, "quoit", program.target, &tree)?;
        let mut debug = Tree::default();
        debug.add("bin/quoit.debug", program.debug.clone());
        write_archive(&place, "quoit-debug", program.target, &debug)?;
    }
    steps.done("the archives");

    for library in libraries
        .iter()
        .filter(|library| library.target.libc == Libc::Gnu)
    {
        let program = programs
            .iter()
            .find(|program| program.target.arch == library.target.arch)
            .ok_or("a processor has no program")?;
        for package in debs(program, library, &pages, &completions) {
            let papers = if package.name == "quoit" {
                &program_papers
            } else {
                &library_papers
            };
            deb::write(&place, library.target, package, &compressed(papers)?)?;
        }
        let mut tree = program.installed(&pages, &completions, false);
        tree.add_all("usr/share/doc/quoit", program_papers.clone());
        let layout = Layout {
            prefix: "/usr",
            lib: "lib64",
        };
        tree.add_all("usr", library.run_time(&layout));
        tree.add_all("usr", library.development(&layout));
        tree.add_all("usr/share/doc/libquoit0", library_papers.clone());
        let licences: Tree = without_notices(&library_papers);
        tree.add_all("usr/share/doc/libquoit-devel", licences);
        rpm::write(&place, library.target, &tree)?;
    }
    steps.done("the packages of distributions");

    let image = image::make(&place, &programs, &program_papers)?;
    place::write(
        &place.out().join(format!("quoit-{}-oci.tar", place.version)),
        image,
    )?;
    steps.done("the image");
    if !arguments.native {
        for built in compile::jni(&place)? {
            jni::write(&place, &built)?;
        }
        others::pack(&place)?;
        steps.done("the packages of other ecosystems");
    }
    sums::write(&place)?;
    println!(
        "dist: all of it took {:.0} s",
        steps.began.elapsed().as_secs_f64()
    );
    verify::run()
}

fn write_library(place: &Place, library: &Library, papers: &Tree) -> Result<(), String> {
    let mut tree = library.run_time(&RELOCATABLE);
    tree.0.extend(library.development(&RELOCATABLE).0);
    // Laid out for the scripts of other ecosystems, too.
    let folder = place.work().join("library").join(library.target.triple);
    tree.write_to(&folder)?;
    add_documents(&mut tree, place, papers)?;
    write_archive(place, "libquoit", library.target, &tree)?;
    let mut debug = Tree::default();
    debug.add(
        format!("lib/{}.debug", crate::library::shared_name(&place.version)),
        library.debug.clone(),
    );
    write_archive(place, "libquoit-debug", library.target, &debug)
}

fn add_documents(tree: &mut Tree, place: &Place, papers: &Tree) -> Result<(), String> {
    tree.0.extend(papers.clone().0);
    for name in ["README.md", "CHANGELOG.md"] {
        tree.add(name, place::bytes(&place.root.join(name))?);
    }
    Ok(())
}

fn write_archive(place: &Place, name: &str, target: Target, tree: &Tree) -> Result<(), String> {
    let name = format!("{name}-{}-{}", place.version, target.triple);
    let bytes = archive::gzip(&archive::tar(&name, tree, place.epoch)?)?;
    place::write(&place.out().join(format!("{name}.tar.gz")), bytes)
}

/// As Debian wants documents that are longer than a page; its `copyright` names the licences.
fn compressed(papers: &Tree) -> Result<Tree, String> {
    let mut tree = Tree::default();
    for (path, entry) in &papers.0 {
        if let crate::tree::Entry::File { bytes, .. } = entry
            && path == NOTICES
        {
            tree.add(format!("{path}.gz"), archive::gzip(bytes)?);
        }
    }
    Ok(tree)
}

const NOTICES: &str = "THIRD-PARTY-NOTICES.txt";

fn without_notices(papers: &Tree) -> Tree {
    let mut tree = papers.clone();
    tree.0.remove(NOTICES);
    tree
}

fn debs(
    program: &Program,
    library: &Library,
    pages: &Tree,
    completions: &[(clap_complete::Shell, &'static str, Vec<u8>)],
) -> [Package; 3] {
    let lib = format!("lib/{}", library.target.multiarch);
    let layout = Layout {
        prefix: "/usr",
        lib: &lib,
    };
    let mut run_time = Tree::default();
    run_time.add_all("usr", library.run_time(&layout));
    let mut development = Tree::default();
    development.add_all("usr", library.development(&layout));
    let (major, minor) = crate::target::GLIBC;
    [
        Package {
            name: "quoit",
            section: "net",
            depends: String::new(),
            summary: "network transport on io_uring: doctor, servers, load generator",
            description: ABOUT_PROGRAM,
            tree: program.installed(pages, completions, true),
            control: deb::service_scripts(),
            is_same_for_all_programs: false,
            overrides: Some(OVERRIDES),
        },
        Package {
            name: "libquoit0",
            section: "libs",
            depends: format!("libc6 (>= {major}.{minor})"),
            summary: "network transport on io_uring, with an epoll engine that behaves the same",
            description: ABOUT_LIBRARY,
            tree: run_time,
            control: vec![
                ("shlibs", "libquoit 0 libquoit0 (>= @VERSION@)\n".to_owned()),
                ("symbols", verify::SYMBOLS.to_owned()),
                ("triggers", "activate-noawait ldconfig\n".to_owned()),
            ],
            is_same_for_all_programs: true,
            overrides: None,
        },
        Package {
            name: "libquoit-dev",
            section: "libdevel",
            depends: "libquoit0 (= @VERSION@)".to_owned(),
            summary: "header and static library of Quoit",
            description: ABOUT_DEVELOPMENT,
            tree: development,
            control: Vec::new(),
            is_same_for_all_programs: true,
            overrides: None,
        },
    ]
}
