//! Results, given anything. See [`quoit_corpus`].

use super::{changes, print};
use crate::{report, results};

/// A text is the results of a run, which can be reported and compared with themselves, or what is wrong is said in
/// one line.
pub fn results(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let run = match results::parse(text) {
        Ok(run) => run,
        Err(problem) => {
            assert!(!problem.contains('\n'), "{problem}");
            return;
        }
    };
    let written = serde_json::to_string(&run).expect("its numbers are numbers");
    let again = results::parse(&written).expect("what is written can be read");
    report::markdown(&run);
    report::page(std::slice::from_ref(&run)).expect("a page can be made of it");
    if let Ok(changes) = changes(&run, &again) {
        assert_eq!((changes.worse, changes.better), (0, 0), "nothing has changed");
        print::text(&changes);
    }
}
