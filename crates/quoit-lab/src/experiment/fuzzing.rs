//! Files of experiments, given anything. See [`quoit_corpus`].

use super::{built_in, file};

/// A text is an experiment, or each of its mistakes is named with the file.
pub fn experiment(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let catalogue = built_in::catalogue().expect("the program's own servers are right");
    match file::read("own.toml", "own", text, catalogue) {
        Ok(experiment) => assert!(!experiment.cases.is_empty() && !experiment.servers.is_empty()),
        Err(error) => assert!(error.to_string().contains("own.toml"), "{error}"),
    }
    if let Err(error) = file::read_catalogue("servers.toml", text) {
        assert!(error.to_string().contains("servers.toml"), "{error}");
    }
}
