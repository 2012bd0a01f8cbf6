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

/// `--html` takes the name behind it. Whoever forgets that names results, which may have taken a night.
#[test]
fn results_are_not_replaced_by_a_page() {
    let files = Files::new();
    let one = files.write("one.json", &example::results());
    let two = files.write("two.json", &example::results());
    let before = std::fs::read(&one).unwrap();
    for given in [&two, &one] {
        let output = lab("report", &[given], &["--html", one.to_str().unwrap()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(
            text.contains(
                "one.json holds results of a run, and is left alone; name another file for the page"
            ),
            "{text}"
        );
        assert_eq!(std::fs::read(&one).unwrap(), before);
    }
}

/// A file beside, in the end renamed, would put a file in place of what such a name stands for: of `/dev/stdout` or
/// `/dev/null` of the whole system, if root writes the page.
#[test]
fn a_page_goes_where_a_link_leads_and_into_what_is_no_file() {
    let files = Files::new();
    let one = files.write("one.json", &example::results());
    let (page, link, pipe) = (
        files.path("page.html"),
        files.path("link.html"),
        files.path("pipe"),
    );
    std::fs::write(&page, "the page of yesterday").unwrap();
    std::os::unix::fs::symlink("page.html", &link).unwrap();
    let output = lab("report", &[&one], &["--html", link.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>"), "{html}");

    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    // Open for both, so that neither waits for the other; larger than a pipe holds, so that it is read meanwhile.
    let mut reader = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let (length, (sender, receiver)) = (html.len(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let mut read = vec![0; length];
        std::io::Read::read_exact(&mut reader, &mut read).unwrap();
        sender.send(read).unwrap();
    });
    let output = lab("report", &[&one], &["--html", pipe.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!std::fs::metadata(&pipe).unwrap().is_file());
    let read = receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert!(read == html.as_bytes(), "the page is in the pipe");
}
