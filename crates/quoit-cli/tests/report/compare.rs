//! The exit codes that a build server acts on.

use serde_json::Value;

use crate::results::{Files, example, lab};

#[test]
fn exit_codes_say_whether_something_got_worse() {
    let files = Files::new();
    let results = example::results();
    let old = files.write("old.json", &results);
    let mut worse = results.clone();
    for comparison in &mut worse.cases[1].comparisons {
        comparison.cost = example::around(comparison.cost.median * 1.3);
    }
    let new = files.write("new.json", &worse);

    let same = lab("compare", &[&old, &old], &[]);
    assert_eq!(same.status.code(), Some(0), "{same:?}");
    assert!(String::from_utf8_lossy(&same.stdout).contains("0 worse, 0 better"));

    let output = lab("compare", &[&old, &new], &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().find(|line| line.contains("16 deep")).unwrap();
    assert!(first.contains("WORSE") && first.contains("1.300 ["), "{text}");
    assert!(output.stderr.is_empty(), "{output:?}");

    let better = lab("compare", &[&new, &old], &["--json"]);
    assert_eq!(better.status.code(), Some(0), "{better:?}");
    let changes: Value = serde_json::from_slice(&better.stdout).unwrap();
    assert_eq!(changes["worse"], 0);
    assert_eq!(changes["better"], 2);
    assert_eq!(
        changes["servers"].as_array().unwrap().last().unwrap()["direction"],
        "better"
    );
}

#[test]
fn what_cannot_be_compared_is_one_line_and_exit_code_1() {
    let files = Files::new();
    let old = files.write("old.json", &example::results());
    let mut other = example::results();
    other.experiment.name = "idle".to_owned();
    let other = files.write("other.json", &other);
    let broken = files.path("broken.json");
    std::fs::write(&broken, "{\"schema\": 1, ").unwrap();
    for (new, expected) in [
        (&other, "give two runs of one experiment"),
        (&broken, "broken.json is cut off"),
        (&files.path("none.json"), "none.json: No such file"),
    ] {
        let output = lab("compare", &[&old, new], &[]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(
            text.starts_with("quoit lab: ") && text.contains(expected),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(output.stdout.is_empty());
    }
}
