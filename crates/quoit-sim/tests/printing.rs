//! What the program does when nobody reads what it prints.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

#[test]
fn a_reader_that_has_gone_ends_it_in_silence() {
    let (reader, writer) = std::io::pipe().expect("a pipe can be made");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_quoit-sim"))
        .args(["run", "--seeds", "1", "--engine", "epoll"])
        .stdout(writer)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|child| child.wait_with_output())
        .expect("the program can be started");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.signal(), Some(libc::SIGPIPE), "{output:?}");
}
