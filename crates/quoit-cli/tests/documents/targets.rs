//! The targets of the Makefile that documents name.

use std::collections::BTreeSet;

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::tree;

/// The targets that a document tells its readers to make: `make NAME` at the beginning of code or of a line of it.
fn named(text: &str) -> BTreeSet<String> {
    let mut named = BTreeSet::new();
    let mut is_block = false;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        let code = match event {
            Event::Start(Tag::CodeBlock(_)) => {
                is_block = true;
                continue;
            }
            Event::End(TagEnd::CodeBlock) => {
                is_block = false;
                continue;
            }
            Event::Text(text) if is_block => text,
            Event::Code(code) => code,
            _ => continue,
        };
        for line in code.lines() {
            let mut words = line.trim_start_matches("$ ").split_whitespace();
            if words.next() == Some("make") {
                // Neither options nor variables.
                named.extend(
                    words
                        .take(1)
                        .filter(|word| !word.starts_with('-') && !word.contains('='))
                        .map(str::to_owned),
                );
            }
        }
    }
    named
}

#[test]
fn documents_name_targets_that_there_are() {
    let makefile = std::fs::read_to_string(tree::root().join("Makefile")).unwrap();
    let targets: BTreeSet<&str> = makefile
        .lines()
        .filter_map(|line| line.split_once(':').filter(|(_, rest)| !rest.starts_with('=')))
        .map(|(target, _)| target)
        .collect();
    let mut missing = Vec::new();
    let mut found = 0;
    for path in tree::documents() {
        // What was copied from earlier runs names the commands of then.
        if path.ends_with("results-history.md") {
            continue;
        }
        for target in named(&std::fs::read_to_string(&path).unwrap()) {
            found += 1;
            if !targets.contains(target.as_str()) {
                missing.push(format!("{}: make {target}", path.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    assert!(found > 20, "the targets are found, and not only {found}");
}

#[test]
fn targets_are_taken_from_code_alone() {
    let text = "Users make mistakes. `make demo`, `make -n test`, `make ci`\n\n```console\n$ make result NAME=x\n```\n";
    assert_eq!(
        named(text),
        BTreeSet::from(["ci", "demo", "result"].map(str::to_owned))
    );
}
