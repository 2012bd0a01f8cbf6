//! Why a run could not be made.

use std::fmt;

/// One line that says what failed, on what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadError(String);

impl LoadError {
    pub(crate) fn new(message: String) -> Self {
        LoadError(message)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for LoadError {}

/// What failed is one line already.
impl From<String> for LoadError {
    fn from(message: String) -> Self {
        LoadError(message)
    }
}
