//! What `quoit lab report` prints and writes.

use crate::results::{Files, example, lab};

#[test]
fn markdown_goes_to_standard_output_and_the_page_to_its_file() {
    let files = Files::new();
    let one = files.write("one.json", &example::results());
    let page = files.path("page.html");

    let printed = lab("report", &[&one], &[]);
    assert_eq!(printed.status.code(), Some(0), "{printed:?}");
    let text = String::from_utf8(printed.stdout).unwrap();
    assert!(text.starts_with("# Plaintext over many connections (plaintext)\n"));
    assert!(text.find("## Losses").unwrap() < text.find("| server |").unwrap());

    let path = page.to_str().unwrap();
    let both = lab("report", &[&one, &one], &["--html", path, "--markdown"]);
    assert_eq!(both.status.code(), Some(0), "{both:?}");
    assert_eq!(String::from_utf8(both.stdout).unwrap(), format!("{text}\n{text}"));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("href=\"#run1\""));

    std::fs::remove_file(&page).unwrap();
    let only_page = lab("report", &[&one], &["--html", path]);
    assert!(only_page.stdout.is_empty() && page.exists(), "{only_page:?}");
}

#[test]
fn datagrams_have_a_table_of_their_own_on_the_page() {
    let files = Files::new();
    let mut results = example::results();
    results.cases = vec![example::datagrams()];
    let one = files.write("one.json", &results);
    let page = files.path("page.html");
    let output = lab("report", &[&one], &["--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let html = std::fs::read_to_string(&page).unwrap();
    for part in ["<h3>Datagrams</h3>", "packets dropped", "207.0 KiB of 208.0 KiB"] {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn nothing_is_written_when_one_of_the_files_is_broken() {
    let files = Files::new();
    let one = files.write("one.json", &example::results());
    let broken = files.path("broken.json");
    std::fs::write(&broken, "{}").unwrap();
    let page = files.path("page.html");
    let output = lab("report", &[&one, &broken], &["--html", page.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("broken.json holds no results of a run"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!page.exists());

    let nowhere = lab("report", &[&one], &["--html", "/nowhere/page.html"]);
    assert_eq!(nowhere.status.code(), Some(1));
    let text = String::from_utf8_lossy(&nowhere.stderr);
    assert!(
        text.contains("writing /nowhere/page.html: No such file"),
        "{text}"
    );
}
