//! What can go wrong in a measurement.

use std::fmt;
use std::io;
use std::process::ExitCode;

use quoit_report::ReportError;

/// A measurement that failed: what failed, on what, and where it is known what to do next.
#[derive(Debug)]
pub(crate) struct LabError {
    message: String,
    kind: Kind,
}

/// Whose fault it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Something went wrong.
    Failure,
    /// There is a mistake in the command line or in a file.
    Usage,
    /// This machine lacks what it needs.
    NotHere,
}

impl LabError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            kind: Kind::Failure,
        }
    }

    /// The same as a mistake of the user's in the command line or in a file.
    pub(crate) fn into_usage(self) -> Self {
        Self {
            kind: Kind::Usage,
            ..self
        }
    }

    /// The same where nothing can be measured because of what this machine lacks.
    pub(crate) fn into_not_here(self) -> Self {
        Self {
            kind: Kind::NotHere,
            ..self
        }
    }

    /// What the program ends with.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self.kind {
            Kind::Failure => ExitCode::FAILURE,
            Kind::Usage => ExitCode::from(2),
            Kind::NotHere => ExitCode::from(4),
        }
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

impl From<ReportError> for LabError {
    fn from(error: ReportError) -> Self {
        Self::new(error.to_string())
    }
}

/// The result of everything in the lab that can fail.
pub(crate) type Result<T> = std::result::Result<T, LabError>;
