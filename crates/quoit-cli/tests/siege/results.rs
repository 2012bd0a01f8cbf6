//! What sieges have found, and the table of docs/reliability.md that is made of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::kinds::Kind;
use crate::servers::ROWS;

/// Of one server on one engine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Found {
    /// The kernel's version: `6.18`.
    kernel: String,
    /// The most turns that a request took.
    turns: BTreeMap<Kind, u64>,
    /// The most that was resident after a siege, in each round.
    resident_kib: [u64; 2],
}

impl Found {
    pub(crate) fn new(turns: BTreeMap<Kind, u64>, resident_kib: [u64; 2]) -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let version: Vec<_> = release.trim().split('.').take(2).collect();
        Self {
            kernel: version.join("."),
            turns,
            resident_kib,
        }
    }
}

/// By server and engine.
type Results = BTreeMap<String, BTreeMap<String, Found>>;

const KEPT: &str = "lab/siege/results.json";
const PAGE: &str = "docs/reliability.md";
const BEGIN: &str = "<!-- What `make siege` found, written by `make siege-page` -->\n";
const END: &str = "<!-- The end of what was found -->\n";
const ENGINES: [&str; 2] = ["uring", "epoll"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Where runs leave what they found.
fn runs() -> PathBuf {
    root().join("target/siege")
}

fn file(name: &str, engine: &str) -> PathBuf {
    runs().join(format!("{name}-{engine}.json"))
}

/// Takes away what an earlier siege has left: this one may fail.
pub(crate) fn forget(name: &str, engine: &str) {
    // There may be none.
    let _ = fs::remove_file(file(name, engine));
}

/// Leaves what a siege has found, in a file of its own.
pub(crate) fn write(name: &str, engine: &str, found: Found) {
    let results: Results = [(name.to_owned(), [(engine.to_owned(), found)].into())].into();
    fs::create_dir_all(runs()).unwrap();
    fs::write(file(name, engine), serde_json::to_string(&results).unwrap()).unwrap();
}

/// The tables.
fn tables(results: &Results) -> String {
    let mut page = String::from("\n| peers | how many | what they do |\n|---|---|---|\n");
    for kind in Kind::ALL {
        let count = kind
            .count()
            .map_or_else(|| "all".to_owned(), |count| count.to_string());
        let _ = writeln!(page, "| {} | {count} | {} |", kind.name(), kind.description());
    }
    let kernels: BTreeSet<_> = results
        .values()
        .flat_map(BTreeMap::values)
        .map(|found| found.kernel.as_str())
        .collect();
    let kernels: Vec<_> = kernels.into_iter().collect();
    let _ = writeln!(
        page,
        "\nThe most turns that a request took among them, on io_uring / on epoll, and the most MiB that were resident after a \
         siege of\nthe first round and of the second. Linux {}.\n",
        kernels.join(" and ")
    );
    let names = Kind::ALL.map(Kind::name).join(" | ");
    let _ = writeln!(page, "| server | {names} | resident |");
    let _ = writeln!(page, "|---|{}---|", "---|".repeat(Kind::ALL.len()));
    for row in ROWS {
        let of_row = results.get(row.name);
        let both = |cell: &dyn Fn(&Found) -> Option<String>| {
            let cells = ENGINES.map(|engine| of_row.and_then(|of_row| cell(of_row.get(engine)?)));
            match cells {
                [None, None] => String::new(),
                cells => cells
                    .map(|cell| cell.unwrap_or_else(|| "–".to_owned()))
                    .join(" / "),
            }
        };
        let _ = write!(page, "| {} |", row.title);
        for kind in Kind::ALL {
            let _ = write!(
                page,
                " {} |",
                both(&|found| found.turns.get(&kind).map(u64::to_string))
            );
        }
        let resident = both(&|found| {
            let [first, second] = found.resident_kib.map(|kib| kib as f64 / 1024.0);
            Some(format!("{first:.0}, {second:.0}"))
        });
        let _ = writeln!(page, " {resident} |");
    }
    page.push('\n');
    page
}

/// The page with these tables between the marks.
fn with_tables(page: &str, results: &Results) -> String {
    let (before, rest) = page.split_once(BEGIN).expect("the mark of the beginning");
    let (_, after) = rest.split_once(END).expect("the mark of the end");
    format!("{before}{BEGIN}{}{END}{after}", tables(results))
}

/// Adds what runs have left to what is kept, and writes the page from it.
#[test]
#[ignore = "writes docs/reliability.md: make siege-page"]
fn page() {
    let kept = root().join(KEPT);
    let mut results: Results = match fs::read_to_string(&kept) {
        Ok(text) => serde_json::from_str(&text).unwrap(),
        Err(_) => Results::new(),
    };
    for entry in fs::read_dir(runs()).expect("`make siege` has left something") {
        let text = fs::read_to_string(entry.unwrap().path()).unwrap();
        let found: Results = serde_json::from_str(&text).unwrap();
        for (name, engines) in found {
            results.entry(name).or_default().extend(engines);
        }
    }
    results.retain(|name, _| ROWS.iter().any(|row| row.name == name));
    fs::create_dir_all(kept.parent().unwrap()).unwrap();
    fs::write(&kept, serde_json::to_string_pretty(&results).unwrap() + "\n").unwrap();
    let page = root().join(PAGE);
    let text = fs::read_to_string(&page).unwrap();
    fs::write(page, with_tables(&text, &results)).unwrap();
}

#[test]
fn the_page_is_what_was_kept() {
    let results: Results = serde_json::from_str(&fs::read_to_string(root().join(KEPT)).unwrap()).unwrap();
    let page = fs::read_to_string(root().join(PAGE)).unwrap();
    assert!(with_tables(&page, &results) == page, "run: make siege-page");
}
