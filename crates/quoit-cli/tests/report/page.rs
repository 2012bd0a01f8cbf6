//! The page in a real browser: every chart is drawn, nothing is loaded, nothing fails, nothing sticks out.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::browser;
use crate::results::{Files, example, lab};

/// The page of the example, as the program writes it.
fn page(files: &Files) -> String {
    let results = files.write("results.json", &example::results());
    let page = files.path("page.html");
    let output = lab("report", &[&results], &["--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn every_chart_is_drawn_without_an_error() {
    let Some(chromium) = browser::find() else { return };
    let files = Files::new();
    let page = page(&files);
    let mut papers = Vec::new();
    for (window, dark) in [("--window-size=1280,900", false), ("--window-size=500,900", true)] {
        let mut options = vec![window];
        if dark {
            options.push("--blink-settings=preferredColorScheme=0");
        }
        let found = browser::look(&chromium, &page, &files.path(""), &options);
        for silent in ["problems", "console"] {
            assert_eq!(found[silent], Value::Array(Vec::new()), "{window}: {silent}");
        }
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for chart in found["charts"].as_array().unwrap() {
            *kinds.entry(chart["kind"].as_str().unwrap()).or_default() += 1;
            // One of the two sizes, with an area and with more than an axis in it.
            assert_eq!(chart["shown"], 1, "{window}: {chart}");
            assert!(chart["width"].as_f64() > Some(100.0), "{window}: {chart}");
            assert!(chart["height"].as_f64() > Some(20.0), "{window}: {chart}");
            assert!(chart["marks"].as_u64() > Some(1), "{window}: {chart}");
            assert_eq!(
                chart["outside"],
                Value::Array(Vec::new()),
                "{window}: text is cut off"
            );
            assert_ne!(chart["label"], "", "{window}: {chart}");
        }
        let cases = example::results().cases.len();
        // The last case is idle: nothing is asked there, so nothing takes time or CPU.
        let expected = BTreeMap::from([
            ("forest", 1),
            ("load", 1),
            ("percentiles", cases - 1),
            ("throughput", cases - 1),
            ("cpu", cases - 1),
            ("memory", cases),
        ]);
        assert_eq!(kinds, expected, "{window}");
        assert!(
            found["overflow"].as_i64() <= Some(0),
            "{window}: the page scrolls sideways: {found}"
        );
        papers.push(found["paper"].clone());
    }
    assert_ne!(papers[0], papers[1], "the page follows the browser's colours");
}

#[test]
fn the_browser_test_notices_what_it_is_for() {
    let Some(chromium) = browser::find() else { return };
    let files = Files::new();
    let page = page(&files);
    let broken = page
        .replacen(
            "</main>",
            "<script>nothing.there()</script><img src=\"file:///none.png\"></main>",
            1,
        )
        .replacen("<svg ", "<svg hidden style=\"display:none\" ", 2);
    let found = browser::look(&chromium, &broken, &files.path(""), &["--window-size=1280,900"]);
    let problems = found["problems"].to_string();
    assert!(problems.contains("nothing is not defined"), "{found}");
    assert!(problems.contains("refused: file"), "{found}");
    assert!(
        found["console"].to_string().contains("nothing is not defined"),
        "{found}"
    );
    assert_eq!(found["charts"][0]["shown"], 0, "{found}");
}
