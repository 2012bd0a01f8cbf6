//! The page as text; `tests/page` looks at it in a browser.

use super::*;
use crate::results::example;
use crate::results::model::Published;

fn rendered(results: Results) -> String {
    page(&[results]).expect("every chart can be drawn")
}

#[test]
fn losses_come_before_charts_and_cases() {
    let page = rendered(example::results());
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part} is missing"));
    assert!(at("<h2>Losses</h2>") < at("data-chart=\"forest\""));
    assert!(at("data-chart=\"forest\"") < at("data-chart=\"percentiles\""));
    for kind in ["forest", "load", "percentiles", "throughput", "cpu", "memory"] {
        at(&format!("data-chart=\"{kind}\""));
    }
}

#[test]
fn what_a_file_says_stays_text() {
    let evil = "</title><script>alert(1)</script>\"'&<img src=x onerror=alert(1)>";
    let mut results = example::results();
    results.experiment.title = evil.to_owned();
    results.experiment.about = evil.to_owned();
    results.experiment.file = evil.to_owned();
    results.experiment.claims = vec![(evil.to_owned(), evil.to_owned())];
    results.experiment.published = vec![Published {
        source: evil.to_owned(),
        scale: evil.to_owned(),
        titles: vec![evil.to_owned()],
        rows: vec![vec![evil.to_owned()]],
    }];
    results.cases.push(example::datagrams());
    results.incomplete = Some(evil.to_owned());
    results.notes = vec![evil.to_owned()];
    results.environment.processor = Some(evil.to_owned());
    results.environment.commit = Some(evil.to_owned());
    results
        .environment
        .versions
        .insert(evil.to_owned(), evil.to_owned());
    results.left_out[0].what = evil.to_owned();
    results.placement.kind = evil.to_owned();
    for case in &mut results.cases {
        case.unit = evil.to_owned();
        case.ladder = Some(evil.to_owned());
        case.workload = evil.to_owned();
        for comparison in &mut case.comparisons {
            comparison.server += evil;
        }
        for server in &mut case.servers {
            server.server += evil;
        }
        for slice in &mut case.slices {
            slice.server += evil;
            slice.spoiled = slice.spoiled.is_some().then(|| evil.to_owned());
            slice.counters.insert(evil.to_owned(), 1.0);
        }
    }
    results.cases[0].name = evil.to_owned();
    let page = rendered(results);
    assert!(page.contains("&lt;script&gt;"));
    for tag in ["<script", "<img", "</title><"] {
        let count = page.matches(tag).count();
        assert_eq!(count, usize::from(tag == "</title><"), "{tag}");
    }
}

#[test]
fn nothing_is_loaded_and_nothing_runs() {
    let page = rendered(example::results());
    for part in ["<script", "<link", "<img", "url(", "@import", " src=", " onload"] {
        assert!(!page.contains(part), "{part}");
    }
    // The name of the SVG elements' namespace is the only address, and nothing is fetched from it.
    let addresses = page.matches("://").count();
    assert_eq!(
        addresses,
        page.matches("xmlns=\"http://www.w3.org/2000/svg\"").count()
    );
    assert!(page.contains("default-src 'none'"));
}

#[test]
fn several_runs_have_a_table_of_contents() {
    let mut second = example::results();
    second.experiment.title = "Another".to_owned();
    let page = page(&[example::results(), second]).expect("every chart can be drawn");
    assert!(page.contains("<a href=\"#run1\">Another</a>"));
    assert!(page.contains("id=\"run1\""));
    let ids: Vec<&str> = page
        .split(" id=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let distinct: std::collections::BTreeSet<&&str> = ids.iter().collect();
    assert_eq!(distinct.len(), ids.len(), "{ids:?}");
}

#[test]
fn a_run_that_measured_little_still_has_a_page() {
    let mut results = example::results();
    for case in &mut results.cases {
        case.comparisons.clear();
        case.controls.clear();
        case.slices.clear();
        case.servers.truncate(1);
        for server in &mut case.servers {
            server.latency_curve.clear();
            server.system_calls_per_unit = None;
            server.figures = crate::results::model::Figures::default();
        }
    }
    let page = rendered(results.clone());
    assert!(page.contains("Nothing could be judged"));
    results.cases.clear();
    assert!(!rendered(results).contains("data-chart"));
}
