//! What of io_uring the page on security says is used, held against the engine's source.

use std::collections::BTreeSet;
use std::fs;

use crate::tree;

/// What the table of the page has: operations, registrations, and flags of a ring.
const KINDS: [&str; 4] = [
    "IORING_OP_",
    "IORING_REGISTER_",
    "IORING_UNREGISTER_",
    "IORING_SETUP_",
];

/// The names of these kinds in a text. One in a comment alone counts too: a page that is too careful is not wrong.
fn named(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    text.split(|letter| !is_part(letter))
        .filter(|word| {
            KINDS
                .iter()
                .any(|kind| word.strip_prefix(kind).is_some_and(|rest| !rest.is_empty()))
        })
        .collect()
}

#[test]
fn the_page_on_security_names_what_the_engine_uses_of_io_uring() {
    let page = fs::read_to_string(tree::root().join("docs/security.md")).unwrap();
    let begin = page.find("## What Quoit uses of io_uring").expect("it is there");
    let table = &page[begin..page.find("**What follows").expect("it is there")];
    let folder = tree::root().join("crates/quoit/src/engine/uring");
    let sources: String = folder
        .read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "rs"))
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    assert_eq!(named(table), named(&sources));
}
