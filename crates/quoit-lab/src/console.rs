//! What the lab says: figures on standard output, everything else on standard error.

use super::error::{LabError, Result};
pub(crate) use quoit_host::console::say;

/// Prints a text to standard output as it is.
///
/// # Errors
/// It cannot be written.
pub(crate) fn print(text: &str) -> Result<()> {
    quoit_host::console::print(text).map_err(LabError::io("cannot write to standard output"))
}
