//! The results of a run, as a file: `results.json`.

mod environment;
#[cfg(test)]
pub(crate) mod example;
pub mod model;
mod validate;

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use super::error::{ReportError, Result};
use model::{Results, SCHEMA};

/// The least share of a second that a sample has to cover to stand for one.
pub const WHOLE_SECOND: f64 = 0.5;
/// The largest share of the window that a server's runtime may spend compiling: what it has not compiled well yet costs
/// several times what it will.
pub const MOST_COMPILING: f64 = 0.01;
/// What to do about a file that cannot be used.
const REMEDY: &str = "give a results.json that `quoit lab run` wrote";

/// Reads and checks the results of a run.
///
/// # Errors
/// The file cannot be read, is cut off, is something else, has another schema, or holds a number that cannot be
/// (one line: the file, what is wrong, what to do).
pub fn read(path: &Path) -> Result<Results> {
    let name = path.display();
    let text = fs::read_to_string(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => ReportError::new(format!("{name} is not text; {REMEDY}")),
        _ => ReportError::new(format!("reading {name}: {error}; {REMEDY}")),
    })?;
    parse(&text).map_err(|problem| ReportError::new(format!("{name} {problem}")))
}

/// Writes the results of a run; the file has all of it or is as it was before.
///
/// # Errors
/// A number is none (JSON would make a silent `null` of it), or the file cannot be written.
pub fn write(path: &Path, results: &Results) -> Result<()> {
    let name = path.display();
    validate::validate(results)
        .map_err(|problem| ReportError::new(format!("{name} was not written: {problem}")))?;
    let mut json = serde_json::to_string_pretty(results)
        .map_err(|error| ReportError::new(format!("{name} was not written: {error}")))?;
    json.push('\n');
    replace(path, json.as_bytes())
}

/// Puts a complete file in place of what is there: a reader never sees half of it. A link is followed. What is no file,
/// such as a pipe or `/dev/stdout`, is written to: in its place a file would be wrong, and `/dev` is everybody's.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |error: io::Error| {
        ReportError::new(format!(
            "writing {}: {error}; choose a folder that exists and may be written to",
            path.display()
        ))
    };
    let target = match fs::metadata(path) {
        Ok(there) if !there.is_file() => return fs::write(path, content).map_err(failed),
        Ok(_) => fs::canonicalize(path).map_err(failed)?,
        Err(_) => path.to_owned(),
    };
    let mut beside: OsString = target.as_os_str().to_owned();
    beside.push(format!(".{}.part", std::process::id()));
    fs::write(&beside, content)
        .and_then(|()| fs::rename(&beside, &target))
        .map_err(|error| {
            // It may never have been made.
            let _ = fs::remove_file(&beside);
            failed(error)
        })
}

/// The results in a text, or what is wrong with it, to stand behind the file's name.
pub(super) fn parse(text: &str) -> std::result::Result<Results, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        if error.is_eof() {
            format!(
                "is cut off (line {}): its run did not end, or the copy is not complete; copy it again or \
                 repeat the run",
                error.line()
            )
        } else {
            format!("is not JSON ({error}); {REMEDY}")
        }
    })?;
    match value.get("schema").map(Value::as_u64) {
        Some(Some(schema)) if schema == u64::from(SCHEMA) => {}
        Some(Some(schema)) => {
            let writer = value
                .pointer("/environment/quoit_version")
                .and_then(Value::as_str)
                .map_or_else(String::new, |version| {
                    format!(" (it was written by quoit {})", version.escape_debug())
                });
            return Err(format!(
                "has schema {schema}{writer}, this program reads schema {SCHEMA}; use the quoit that wrote it, or \
                 repeat the run with this one"
            ));
        }
        Some(None) | None => return Err(format!("holds no results of a run: it names no schema; {REMEDY}")),
    }
    // Parsed anew, because errors of a `Value` have no place.
    let results: Results = serde_json::from_str(text)
        .map_err(|error| format!("does not follow schema {SCHEMA} ({error}); {REMEDY}"))?;
    validate::validate(&results).map_err(|problem| format!("cannot be right: {problem}; {REMEDY}"))?;
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.json");
        fs::write(&path, text).expect("a file");
        let message = read(&path).expect_err("it is refused").to_string();
        assert!(!message.contains('\n'), "one line: {message}");
        message
            .strip_prefix(&path.display().to_string())
            .expect("it names the file")
            .to_owned()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.json");
        let results = example::results();
        write(&path, &results).expect("it is written");
        assert!(read(&path).expect("it is read") == results, "every digit is kept");
        let files = fs::read_dir(folder.path()).expect("the folder is there").count();
        assert_eq!(files, 1, "nothing else is left");
    }

    #[test]
    fn cut_off_and_foreign_files_are_told_apart() {
        let text = serde_json::to_string_pretty(&example::results()).expect("JSON");
        for end in [1, text.len() / 2, text.len() - 2] {
            let message = refused(&text[..end]);
            assert!(message.contains("is cut off"), "{message}");
        }
        assert!(refused("").contains("is cut off"));
        assert!(refused("<html>").contains("is not JSON"));
        assert!(refused("[1, 2]").contains("names no schema"));
        assert!(refused(r#"{"schema": "one"}"#).contains("names no schema"));
        let message = refused(r#"{"schema": 9, "environment": {"quoit_version": "7.1"}}"#);
        assert!(
            message.contains("has schema 9 (it was written by quoit 7.1)")
                && message.contains("repeat the run"),
            "{message}"
        );
        let message = refused(r#"{"schema": 2}"#);
        assert!(
            message.contains("missing field `experiment` at line 1"),
            "{message}"
        );
    }

    #[test]
    fn a_file_that_is_not_there_or_not_text_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.json");
        let message = read(&path).expect_err("it is not there").to_string();
        assert!(message.contains("results.json: No such file"), "{message}");
        fs::write(&path, [0xff, 0xfe]).expect("a file");
        let message = read(&path).expect_err("it is not text").to_string();
        assert!(message.contains("is not text"), "{message}");
    }

    #[test]
    fn numbers_that_cannot_be_are_neither_written_nor_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("results.json");
        let mut results = example::results();
        results.cases[0].servers[0].figures.generator_cpu_ns_per_unit = Some(f64::NAN);
        let message = write(&path, &results).expect_err("it is refused").to_string();
        assert!(
            message.contains("generator_cpu_ns_per_unit") && message.contains("NaN"),
            "{message}"
        );
        assert!(!path.exists());

        let text = serde_json::to_string(&example::results()).expect("JSON");
        let message = refused(&text.replacen("\"band\":", "\"band\":1e999,\"x\":", 1));
        assert!(message.contains("number out of range"), "{message}");
        let message = refused(&text.replacen("\"band\":", "\"band\":0.5,\"x\":", 1));
        assert!(
            message.contains("band is 0.5") && message.contains("case"),
            "{message}"
        );
    }
}
