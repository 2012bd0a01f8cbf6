//! The public API of the crate `quoit` is the file `crates/quoit/public-api.txt`, a line for each item. The test here makes
//! that list anew and compares, so that a change of the API is seen in a review. `make public-api` writes the file.
//!
//! Items that documentation hides are not in it: no version promises anything of them.

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use serde_json::Value;

    /// The format of rustdoc's JSON that the library here reads. Compilers of other versions write others.
    const FORMAT: u64 = 57;
    /// Set to write the file in place of comparing it.
    const WRITE: &str = "QUOIT_WRITE_PUBLIC_API";

    /// What documentation hides, by the beginning of its path.
    const HIDDEN: &str = "quoit::internals";
    /// What the front page shows of it, which rustdoc names by where else it is.
    const SHOWN: [(&str, &str); 7] = [
        ("quoit::internals::engine::EngineKind", "quoit::EngineKind"),
        (
            "quoit::internals::engine::uring::Capabilities",
            "quoit::Capabilities",
        ),
        ("quoit::internals::engine::uring::Missing", "quoit::Missing"),
        ("quoit::internals::engine::uring::Telling", "quoit::Telling"),
        ("quoit::internals::sys::DatagramOption", "quoit::DatagramOption"),
        ("quoit::internals::sys::SocketOption", "quoit::SocketOption"),
        ("quoit::internals::sys::Time", "quoit::Time"),
    ];

    fn file() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../quoit/public-api.txt")
    }

    /// The API of the sources, a line for each item; `None`, and a word that says why, if this compiler cannot tell.
    fn listed() -> Option<String> {
        // Not the workspace's own folder: what is built there is built with other flags.
        let folder = tempfile::tempdir().expect("a folder");
        let output = Command::new(env!("CARGO"))
            .args([
                "rustdoc",
                "--quiet",
                "--offline",
                "--locked",
                "--package",
                "quoit",
                "--lib",
            ])
            .arg("--target-dir")
            .arg(folder.path())
            .args([
                "--",
                "-Zunstable-options",
                "--output-format=json",
                "--cap-lints=allow",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            // The stable compiler writes JSON, too, if it is let.
            .env("RUSTC_BOOTSTRAP", "1")
            .env_remove("RUSTFLAGS")
            .env_remove("RUSTDOCFLAGS")
            .output()
            .expect("cargo runs");
        assert!(
            output.status.success(),
            "cargo rustdoc failed: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let json = folder.path().join("doc/quoit.json");
        let value: Value =
            serde_json::from_slice(&fs::read(&json).expect("it was written")).expect("it is JSON");
        let format = value["format_version"].as_u64();
        if format != Some(FORMAT) {
            quoit_skipped::skip_this(format_args!(
                "this compiler's rustdoc writes format {format:?}, and {FORMAT} is read here (Rust 1.95)"
            ));
            return None;
        }
        let api = public_api::Builder::from_rustdoc_json(json)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .expect("the format is the one that is read");
        // An item that is exported twice is there twice.
        let lines: BTreeSet<String> = api.items().map(|item| shown(&item.to_string())).collect();
        let lines = lines.iter().filter(|line| !is_hidden(line));
        Some(lines.map(|line| format!("{line}\n")).collect())
    }

    /// A line with the names that the front page has.
    fn shown(line: &str) -> String {
        SHOWN.iter().fold(line.to_owned(), |line, (written, shown)| {
            // Not what only begins likewise.
            let mut renamed = String::new();
            let mut rest = line.as_str();
            while let Some(at) = rest.find(written) {
                let end = at + written.len();
                let is_whole = !rest[end..].starts_with(|next: char| next.is_alphanumeric() || next == '_');
                renamed += &rest[..at];
                renamed += if is_whole { shown } else { written };
                rest = &rest[end..];
            }
            renamed + rest
        })
    }

    /// Whether a line tells of something that documentation hides. What is shown may name it, as a bound.
    fn is_hidden(line: &str) -> bool {
        let is_path_hidden = |path: &str| {
            path.strip_prefix(HIDDEN)
                .is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
        };
        if let Some(rest) = line.strip_prefix("impl") {
            return behind_generics(rest)
                .split(" for ")
                .any(|path| is_path_hidden(path.trim_start_matches(['&', '!', ' '])));
        }
        let path = line.split(' ').find(|word| word.contains("quoit"));
        is_path_hidden(path.unwrap_or_default())
    }

    /// What follows the parameters of an `impl`.
    fn behind_generics(rest: &str) -> &str {
        let mut depth = 0;
        let end = rest.char_indices().find(|(at, letter)| {
            match letter {
                '<' => depth += 1,
                // Not that of an arrow.
                '>' if !rest[..*at].ends_with('-') => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        end.map_or(rest, |(at, letter)| &rest[at + letter.len_utf8()..])
            .trim_start()
    }

    #[test]
    fn the_public_api_is_the_one_in_its_file() {
        let Some(listed) = listed() else { return };
        if std::env::var_os(WRITE).is_some() {
            fs::write(file(), listed).expect("the file can be written");
            return;
        }
        let kept = fs::read_to_string(file()).expect("the file is there");
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let (kept, listed) = (lines(&kept), lines(&listed));
        let changes: Vec<String> = kept
            .difference(&listed)
            .map(|line| format!("- {line}"))
            .chain(listed.difference(&kept).map(|line| format!("+ {line}")))
            .collect();
        assert!(
            changes.is_empty(),
            "the public API has changed; if that is meant, run `make public-api`, and tell it in CHANGELOG.md:\n{}",
            changes.join("\n")
        );
    }

    #[test]
    fn nothing_beneath_the_api_is_in_it() {
        let kept = fs::read_to_string(file()).expect("the file is there");
        let beneath: Vec<&str> = kept.lines().filter(|line| is_hidden(line)).collect();
        assert!(beneath.is_empty(), "{beneath:#?}");
        for item in [
            "pub trait quoit::Handler",
            "pub struct quoit::Runtime",
            "pub struct quoit::Lease",
            "pub enum quoit::EngineKind",
            "pub quoit::EngineKind::Uring",
        ] {
            assert!(kept.lines().any(|line| line.starts_with(item)), "{item}");
        }
    }

    #[test]
    fn what_is_hidden_is_known_by_its_path() {
        for hidden in [
            "pub trait quoit::internals::sys::SocketSys",
            "pub fn quoit::internals::engine::Engine::kind(&self) -> quoit::EngineKind",
            "pub mod quoit::internals",
            "impl quoit::internals::engine::Engine for quoit::internals::AnyEngine",
            "impl<S: quoit::internals::engine::uring::sys::UringSys> core::fmt::Debug for quoit::internals::engine::uring::UringEngine<S>",
        ] {
            assert!(is_hidden(hidden), "{hidden}");
        }
        for item in [
            "impl<E: quoit::internals::engine::Engine, K: quoit::internals::sys::SocketSys> quoit::Loop<E, K>",
            "pub fn quoit::Loop<E, K>::engine(&self) -> quoit::EngineKind",
            "pub struct quoit::internals_of::Thing",
        ] {
            assert!(!is_hidden(item), "{item}");
        }
        assert_eq!(
            shown("a quoit::internals::sys::Time b quoit::internals::sys::Timer"),
            "a quoit::Time b quoit::internals::sys::Timer"
        );
    }
}
