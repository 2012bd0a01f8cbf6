//! Errors towards C: a negative errno, and a text for the calling thread. Nothing unwinds past [`return_code`].

use std::any::Any;
use std::cell::RefCell;
use std::ffi::c_int;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use quoit::{DatagramSocketError, Errno, ListenError, StartError, TurnError};

/// Why a call failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: c_int,
    pub(crate) text: String,
}

/// Made where a call has failed, and kept out of the way of those that have not.
impl Failure {
    #[cold]
    #[inline(never)]
    pub(crate) fn new(code: c_int, text: impl fmt::Display) -> Self {
        Self {
            code,
            text: text.to_string(),
        }
    }

    /// An argument that no such call can have.
    #[cold]
    pub(crate) fn invalid(text: impl fmt::Display) -> Self {
        Self::new(libc::EINVAL, text)
    }

    /// The kernel's error while `doing` something.
    #[cold]
    pub(crate) fn system(doing: &str, errno: Errno) -> Self {
        Self::new(errno.code(), format_args!("{doing} failed: {errno}"))
    }
}

impl From<ListenError> for Failure {
    fn from(error: ListenError) -> Self {
        let code = match &error {
            ListenError::Limit { .. } => libc::ENOSPC,
            ListenError::NotASocket { .. } => libc::EADDRINUSE,
            other => other.errno().map_or(libc::EINVAL, Errno::code),
        };
        Self::new(code, error)
    }
}

impl From<DatagramSocketError> for Failure {
    fn from(error: DatagramSocketError) -> Self {
        let code = match &error {
            DatagramSocketError::Limit => libc::ENOSPC,
            other => other.errno().map_or(libc::EINVAL, Errno::code),
        };
        Self::new(code, error)
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Kernel { errno, .. } => Self::new(errno.code(), error),
            StartError::Engine { .. } => Self::new(libc::EOPNOTSUPP, error),
            StartError::Listen(error) => error.into(),
            StartError::Config(_) => Self::invalid(error),
        }
    }
}

impl From<TurnError> for Failure {
    fn from(error: TurnError) -> Self {
        let code = match error {
            TurnError::WrongThread => libc::EPERM,
            TurnError::Engine(errno) => errno.code(),
            TurnError::NotPollable(_) => libc::EOPNOTSUPP,
        };
        Self::new(code, error)
    }
}

thread_local! {
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The text of the last call of this thread that failed.
pub(crate) fn last_text() -> String {
    LAST.try_with(|last| last.borrow().clone()).unwrap_or_default()
}

fn remember(text: String) {
    // A thread that is ending has no place for it, and nobody to read it.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// What a panic says, as far as it says anything.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

/// Makes a call: its value, or a negative errno. A panic, which is a fault of the library's, becomes
/// `-ENOTRECOVERABLE`.
pub(crate) fn return_code(call: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    let failure = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => return value,
        Ok(Err(failure)) => failure,
        Err(panic) => Failure::new(
            libc::ENOTRECOVERABLE,
            format_args!("a fault in libquoit: {}", panic_text(&*panic)),
        ),
    };
    let code = i64::from(failure.code);
    remember(failure.text);
    -code
}

/// As [`return_code`], for calls whose values fit into an `int`.
pub(crate) fn return_code_int(call: impl FnOnce() -> Result<c_int, Failure>) -> c_int {
    return_code(|| call().map(i64::from)) as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_stays_inside() {
        assert_eq!(
            return_code(|| panic!("on purpose")),
            -i64::from(libc::ENOTRECOVERABLE)
        );
        assert_eq!(last_text(), "a fault in libquoit: on purpose");
        assert_eq!(return_code(|| Ok(7)), 7);
        assert_eq!(return_code_int(|| Err(Failure::invalid("no"))), -libc::EINVAL);
        assert_eq!(last_text(), "no");
    }
}
