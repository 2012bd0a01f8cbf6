//! `docs/kernels.md`, from what was kept.

use crate::list::List;
use crate::results::Results;

/// The page.
#[must_use]
pub fn write(_list: &List, _results: &Results) -> String {
    String::new()
}
