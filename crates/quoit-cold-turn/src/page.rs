//! The page of the documents, from kept results.

use std::fmt::Write;
use std::path::Path;

use crate::ends::EndsCase;
use crate::results::{Case, Results};

const HEAD: &str = "\
# What a turn costs when it comes cold

<!-- Written by `quoit-cold-turn page` from lab/turn. Do not edit: run `make cold-turn` or `make ends`. -->

Where connections have something to say now and then, a loop sleeps between any two requests, and what it needs is out of the
processor's caches when it wakes. So what counts is how many instructions a turn executes, and how many cache lines of 64 bytes it
touches. Both are counted under a tracer (valgrind's lackey), which no neighbour disturbs. The kernel's side is not in it, and
neither is the handler.

Requests come at once, each 64 bytes, as many as the column says. Then turns are made until all are taken in: a turn submits the
responses of the one before, waits, and takes in what is there.
`echo` sends them back from the memory that they were received in. `response` copies 130 bytes, as for `/plaintext`. `datagram`
sends them back on the one UDP socket. A bare loop does the same work on the same interface and nothing else: no limits, timers,
counters or teardown.

`from C` drives the same loop through the C ABI, as Go, Java and .NET do: a command and an event for each request, and another
command that gives the received memory back (`echo` gives it with the send). The step `C ABI` is what that adds: what a binding
makes of an event in its own language is the binding's, and not in it.

The figures are medians of 21 times. A line counts for the step that comes to it first.

[What was tried to make a light load cheaper, and did not help](tried.md), is listed with its figures.
";

const ENDS: &str = "\
## Connections that end at once

All peers close, or all reset, and then turns are made until all connections are closed and freed. Here the time is the
processor's, of the server's process and with the kernel's part of it, for each connection. A bare loop receives the end, and closes.
A loop handles some 64 completions in a turn, so that others are served between them. Medians, with the least and the most.
";

/// Writes the page.
pub(crate) fn write(results: &Results<Case>, ends: &Results<EndsCase>, page: &Path) -> Result<(), String> {
    std::fs::write(page, text(results, ends)).map_err(|error| format!("{}: {error}", page.display()))
}

fn text(results: &Results<Case>, ends: &Results<EndsCase>) -> String {
    let mut text = HEAD.to_owned();
    let Results { version, kernel, .. } = results;
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "\nQuoit {version}, Linux {kernel}.\n\n## All\n\n{}",
        results.table()
    );
    let _ = writeln!(text, "\n## Step by step");
    for case in &results.cases {
        if !case.server.is_bare() {
            let _ = writeln!(text, "\n### {}\n\n{}", case.title(), case.steps_table());
        }
    }
    let Results { version, kernel, .. } = ends;
    let _ = writeln!(
        text,
        "\n{ENDS}\nQuoit {version}, Linux {kernel}.\n\n{}",
        ends.table()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::read;

    /// What the documents show is what was kept.
    #[test]
    fn the_page_is_that_of_the_results() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let results = read(&root.join("lab/turn/results.json")).expect("kept results");
        let ends = read(&root.join("lab/turn/ends.json")).expect("kept results of ends");
        let page = std::fs::read_to_string(root.join("docs/performance.md")).expect("the page");
        assert_eq!(page, text(&results, &ends), "run `make cold-turn` or `make ends`");
    }
}
