//! What is said on standard error, and printed to standard output.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Says a line on standard error. If that is closed, or full, nobody can be told; a server must not end for it, and what
/// was measured must not be lost.
pub fn say(line: impl Display) {
    let _unheard = writeln!(io::stderr().lock(), "{line}");
}

/// Prints a text to standard output as it is. A reader that has gone, as `head` does, has had what it wanted.
///
/// # Errors
/// It cannot be written, as on a disk that is full.
pub fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    let printed = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    match printed {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}
