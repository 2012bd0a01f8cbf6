//! What the two programs share: their command lines, and what dnsperf reports.

mod statistics;

use std::str::FromStr;

pub use statistics::Statistics;

/// Options, each a word with a value, taken one after the other.
#[derive(Debug)]
pub struct Options {
    words: Vec<String>,
}

impl Options {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        Self {
            words: std::env::args().skip(1).collect(),
        }
    }

    /// The value of an option that may be left out.
    ///
    /// # Errors
    /// It is no value for the option, or is missing behind its name.
    pub fn take<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(place) = self.words.iter().position(|word| word == name) else {
            return Ok(None);
        };
        if place + 1 == self.words.len() {
            return Err(format!("{name} needs a value"));
        }
        let value = self.words.remove(place + 1);
        self.words.remove(place);
        let parsed = value.parse();
        parsed
            .map(Some)
            .map_err(|_| format!("`{value}` is no value for {name}"))
    }

    /// The value of an option that has to be there.
    ///
    /// # Errors
    /// As [`Options::take`], or it is not there.
    pub fn need<T: FromStr>(&mut self, name: &str) -> Result<T, String> {
        self.take(name)?.ok_or_else(|| format!("{name} is missing"))
    }

    /// Ends taking.
    ///
    /// # Errors
    /// Something is left.
    pub fn end(self) -> Result<(), String> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(format!("{word} is not known")),
        }
    }
}
