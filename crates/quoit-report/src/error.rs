//! What can go wrong with results.

use std::fmt;
use std::io;

/// What failed, on what, and where it is known what to do next, in one line.
#[derive(Debug)]
pub struct ReportError(String);

impl ReportError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }

    /// Puts what was being done in front of the operating system's error.
    pub(crate) fn io(doing: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(format!("{doing}: {error}"))
    }
}

impl fmt::Display for ReportError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for ReportError {}

/// The result of everything here that can fail.
pub type Result<T> = std::result::Result<T, ReportError>;
