//! The commands in the documents, held against the program's own arguments.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use clap::error::ErrorKind;
use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

use super::Arguments;

/// Sub-commands by which a piece of code is known for a call of the program.
const COMMANDS: [&str; 4] = ["doctor", "lab", "load", "serve"];

/// The words of a call of the program, if the line is one. Options that are not written out are left out.
fn call(line: &str) -> Option<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ");
    let words = shell_words::split(line).ok()?;
    let mut words = words
        .into_iter()
        .take_while(|word| !word.starts_with('#') && word != "|");
    let program = words.next()?;
    if program != "quoit" && !program.ends_with("/quoit") {
        return None;
    }
    let words: Vec<String> = words.collect();
    let is_whole = words.iter().all(|word| word != "..." && word != "…");
    (is_whole
        && words
            .first()
            .is_some_and(|word| COMMANDS.contains(&word.as_str())))
    .then(|| {
        let mut call = vec!["quoit".to_owned()];
        call.extend(words);
        call
    })
}

/// The calls in a document: `(whether it is a line of a block, and so whole, its text)`.
fn calls(text: &str) -> Vec<(bool, String)> {
    let mut calls = Vec::new();
    let mut block: Option<String> = None;
    for event in Parser::new_ext(text, pulldown_cmark::Options::ENABLE_TABLES) {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(language)))
                if ["", "console", "sh"].contains(&language.as_ref()) =>
            {
                block = Some(String::new());
            }
            Event::Text(text) => {
                if let Some(block) = &mut block {
                    block.push_str(&text);
                }
            }
            Event::End(TagEnd::CodeBlock) => {
                let block = block.take().unwrap_or_default().replace("\\\n", " ");
                calls.extend(block.lines().map(|line| (true, line.to_owned())));
            }
            Event::Code(code) => calls.push((false, code.into_string())),
            _ => {}
        }
    }
    calls
}

/// Whether a piece of code within a sentence can be held against the arguments: not one with names in place of values, or
/// one that names an option of several sub-commands at once.
fn is_spelled_out(call: &[String]) -> bool {
    let is_name = |word: &String| {
        word.contains(['[', '|']) || word.len() > 1 && word.chars().all(|letter| letter.is_ascii_uppercase())
    };
    let is_general = call[1] != "doctor" && call.get(2).is_some_and(|word| word.starts_with('-'));
    !is_general && !call.iter().any(is_name)
}

/// What is wrong with a call. A piece of code within a sentence need not have all that the program asks for.
fn problem(is_whole: bool, call: &[String]) -> Option<String> {
    let error = Arguments::try_parse_from(call).err()?;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
            if !is_whole =>
        {
            None
        }
        _ => error.to_string().lines().next().map(str::to_owned),
    }
}

fn documents() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = Vec::new();
    for folder in ["", "docs", "docs/results", "lab/peers"] {
        let Ok(entries) = root.join(folder).read_dir() else {
            continue;
        };
        let paths = entries.map(|entry| entry.expect("an entry").path());
        documents.extend(paths.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    documents
}

#[test]
fn commands_in_documents_are_understood() {
    let mut problems = Vec::new();
    let mut understood = 0;
    for path in documents() {
        // What was copied from earlier runs names the commands of then.
        if path.ends_with("results-history.md") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("it can be read");
        for (is_whole, line) in calls(&text) {
            let Some(call) = call(&line).filter(|call| is_whole || is_spelled_out(call)) else {
                continue;
            };
            match problem(is_whole, &call) {
                Some(problem) => problems.push(format!("{}: `{}`: {problem}", path.display(), line.trim())),
                None => understood += 1,
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert!(
        understood > 40,
        "the commands are found, and not only {understood}"
    );
}

/// What follows `key` and a dash in YAML that has one value in a line.
fn list<'a>(yaml: &'a str, key: &str) -> Vec<&'a str> {
    let mut lines = yaml.lines().map(str::trim);
    lines.find(|line| *line == format!("{key}:"));
    lines
        .filter(|line| !line.starts_with('#'))
        .map_while(|line| line.strip_prefix("- "))
        .collect()
}

#[test]
fn the_job_of_kubernetes_is_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes/load");
    let read = |name: &str| fs::read_to_string(folder.join(name)).expect("it can be read");
    let (job, kustomization) = (read("job.yaml"), read("kustomization.yaml"));
    let mut values: Vec<(&str, &str)> = list(&kustomization, "literals")
        .into_iter()
        .map(|literal| literal.split_once('=').expect("a name and a value"))
        .collect();
    // Kubernetes sets it.
    values.push(("JOB_COMPLETION_INDEX", "7"));
    let words: Vec<String> = list(&job, "args")
        .into_iter()
        .map(|word| {
            values.iter().fold(word.to_owned(), |word, (name, value)| {
                word.replace(&format!("$({name})"), value)
            })
        })
        .collect();
    assert_eq!(words.first().map(String::as_str), Some("load"), "{words:?}");
    for option in ["--start-at=", "--label=7", "--seed=7", "--json"] {
        assert!(words.iter().any(|word| word.starts_with(option)), "{words:?}");
    }
    assert!(!words.iter().any(|word| word.contains('$')), "{words:?}");
    quoit_load::check(&words[1..]).expect("the program understands it");
}

#[test]
fn commands_that_are_not_understood_are_found() {
    let text = "Call `quoit serve echo --nothing` or `quoit load http`.\n\n```console\n$ quoit doctor --jsn   # a slip\n$ quoit load \
                http\n$ quoit doctor --json | head -3\n$ cargo run\n```\n";
    let found: Vec<String> = calls(text)
        .into_iter()
        .filter_map(|(is_whole, line)| Some((is_whole, call(&line)?, line)))
        .filter(|(is_whole, call, _)| problem(*is_whole, call).is_some())
        .map(|(_, _, line)| line)
        .collect();
    assert_eq!(
        found,
        [
            "quoit serve echo --nothing",
            "$ quoit doctor --jsn   # a slip",
            "$ quoit load http"
        ]
    );
}
