//! What the lab says: figures on standard output, everything else on standard error.

use std::io::{self, Write};

use super::error::{LabError, Result};
pub(crate) use crate::console::say;

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
