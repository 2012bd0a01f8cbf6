//! Links to files, and to headings in them. What is on the network is not asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::tree;

/// What a document has that matters to links.
#[derive(Default)]
struct Document {
    /// Where its links and pictures lead, as they are written.
    links: Vec<String>,
    /// The names that its headings can be reached by.
    anchors: BTreeSet<String>,
}

fn read(text: &str) -> Document {
    let mut document = Document::default();
    let mut heading: Option<String> = None;
    for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH) {
        match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                document.links.push(dest_url.into_string());
            }
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::End(TagEnd::Heading(_)) => {
                let anchor = anchor(&heading.take().unwrap());
                let mut name = anchor.clone();
                // Forges number headings that are there again.
                for number in 1.. {
                    if document.anchors.insert(name) {
                        break;
                    }
                    name = format!("{anchor}-{number}");
                }
            }
            Event::Text(part) | Event::Code(part) => {
                if let Some(heading) = &mut heading {
                    heading.push_str(&part);
                }
            }
            _ => {}
        }
    }
    document
}

/// The name that forges give a heading: its letters and digits in lower case, and hyphens for spaces.
fn anchor(heading: &str) -> String {
    heading
        .to_lowercase()
        .chars()
        .filter(|character| character.is_alphanumeric() || " -_".contains(*character))
        .map(|character| if character == ' ' { '-' } else { character })
        .collect()
}

/// What is wrong with the links of these documents.
fn broken(root: &Path, documents: &BTreeMap<PathBuf, Document>) -> Vec<String> {
    let mut broken = Vec::new();
    for (path, document) in documents {
        for link in &document.links {
            if ["http://", "https://", "mailto:"]
                .iter()
                .any(|scheme| link.starts_with(scheme))
            {
                continue;
            }
            let (file, anchor) = link
                .split_once('#')
                .map_or((link.as_str(), None), |(file, anchor)| (file, Some(anchor)));
            let target = match file {
                "" => path.clone(),
                _ => tree::plain(&path.parent().unwrap().join(file)),
            };
            let place = path.strip_prefix(root).unwrap().display();
            if !file.is_empty() && (!target.starts_with(root) || !target.exists()) {
                broken.push(format!("{place}: {link} leads to no file"));
            } else if let Some(anchor) = anchor
                && !documents
                    .get(&target)
                    .is_some_and(|target| target.anchors.contains(anchor))
            {
                broken.push(format!("{place}: {link} leads to no heading"));
            }
        }
    }
    broken
}

#[test]
fn every_link_leads_somewhere() {
    let paths = tree::documents();
    let documents: BTreeMap<PathBuf, Document> = paths
        .into_iter()
        .map(|path| {
            let text = std::fs::read_to_string(&path).unwrap();
            (path, read(&text))
        })
        .collect();
    assert!(documents.len() > 20, "the documents are found");
    let broken = broken(&tree::root(), &documents);
    assert!(
        broken.is_empty(),
        "{} broken links:\n{}",
        broken.len(),
        broken.join("\n")
    );
}

#[test]
fn broken_links_are_found() {
    let root = tree::root();
    let text = "# One `two`: three\n\n# Again\n\n# Again\n\n[a](#one-two-three) [b](#again-1) [c](../README.md) ![d](none.svg) \
                [e](#again-2) [f](../../outside.md) `[g](none.md)` [h](https://localhost/none)\n";
    let documents = BTreeMap::from([(root.join("docs/made-up.md"), read(text))]);
    let found = broken(&root, &documents);
    let expected = [
        "none.svg leads to no file",
        "#again-2 leads to no heading",
        "../../outside.md leads to no file",
    ];
    assert_eq!(
        found,
        expected.map(|problem| format!("docs/made-up.md: {problem}"))
    );
}
