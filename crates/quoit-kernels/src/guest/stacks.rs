//! Where threads are that do not go on.

use std::fs;
use std::path::Path;

use crate::reporter::Reporter;

/// Says of every thread of every process but the first and this one what it is called, its state, and where in the
/// kernel it is.
pub(crate) fn say(reporter: &Reporter) {
    let own = std::process::id();
    for process in numbered("/proc") {
        // A thread of the kernel's has no command line.
        let command = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        if process == 1 || process == own || command.is_empty() {
            continue;
        }
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        reporter.say(format!("process {process}: {command}"));
        for thread in numbered(format!("/proc/{process}/task")) {
            say_thread(reporter, &format!("/proc/{process}/task/{thread}"));
        }
    }
}

fn say_thread(reporter: &Reporter, folder: &str) {
    let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
    let status = read("status");
    let state = status.lines().find_map(|line| line.strip_prefix("State:"));
    reporter.say(format!(
        "  {} {}, state {}, in {}",
        folder,
        read("comm").trim(),
        state.unwrap_or("?").trim(),
        read("syscall").trim()
    ));
    for line in read("stack").lines() {
        reporter.say(format!("    {line}"));
    }
}

fn numbered(folder: impl AsRef<Path>) -> Vec<u32> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names.filter_map(|name| name.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}
