//! Commands with placeholders: `{quoit} serve echo --listen {listen}`.
//!
//! A command is split into words first and its placeholders are filled in afterwards, so that a value with a space
//! in it stays one word. No shell runs.

use std::collections::BTreeMap;

/// What may stand in the command, the environment and the needs of a server.
pub(crate) const SERVER_NAMES: &[&str] = &[
    "quoit", "bin", "peers", "host", "port", "listen", "protocol", "work", "cores", "folder", "metrics",
];

/// What may stand in those of a client: what a server's may, but for its own listening.
pub(crate) const CLIENT_NAMES: &[&str] = &[
    "quoit",
    "bin",
    "peers",
    "connect",
    "connections",
    "seconds",
    "warm_up",
    "server",
    "protocol",
    "cores",
    "folder",
];

/// What may stand in `needs`, which is looked at before anything runs.
pub(crate) const NEEDS_NAMES: &[&str] = &["quoit", "bin", "peers"];

/// What may stand in the command that starts a remote generator.
pub(crate) const GENERATOR_NAMES: &[&str] = &["generator", "arguments"];

/// What the placeholders stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Values(BTreeMap<&'static str, String>);

impl Values {
    /// Sets what `{name}` stands for.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) -> &mut Self {
        self.0.insert(name, value.into());
        self
    }
}

/// A part of a word.
#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Text(&'a str),
    Name(&'a str),
}

/// Splits a command as a POSIX shell does: quotes and backslashes, but no expansions.
///
/// # Errors
/// A quote is not closed, or there is no word.
pub(crate) fn split(command: &str) -> Result<Vec<String>, String> {
    let words = shell_words::split(command).map_err(|_| "a quote is not closed".to_owned())?;
    if words.is_empty() {
        return Err("is empty".to_owned());
    }
    Ok(words)
}

/// Checks that every placeholder of a word is one of `known`, and returns those that it has.
///
/// # Errors
/// An unknown placeholder, or a brace that belongs to none.
pub(crate) fn check<'a>(word: &'a str, known: &[&str]) -> Result<Vec<&'a str>, String> {
    let pieces = parse(word)?;
    let names = pieces.into_iter().filter_map(|piece| match piece {
        Piece::Name(name) => Some(name),
        Piece::Text(_) => None,
    });
    names
        .map(|name| {
            if known.contains(&name) {
                Ok(name)
            } else {
                Err(format!(
                    "`{{{name}}}` is not a placeholder{}; known here: {}",
                    super::nearest::nearest(name, known.iter().copied()),
                    known.join(", ")
                ))
            }
        })
        .collect()
}

/// Fills in one word.
///
/// # Errors
/// A placeholder has no value.
pub(crate) fn expand_word(word: &str, values: &Values) -> Result<String, String> {
    let mut expanded = String::new();
    for piece in parse(word)? {
        match piece {
            Piece::Text(text) => expanded.push_str(text),
            Piece::Name(name) => {
                let value = values.0.get(name);
                expanded.push_str(value.ok_or_else(|| format!("`{{{name}}}` has no value here"))?);
            }
        }
    }
    Ok(expanded)
}

/// Fills in all words of a command.
///
/// # Errors
/// As [`expand_word`].
pub(crate) fn expand(words: &[String], values: &Values) -> Result<Vec<String>, String> {
    words.iter().map(|word| expand_word(word, values)).collect()
}

/// Fills in the command that starts a remote generator with the generator's own words. A placeholder that is a
/// whole word becomes all of them; within a word they become one line that a shell splits into them again.
///
/// # Errors
/// As [`expand_word`].
pub(crate) fn expand_generator(words: &[String], generator: &[String]) -> Result<Vec<String>, String> {
    let arguments = generator.get(1..).unwrap_or_default();
    let mut lines = Values::default();
    lines
        .set("generator", shell_words::join(generator))
        .set("arguments", shell_words::join(arguments));
    let mut expanded = Vec::new();
    for word in words {
        match word.as_str() {
            "{generator}" => expanded.extend_from_slice(generator),
            "{arguments}" => expanded.extend_from_slice(arguments),
            _ => expanded.push(expand_word(word, &lines)?),
        }
    }
    Ok(expanded)
}

fn parse(word: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = word;
    while let Some(brace) = rest.find(['{', '}']) {
        if brace > 0 {
            pieces.push(Piece::Text(&rest[..brace]));
        }
        let doubled = &rest[brace..=brace];
        let after = &rest[brace + 1..];
        if let Some(after) = after.strip_prefix(doubled) {
            pieces.push(Piece::Text(doubled));
            rest = after;
            continue;
        }
        let name = after.split_once('}').filter(|(name, _)| {
            doubled == "{"
                && !name.is_empty()
                && name
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        let Some((name, after)) = name else {
            return Err(format!(
                "the brace in `{word}` belongs to no placeholder; write `{doubled}{doubled}` for the character itself"
            ));
        };
        pieces.push(Piece::Name(name));
        rest = after;
    }
    if !rest.is_empty() {
        pieces.push(Piece::Text(rest));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_value_with_spaces_stays_one_word() {
        let mut values = Values::default();
        values.set("bin", "/my programs").set("port", "80");
        let command = split(r#""{bin}/x" --address 127.0.0.1:{port} '' "{{a b}}""#).expect("it can be split");
        assert_eq!(
            expand(&command, &values),
            Ok(words(&[
                "/my programs/x",
                "--address",
                "127.0.0.1:80",
                "",
                "{a b}"
            ]))
        );
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(split("sh -c 'x"), Err("a quote is not closed".to_owned()));
        assert_eq!(split("  "), Err("is empty".to_owned()));
        let unknown = check("{lisen}", SERVER_NAMES).expect_err("there is no such name");
        assert!(
            unknown.contains("`{lisen}` is not a placeholder; did you mean `listen`?"),
            "{unknown}"
        );
        for stray in ["{", "a}", "{}", "{ port }", "{a b}", "{{port}"] {
            let error = check(stray, SERVER_NAMES).expect_err(stray);
            assert!(error.contains("belongs to no placeholder"), "{error}");
        }
        assert_eq!(
            expand_word("{port}", &Values::default()),
            Err("`{port}` has no value here".to_owned())
        );
        assert_eq!(check("{host}:{port}", SERVER_NAMES), Ok(vec!["host", "port"]));
    }

    #[test]
    fn a_generator_is_words_or_a_line() {
        let generator = words(&["/opt/my quoit", "load", "--path", "/?a=1&b"]);
        assert_eq!(
            expand_generator(&words(&["ip", "netns", "exec", "x", "{generator}"]), &generator),
            Ok(words(&[
                "ip",
                "netns",
                "exec",
                "x",
                "/opt/my quoit",
                "load",
                "--path",
                "/?a=1&b"
            ]))
        );
        let line = expand_generator(&words(&["ssh", "host", "nice quoit {arguments}"]), &generator);
        let line = line.expect("it is known");
        let [_, _, command] = &line[..] else {
            panic!("{line:?}")
        };
        assert_eq!(
            split(command),
            Ok(words(&["nice", "quoit", "load", "--path", "/?a=1&b"]))
        );
    }

    proptest! {
        #[test]
        fn escaped_text_comes_back(text in ".*") {
            let escaped = text.replace('{', "{{").replace('}', "}}");
            prop_assert_eq!(expand_word(&escaped, &Values::default()), Ok(text));
        }

        #[test]
        fn nothing_panics(text in ".*") {
            let _ = check(&text, SERVER_NAMES);
            let _ = split(&text);
        }
    }
}
