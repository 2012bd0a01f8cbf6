//! The file of `--hdr`: what is in its place already, and a disk that is full.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::servers::{echo, error_line, number, quoit, report, serve};

fn run_with_log(address: &str, log: &Path) -> String {
    format!(
        "load echo --connect {address} --connections 1 --warmup 0 --requests 5 --hdr {}",
        log.display()
    )
}

/// The measurement may have taken long. What was found is printed all the same.
#[test]
fn a_log_that_cannot_be_written_costs_no_report() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let load = run_with_log(&address, Path::new("/dev/full"));
    let output = quoit(&format!("{load} --json"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let found: Value = serde_json::from_slice(&output.stdout).expect("the report is printed");
    assert_eq!(number(&found["requests"]), 5, "{found:#}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.starts_with("quoit load: cannot write the latencies to /dev/full: "),
        "{said}"
    );
}

/// `--hdr` takes the name behind it. Whoever forgets that names a report.
#[test]
fn what_is_no_log_is_left_alone() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let paths = ["one.json", "two.json"].map(|name| folder.path().join(name));
    for path in &paths {
        let load = format!("load echo --connect {address} --connections 1 --warmup 0 --requests 5 --json");
        fs::write(path, quoit(&load).stdout).expect("it is written");
    }
    let [one, two] = &paths;
    let before = fs::read(one).expect("it is there");
    for arguments in [
        format!("load merge --hdr {} {}", one.display(), two.display()),
        format!("load merge {} {} --hdr {0}", one.display(), two.display()),
        run_with_log(&address, one),
    ] {
        let line = error_line(&quoit(&arguments));
        assert!(
            line.contains("one.json: the file is no log of latencies, and is left alone; name another file"),
            "{line}"
        );
        assert_eq!(fs::read(one).expect("it is there"), before, "{arguments}");
    }
}

/// A log is replaced once there is another, and not by a run that is not made.
#[test]
fn a_log_of_before_is_replaced_by_the_next_one() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("load.hlog");
    let (code, found) = report(&run_with_log(&address, &path));
    assert_eq!(code, 0, "{found:#}");
    let first = fs::read_to_string(&path).expect("it is written");
    let refused = format!("unix:{}/nobody", folder.path().display());
    error_line(&quoit(&run_with_log(&refused, &path)));
    assert_eq!(fs::read_to_string(&path).expect("it is there"), first);
    // Longer than what follows.
    fs::write(&path, first.clone() + &"# more\n".repeat(10_000)).expect("it is written");
    let (code, found) = report(&run_with_log(&address, &path));
    assert_eq!(code, 0, "{found:#}");
    let second = fs::read_to_string(&path).expect("it is there");
    assert!(!second.contains("# more") && second != first, "{second}");
    assert!(
        second.starts_with("#[Histogram log format version 1.3]"),
        "{second}"
    );
}
