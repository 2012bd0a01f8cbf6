//! `quoit lab run` where its folder cannot take what it found.

use std::fs;

use crate::lab_run::{ECHO, Lab, server};

/// A night may have gone into it. It is printed, and the journal has it.
#[test]
fn results_that_cannot_be_written_are_printed_all_the_same() {
    let lab = Lab::new(&(server("base") + &server("other") + ECHO));
    let in_the_way = lab.path("out").join("results.json");
    fs::create_dir_all(&in_the_way).unwrap();
    let output = lab.run("");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let last = said.lines().last().unwrap();
    assert!(
        last.contains("results.json: Is a directory") && last.contains("what was measured is kept"),
        "{said}"
    );
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.starts_with("# A test") && printed.contains("other"),
        "{printed}"
    );

    fs::remove_dir(&in_the_way).unwrap();
    let output = lab.run("--resume");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stdout).unwrap().lines().next(),
        printed.lines().next()
    );
    assert!(in_the_way.is_file());
}
