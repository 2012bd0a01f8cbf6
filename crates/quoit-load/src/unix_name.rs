//! Names of Unix sockets as text: any bytes, written as servers of Quoit read and show them.

use std::fmt::{self, Write as _};

/// The bytes of a name: `\xNN` is the one with that hexadecimal number, and `\\` a backslash.
///
/// # Errors
/// Something else follows a backslash.
pub(super) fn parse(text: &str) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, behind)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = if let Some(behind) = behind.strip_prefix('\\') {
            bytes.push(b'\\');
            behind
        } else {
            let number = behind.strip_prefix('x').and_then(|digits| digits.get(..2));
            let number = number.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
            let byte = number.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            bytes.push(byte.ok_or_else(|| {
                format!("a backslash in `{text}` is followed by neither x and two hexadecimal digits nor another backslash")
            })?);
            &behind[3..]
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    Ok(bytes)
}

/// A name, so that [`parse`] gives it again.
pub(super) struct Shown<'a>(pub(super) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for character in chunk.valid().chars() {
                match character {
                    '\\' => formatter.write_str("\\\\")?,
                    control if control.is_control() => {
                        let mut room = [0; 4];
                        hexadecimal(formatter, control.encode_utf8(&mut room).as_bytes())?;
                    }
                    other => formatter.write_char(other)?,
                }
            }
            hexadecimal(formatter, chunk.invalid())?;
        }
        Ok(())
    }
}

fn hexadecimal(formatter: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes
        .iter()
        .try_for_each(|byte| write!(formatter, "\\x{byte:02x}"))
}
