//! What is said on standard error.

use std::fmt::Display;
use std::io::{self, Write};

/// Says a line on standard error. If that is closed, or full, nobody can be told; a server must not end for it, and what
/// was measured must not be lost.
pub(crate) fn say(line: impl Display) {
    let _unheard = writeln!(io::stderr().lock(), "{line}");
}
