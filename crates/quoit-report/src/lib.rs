//! The results of measurements: what they are, what may be concluded from them, and how they are shown.
//!
//! - [`results`]: the file `results.json`, which `quoit lab run` writes, whole and checked, or not at all;
//! - [`pairs`]: the statistics of paired runs, by which a case is won, lost or a tie;
//! - [`report`]: results as Markdown and as one page with charts (`quoit lab report`);
//! - [`pages`]: the pages of `docs` that show results (`quoit lab pages`);
//! - [`compare`]: what changed between two runs beyond the noise (`quoit lab compare`);
//! - [`table`]: tables and numbers for people.
//!
//! It measures nothing and starts nothing: `quoit-lab` does, which stands on it.

pub mod compare;
mod console;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod pages;
pub mod pairs;
mod random;
pub mod report;
pub mod results;
pub mod table;

pub use error::{ReportError, Result};
