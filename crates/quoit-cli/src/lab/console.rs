//! What the lab says: figures on standard output, everything else on standard error.

use std::fmt::Display;
use std::io::{self, Write};

use super::error::{LabError, Result};

/// Prints a text to standard output as it is.
///
/// # Errors
/// Nobody reads it, or it cannot be written.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(LabError::io("cannot write to standard output"))
}

/// Says a line on standard error. If that is closed, as after the end of a terminal, nobody can be told, and what was
/// measured must not be lost for it.
pub(crate) fn say(line: impl Display) {
    let _unheard = writeln!(io::stderr().lock(), "{line}");
}
