//! What can go wrong in a measurement.

use std::fmt;
use std::io;

/// A measurement that failed: what failed, on what, and where it is known what to do next.
#[derive(Debug)]
pub(crate) struct LabError {
    message: String,
    is_usage: bool,
}

impl LabError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            is_usage: false,
        }
    }

    /// The same as a mistake of the user's in the command line or in a file.
    pub(crate) fn into_usage(self) -> Self {
        Self {
            is_usage: true,
            ..self
        }
    }

    /// Whether it is a mistake in the command line or in a file.
    pub(crate) fn is_usage(&self) -> bool {
        self.is_usage
    }

    /// Puts what was being done in front of the operating system's error.
    pub(crate) fn io(doing: impl fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::new(format!("{doing}: {error}"))
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for LabError {}

/// The result of everything in the lab that can fail.
pub(crate) type Result<T> = std::result::Result<T, LabError>;
