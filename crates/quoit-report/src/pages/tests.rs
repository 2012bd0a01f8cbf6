//! Pages from made-up results.

use super::*;
use crate::results::example;
use crate::results::model::Verdict;

fn known() -> Vec<Known> {
    ["plaintext", "netty", "kestrel"]
        .map(|name| Known {
            name: name.to_owned(),
            title: format!("What does {name} ask?"),
            servers: servers(),
        })
        .into()
}

/// Those of the example.
fn servers() -> BTreeMap<String, Vec<Ecosystem>> {
    let of = |server: &str| match server {
        "gnet" => Ecosystem::Go,
        _ => Ecosystem::Rust,
    };
    let results = results();
    let servers = results.cases.iter().flat_map(|case| &case.servers);
    servers
        .map(|server| (server.server.clone(), vec![of(&server.server)]))
        .collect()
}

/// The example with names that the experiments of the program have.
fn results() -> Results {
    let mut results = example::results();
    let name = |server: &mut String| *server = server.replace('/', "-");
    for case in &mut results.cases {
        name(&mut case.baseline);
        case.controls
            .iter_mut()
            .for_each(|control| name(&mut control.server));
        case.servers
            .iter_mut()
            .for_each(|server| name(&mut server.server));
        for comparison in &mut case.comparisons {
            name(&mut comparison.server);
            name(&mut comparison.against);
        }
        for slice in &mut case.slices {
            name(&mut slice.server);
            name(&mut slice.series);
        }
    }
    results
}

struct Folders {
    folder: tempfile::TempDir,
    arguments: PagesArguments,
}

impl Folders {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let docs = folder.path().join("docs");
        fs::create_dir(&docs).expect("a folder");
        let arguments = PagesArguments {
            files: Vec::new(),
            results: folder.path().join("results"),
            docs,
            check: false,
        };
        Self { folder, arguments }
    }

    /// A run's file, as `quoit lab run` leaves it.
    fn run_file(&self, results: &Results) -> PathBuf {
        let path = self.folder.path().join("results.json");
        results::write(&path, results).expect("it is written");
        path
    }

    fn pages(&mut self, files: Vec<PathBuf>, check: bool) -> Result<()> {
        (self.arguments.files, self.arguments.check) = (files, check);
        run(&self.arguments, &known())
    }

    fn text(&self, page: &str) -> String {
        fs::read_to_string(self.arguments.docs.join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
    }
}

#[test]
fn a_run_becomes_its_page_and_a_line_of_the_others() {
    let mut folders = Folders::new();
    let file = folders.run_file(&results());
    folders.pages(vec![file], false).expect("the pages are written");

    let page = folders.text("results/plaintext.md");
    assert!(page.starts_with("# Plaintext over many connections (plaintext)\n"));
    for part in [
        "Measured on 28 May 2026 at commit 0123456789ab. Linux 6.18.0, Example Processor 9000, 2 core(s)",
        "](plaintext.svg)",
        "| quoit-uring | quoit-epoll | **win** | 0.900 [0.887, 0.9",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let index = folders.text("results.md");
    assert!(index.contains("| [plaintext](results/plaintext.md) |"), "{index}");
    assert!(index.contains("- `kestrel`: What does kestrel ask?"), "{index}");
    let losses = index.split("## Losses").nth(1).expect("there are losses");
    assert!(
        losses
            .lines()
            .nth(2)
            .is_some_and(|line| line.contains("takes 1.760 ")),
        "the largest is the first: {losses}"
    );
    folders
        .pages(Vec::new(), true)
        .expect("nothing has changed since");
}

#[test]
fn one_picture_has_what_is_won_and_what_is_lost() {
    let mut folders = Folders::new();
    let file = folders.run_file(&results());
    folders.pages(vec![file], false).expect("the pages are written");
    for picture in ["results/pay-rust.svg", "results/pay.svg"] {
        let svg = folders.text(picture);
        for word in ["win", "LOSS"] {
            assert!(svg.contains(word), "{word} in {picture}");
        }
        // Of the rivals we see our cost over theirs: tokio's is 1.2 times ours.
        assert!(
            svg.contains("quoit-epoll : tokio") && svg.contains("0.833"),
            "{picture}"
        );
    }
    // Of Go there is one server, and none of ours beside it.
    assert!(folders.text("results/pay-go.svg").contains("not measured yet"));
    let page = folders.text("does-it-pay.md");
    assert!(
        page.contains(
            "[plaintext](results/plaintext.md), 128 connections, 16 deep: quoit-uring costs 1.150 "
        ),
        "{page}"
    );
}

#[test]
fn a_comparison_that_is_turned_round_says_the_same() {
    let results = results();
    let pictures = pay::pictures(std::slice::from_ref(&results), &known()).expect("they can be drawn");
    let rust = &pictures
        .iter()
        .find(|(name, _)| *name == "pay-rust")
        .expect("it is there")
        .1;
    // The floor beats our baseline: a loss of ours.
    let judged = view_of(&results, "floor-epoll");
    assert_eq!(judged, Verdict::Loss);
    let row = rust
        .split("quoit-epoll : floor-epoll")
        .nth(1)
        .expect("the row is there");
    let label = row.split("<text ").nth(1).expect("its label");
    assert!(label.contains("1.06") && label.contains("LOSS"), "{label}");
}

fn view_of(results: &Results, server: &str) -> Verdict {
    crate::report::view::judged(&results.cases[0])
        .iter()
        .find(|judged| judged.comparison.server == server)
        .expect("it is compared")
        .for_quoit()
}

#[test]
fn what_was_changed_by_hand_or_left_behind_is_found() {
    let mut folders = Folders::new();
    let file = folders.run_file(&results());
    folders.pages(vec![file], false).expect("the pages are written");
    let docs = folders.arguments.docs.clone();

    fs::write(docs.join("does-it-pay.md"), "Always.").expect("a file");
    let message = folders
        .pages(Vec::new(), true)
        .expect_err("it is found")
        .to_string();
    assert!(
        message.contains("does-it-pay.md is not what its result files give")
            && message.contains("make result-pages"),
        "{message}"
    );
    folders
        .pages(Vec::new(), false)
        .expect("the pages are written again");

    fs::remove_file(folders.arguments.results.join("plaintext.json")).expect("it was there");
    let message = folders
        .pages(Vec::new(), true)
        .expect_err("it is found")
        .to_string();
    assert!(
        message.contains("plaintext.md belongs to no result file"),
        "{message}"
    );
    folders
        .pages(Vec::new(), false)
        .expect("the pages are written again");
    assert!(!docs.join("results/plaintext.md").exists());
    assert!(folders.text("results/pay.svg").contains("Not measured yet"));
}

#[test]
fn a_server_is_on_the_pictures_of_its_ecosystem_and_of_no_other() {
    let (results, mut known) = (results(), known());
    let all = std::slice::from_ref(&results);
    let shown = |known: &[Known], file: &str| {
        let pictures = pay::pictures(all, known).expect("they can be drawn");
        let picture = pictures.into_iter().find(|(name, _)| *name == file);
        picture.expect("it is there").1.contains("quoit-epoll : tokio")
    };
    assert!(shown(&known, "pay-rust") && !shown(&known, "pay-async"));
    for experiment in &mut known {
        for name in ["tokio", "quoit-epoll"] {
            experiment
                .servers
                .insert(name.to_owned(), vec![Ecosystem::AsyncRust]);
        }
    }
    assert!(!shown(&known, "pay-rust"), "the names alone say nothing");
}

#[test]
fn a_server_that_says_nothing_of_its_ecosystem_is_named() {
    let mut folders = Folders::new();
    let file = folders.run_file(&results());
    folders
        .pages(vec![file.clone()], false)
        .expect("the pages are written");
    let mut lacking = known();
    for experiment in &mut lacking {
        experiment.servers.remove("tokio");
    }
    for files in [vec![file], Vec::new()] {
        folders.arguments.files = files;
        let message = run(&folders.arguments, &lacking)
            .expect_err("it is refused")
            .to_string();
        assert!(
            message.contains("`tokio`") && message.contains("lab/servers.toml"),
            "{message}"
        );
    }
}

#[test]
fn what_is_kept_is_small_and_whole() {
    let mut folders = Folders::new();
    let mut run = results();
    run.incomplete = Some("it was interrupted".to_owned());
    let file = folders.run_file(&run);
    let message = folders
        .pages(vec![file], false)
        .expect_err("it is refused")
        .to_string();
    assert!(
        message.contains("its run did not end (it was interrupted)"),
        "{message}"
    );

    run.incomplete = None;
    run.experiment.name = "my-own".to_owned();
    let file = folders.run_file(&run);
    let message = folders
        .pages(vec![file], false)
        .expect_err("it is refused")
        .to_string();
    assert!(message.contains("no experiment `my-own`"), "{message}");

    let file = folders.run_file(&results());
    folders
        .pages(vec![file.clone()], false)
        .expect("the pages are written");
    let size = |path: &Path| fs::metadata(path).expect("it is there").len();
    let kept = folders.arguments.results.join("plaintext.json");
    assert!(size(&kept) * 4 < size(&file), "the slices are not kept");

    fs::rename(&kept, kept.with_file_name("netty.json")).expect("it was there");
    let message = folders
        .pages(Vec::new(), false)
        .expect_err("it is refused")
        .to_string();
    assert!(
        message.contains("holds results of the experiment `plaintext`"),
        "{message}"
    );
}
