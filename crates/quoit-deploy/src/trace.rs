//! The system calls that `quoit` makes, out of what strace(1) tells of a test suite that starts it many times.

use std::collections::{BTreeSet, HashSet};
use std::io::BufRead;

/// Sub-commands whose calls are gathered. `quoit lab` starts other programs, and is nothing that is deployed.
const COMMANDS: [&str; 3] = ["doctor", "load", "serve"];

/// Gathers the calls, line by line of `strace -f`.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Threads of processes that have become `quoit`.
    threads: HashSet<u32>,
    /// Those that are about to, in a call of execve(2) that is not over yet.
    becoming: HashSet<u32>,
    calls: BTreeSet<String>,
    runs: usize,
}

impl Gathered {
    /// Takes all lines.
    pub fn read(&mut self, lines: impl BufRead) {
        // Arguments may be any bytes, and they do not matter.
        for line in lines.split(b'\n').map_while(Result::ok) {
            self.take(&String::from_utf8_lossy(&line));
        }
    }

    /// The names of the calls.
    #[must_use]
    pub fn calls(&self) -> &BTreeSet<String> {
        &self.calls
    }

    /// How often `quoit` was started.
    #[must_use]
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Takes a line: `PID CALL(ARGUMENTS) = RESULT`, or a part of one, as another thread's call came between.
    fn take(&mut self, line: &str) {
        let Some((thread, rest)) = line.split_once(' ') else {
            return;
        };
        let (Ok(thread), rest) = (thread.parse::<u32>(), rest.trim_start()) else {
            return;
        };
        if rest.starts_with("+++") {
            self.threads.remove(&thread);
            self.becoming.remove(&thread);
            return;
        }
        let name = match rest.strip_prefix("<... ") {
            Some(resumed) => resumed.split(' ').next(),
            None => rest.split_once('(').map(|(name, _)| name),
        };
        let Some(name) = name else { return };
        if !name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        {
            return;
        }
        let result = rest
            .rsplit_once(" = ")
            .and_then(|(_, result)| result.split(' ').next());
        if name == "execve" {
            if is_of_quoit(rest) {
                self.becoming.insert(thread);
            }
            match result {
                Some("0") if self.becoming.remove(&thread) => {
                    self.threads.insert(thread);
                    self.runs += 1;
                    // The runtime makes this one, behind its filter.
                    self.calls.insert(name.to_owned());
                }
                Some("0") => _ = self.threads.remove(&thread),
                Some(_) => _ = self.becoming.remove(&thread),
                None => {}
            }
            return;
        }
        let is_gathered = self.threads.contains(&thread);
        if is_gathered {
            self.calls.insert(name.to_owned());
        }
        if ["clone", "clone3", "fork", "vfork"].contains(&name)
            && let Some(child) = result.and_then(|result| result.parse().ok())
        {
            // Its id may have been another's.
            if is_gathered {
                self.threads.insert(child);
            } else {
                self.threads.remove(&child);
            }
        }
    }
}

/// Whether a call of execve(2) starts a sub-command whose calls are gathered.
fn is_of_quoit(line: &str) -> bool {
    let words: Vec<&str> = line.split('"').collect();
    // execve("PATH", ["PROGRAM", "COMMAND"
    words.get(1).is_some_and(|path| path.ends_with("/quoit"))
        && words.get(5).is_some_and(|command| COMMANDS.contains(command))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gathered(text: &str) -> Vec<String> {
        let mut gathered = Gathered::default();
        gathered.read(text.as_bytes());
        gathered.calls.into_iter().collect()
    }

    #[test]
    fn only_the_programs_own_calls_are_gathered() {
        let text = "\
7 openat(AT_FDCWD, \"x\", O_RDONLY) = 3
7 clone3({flags=CLONE_VM}, 88) = 8
8 dup2(1, 2) = 2
8 execve(\"/a/quoit\", [\"/a/quoit\", \"serve\", \"http\"], 0x1 /* 2 vars */ <unfinished ...>
7 kill(8, SIGTERM) = 0
8 <... execve resumed>) = 0
8 brk(NULL) = 0x1
8 clone3({flags=CLONE_VM}, 88 <unfinished ...>
9 gettid() = 9
8 <... clone3 resumed>) = 9
9 io_uring_setup(8, {}) = 4
9 +++ exited with 0 +++
9 mount(1) = 0
7 clone3({flags=CLONE_VM}, 88) = 8
8 umount2(1) = 0
7 clone3({flags=CLONE_VM}, 88) = 10
10 execve(\"/a/quoit\", [\"/a/quoit\", \"lab\", \"demo\"], 0x1) = 0
10 ptrace(1) = 0
--- SIGCHLD
";
        assert_eq!(gathered(text), ["brk", "clone3", "execve", "io_uring_setup"]);
    }

    #[test]
    fn a_program_that_was_not_found_is_none() {
        let text = "8 execve(\"/a/quoit\", [\"/a/quoit\", \"serve\"], 0x1) = -1 ENOENT (No such file)\n8 brk(NULL) = 1\n";
        assert_eq!(gathered(text), [""; 0]);
    }
}
