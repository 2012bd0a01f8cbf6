//! `quoit lab run`: what it measures, and what it does when something goes wrong.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::{output, quoit, run};

/// A folder with an experiment, and with the results of its run.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    /// Servers and cases of the experiment; the baseline is `base`.
    pub(crate) fn new(rest: &str) -> Self {
        let lab = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        let text = format!(
            "title = \"A test\"\nabout = \"For the tests.\"\nbaseline = \"base\"\n\
             [effort]\npairs = 2\nmost_pairs = 2\nseconds = 0.2\nwarm_up = 0.1\n{rest}"
        );
        fs::write(lab.path("test.toml"), text).unwrap();
        lab
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, arguments: &str) -> Command {
        let (file, out) = (self.path("test.toml"), self.path("out"));
        let mut command = quoit("lab run");
        command.args([&file, Path::new("--out"), &out]);
        command.args(arguments.split_whitespace());
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Output {
        output(self.command(arguments))
    }

    fn results(&self) -> Value {
        serde_json::from_slice(&fs::read(self.path("out/results.json")).unwrap()).unwrap()
    }

    /// The results of a run that succeeds.
    #[track_caller]
    fn measured(&self, arguments: &str) -> Value {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let table = String::from_utf8_lossy(&output.stdout);
        assert!(table.starts_with("# A test") && table.contains("base"), "{table}");
        let results = self.results();
        assert_eq!(results["incomplete"], Value::Null, "{results:#}");
        results
    }

    /// The results of a run that fails, and what it said.
    #[track_caller]
    fn failed(&self) -> (Value, String) {
        let output = self.run("");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        (self.results(), String::from_utf8(output.stderr).unwrap())
    }
}

/// A server on our epoll engine.
pub(crate) fn server(name: &str) -> String {
    format!(
        "[[server]]\nname = \"{name}\"\nmetrics = \"apart\"\nexpects = [\"engine=epoll\"]\n\
         command = \"{{quoit}} serve {{protocol}} --listen {{listen}} --engine epoll --metrics {{metrics}}\"\n"
    )
}

/// A server that is a script; `{{listen}}` in it stands for the address.
fn script(name: &str, script: &str) -> String {
    format!("[[server]]\nname = \"{name}\"\ncommand = '''sh -c \"{script}\"'''\n")
}

pub(crate) const ECHO: &str = "[workload]\nprotocol = \"echo\"\nsize = 64\nconnections = 4\n";

fn slices(results: &Value) -> &Vec<Value> {
    results["cases"][0]["slices"].as_array().unwrap()
}

/// Series, pair and position of the slices that count.
fn places(results: &Value) -> Vec<(String, u64, u64)> {
    let counting = slices(results).iter().filter(|slice| slice["spoiled"].is_null());
    let mut places: Vec<_> = counting
        .map(|slice| {
            let number = |name: &str| slice[name].as_u64().unwrap();
            (
                slice["series"].as_str().unwrap().to_owned(),
                number("pair"),
                number("position"),
            )
        })
        .collect();
    places.sort();
    places
}

/// What [`places`] should be for so many pairs of each series.
fn all_places(series: &[&str], pairs: u64) -> Vec<(String, u64, u64)> {
    let mut places = Vec::new();
    for series in series {
        for pair in 0..pairs {
            places.extend([((*series).to_owned(), pair, 0), ((*series).to_owned(), pair, 1)]);
        }
    }
    places
}

#[test]
fn two_servers_are_compared_in_every_figure() {
    let lab = Lab::new(&(ECHO.to_owned() + &server("base") + &server("other")));
    let results = lab.measured("");
    assert_eq!(
        (&results["schema"], &results["experiment"]["name"]),
        (&2.into(), &"test".into())
    );
    assert_eq!(places(&results), all_places(&["control base", "other"], 2));
    let version = Value::from(env!("CARGO_PKG_VERSION"));
    let versions = &results["environment"]["versions"];
    assert_eq!((&versions["base"], &versions["other"]), (&version, &version));
    let case = &results["cases"][0];
    assert_eq!(case["unit"], "request");
    let control = &case["controls"][0];
    assert_eq!(
        (&control["server"], &control["pairs"]),
        (&"base".into(), &2.into())
    );
    assert!(control["band"].as_f64() >= Some(1.0), "{control:#}");
    let comparison = &case["comparisons"][0];
    assert_eq!(
        (&comparison["server"], &comparison["against"]),
        (&"other".into(), &"base".into())
    );
    for ratio in ["cost", "total_cost", "throughput", "latency_p99"] {
        let ratio = &comparison[ratio];
        assert!(
            ratio["low"].as_f64() > Some(0.0) && ratio["low"].as_f64() <= ratio["high"].as_f64(),
            "{comparison:#}"
        );
    }
    for server in case["servers"].as_array().unwrap() {
        let figures = &server["figures"];
        for name in [
            "units",
            "units_per_second",
            "server_cpu_ns_per_unit",
            "generator_cpu_ns_per_unit",
            "resident_bytes",
            "peak_resident_bytes",
        ] {
            assert!(figures[name].as_f64() > Some(0.0), "{name}: {server:#}");
        }
        // The kernel samples by its tick, of which on a busy machine none may have met the server.
        let user_share = &figures["server_user_share"];
        assert!(
            user_share.is_null()
                || user_share
                    .as_f64()
                    .is_some_and(|share| (0.0..=1.0).contains(&share)),
            "{server:#}"
        );
        for name in ["context_switches_per_unit", "minor_faults", "slipped_share"] {
            assert!(figures[name].is_number(), "{name}: {server:#}");
        }
        assert!(figures["latency"]["p99_ns"].as_f64() > Some(0.0), "{server:#}");
        assert!(
            server["latency_curve"].as_array().unwrap().len() > 1,
            "{server:#}"
        );
        assert_eq!(figures["errors"], 0);
    }
    for slice in slices(&results) {
        // One sample: the window is shorter than a second.
        let sample = &slice["samples"][0];
        assert!(
            sample["units"].as_f64() > Some(0.0) && sample["resident_bytes"].as_f64() > Some(0.0),
            "{slice:#}"
        );
        assert!(slice["counters"]["enters"].as_f64() > Some(0.0), "{slice:#}");
        assert!(
            slice["observer_cpu_share"].is_number() && slice["foreign_share"].is_number(),
            "{slice:#}"
        );
        assert!(slice["histogram"].is_string());
    }
    // As root they are counted, else the reason is among the notes.
    let counted = case["servers"][0]["system_calls_per_unit"].as_f64();
    let notes = results["notes"].to_string();
    assert!(
        counted > Some(0.0) || notes.contains("system calls were not counted"),
        "{results:#}"
    );
    assert!(results["effort"]["observer_cpu_share"].as_f64() > Some(0.0));
    assert!(
        results["experiment"]["file"]
            .as_str()
            .unwrap()
            .contains("For the tests.")
    );

    let page = fs::read_to_string(lab.path("out/report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("other"), "it has charts");

    let again = lab.run("");
    assert_eq!(again.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&again.stderr).contains("--resume"),
        "{again:?}"
    );
}

#[test]
fn a_share_of_the_peak_is_offered_to_all_alike() {
    let workload =
        "[workload]\nprotocol = \"http\"\npath = \"/plaintext\"\nconnections = 4\nshare_of_peak = 0.2\n";
    let lab = Lab::new(&(workload.to_owned() + &server("base") + &server("other")));
    let results = lab.measured("--pairs 1 --most-pairs 1");
    let offered = results["cases"][0]["offered_per_second"].as_f64().unwrap();
    assert!(offered > 0.0);
    let note = format!("peak in a closed loop is {:.0} requests/s", offered / 0.2);
    assert!(
        results["notes"].to_string().contains(&note),
        "{note}: {results:#}"
    );
    for slice in slices(&results) {
        assert!(slice["figures"]["generator_lag_p99_ns"].is_number(), "{slice:#}");
    }
}

#[test]
fn streams_idle_connections_and_clients_are_cases_too() {
    let bulk = Lab::new(&format!(
        "[workload]\nkind = \"bulk\"\nmebibytes = 8\n{}{}",
        server("base"),
        server("other")
    ));
    let results = bulk.measured("--pairs 1 --most-pairs 1");
    let case = &results["cases"][0];
    assert_eq!(
        (&case["unit"], &case["servers"][0]["figures"]["units"]),
        (&"MiB".into(), &8.0.into())
    );
    assert!(
        case["comparisons"][0]["total_cost"]["median"].as_f64() > Some(0.0),
        "{case:#}"
    );

    let idle = Lab::new(&format!(
        "[workload]\nkind = \"idle\"\nconnections = 200\nseconds = 0.1\n{}{}",
        server("base"),
        server("other")
    ));
    let results = idle.measured("--pairs 1 --most-pairs 1");
    let case = &results["cases"][0];
    let figures = &case["servers"][0]["figures"];
    assert_eq!(
        (&case["unit"], &figures["units"]),
        (&"connection".into(), &200.0.into())
    );
    assert!(figures["bytes_per_connection"].is_number() && figures["idle_cpu_ns_per_second"].is_number());
    assert!(
        case["comparisons"][0]["cost"]["median"].as_f64() > Some(0.0),
        "{case:#}"
    );

    let client = "[[client]]\nname = \"theirs\"\n\
         command = \"{quoit} load echo --connect {connect} --seconds {seconds} --warmup 0 --json\"\n";
    let clients = Lab::new(&(ECHO.to_owned() + &server("base") + &server("other") + client));
    let results = clients.measured("--pairs 1 --most-pairs 1");
    let case = &results["cases"][0];
    assert!(case["workload"].as_str().unwrap().contains("theirs"), "{case:#}");
    assert!(
        case["comparisons"][0]["total_cost"]["median"].as_f64() > Some(0.0),
        "{case:#}"
    );
}

/// As a client whose virtual machine has to warm up first; it says more than `quoit load` does.
#[test]
fn clients_that_announce_their_window_are_measured_in_it() {
    let client = r#"
[[client]]
name = "theirs"
announces = true
command = '''sh -c "\"$0\" load echo --connect $1 --seconds $2 --warmup $3 --json --no-progress --announce | sed 's/^{{/{{\"told\":{{\"answer\":42}},/'" {quoit} {connect} {seconds} {warm_up}'''
"#;
    let text = ECHO.to_owned() + &server("base") + &server("other");
    let results = Lab::new(&(text.clone() + client)).measured("--pairs 1 --most-pairs 1");
    let case = &results["cases"][0];
    for server in case["servers"].as_array().unwrap() {
        let figures = &server["figures"];
        assert_eq!(figures["told"]["answer"], 42.0, "{case:#}");
        assert!(
            figures["client_peak_resident_bytes"].as_f64() > Some(0.0),
            "{case:#}"
        );
    }
    assert!(
        case["comparisons"][0]["total_cost"]["median"].as_f64() > Some(0.0),
        "{case:#}"
    );

    let silent = client.replace(" --announce", "");
    assert_ne!(silent, client);
    let (_, said) = Lab::new(&(text + &silent)).failed();
    assert!(said.contains("theirs has not announced its window"), "{said}");
}

#[test]
fn a_load_without_replies_is_repeated_and_then_said_to_be_none() {
    let client = r#"
[[client]]
name = "theirs"
command = "sh -c 'echo {{\\\"requests\\\":0,\\\"elapsed_seconds\\\":LENGTH}}' {connect}"
"#;
    // It has no length if the generator was kept from running until it was over.
    for length in ["1", "0"] {
        let client = client.replace("LENGTH", length);
        let lab = Lab::new(&(ECHO.to_owned() + &server("base") + &server("other") + &client));
        let (_, said) = lab.failed();
        assert!(said.contains("is measured again: no reply came"), "{said}");
        assert!(
            said.contains("could not be measured: no reply came during the window"),
            "{said}"
        );
    }
}

/// An echo server on a thread of the test whose replies are wrong from the connection with this number on. Its
/// process, which the lab starts and watches, only says where it is.
fn garbling(from: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(length @ 1..) = stream.read(&mut buffer) {
                    if number >= from {
                        buffer[0] ^= 1;
                    }
                    if stream.write_all(&buffer[..length]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    format!("echo mind the gap, not {{listen}} >&2; echo listening on {address}; exec tail -f /dev/null")
}

#[test]
fn a_server_that_answers_wrongly_ends_the_run_and_earlier_pairs_are_kept() {
    let lab = Lab::new(&(ECHO.to_owned() + &server("base") + &script("liar", &garbling(1))));
    let (results, text) = lab.failed();
    let incomplete = results["incomplete"].as_str().unwrap();
    for words in ["liar did not serve the load", "expected 0x", "mind the gap"] {
        assert!(
            incomplete.contains(words) && text.contains(words),
            "{text}\n{incomplete}"
        );
    }
    assert_eq!(places(&results), all_places(&["control base"], 1));
    assert!(results["cases"][0]["comparisons"].as_array().unwrap().is_empty());
}

#[test]
fn a_server_that_dies_under_load_is_quoted() {
    // It has a second of processor time, and much more is asked of it.
    let mortal =
        "echo my time is short >&2; ulimit -t 1; exec {quoit} serve echo --listen {listen} --engine epoll";
    let lab = Lab::new(&(ECHO.to_owned() + &script("base", mortal) + &server("other")));
    let output = lab.run("--seconds 300");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let results = lab.results();
    let incomplete = results["incomplete"].as_str().unwrap();
    for words in [
        "base did not serve the load",
        "it has ended (signal:",
        "my time is short",
    ] {
        assert!(incomplete.contains(words), "{incomplete}");
    }
    assert!(results["cases"].as_array().unwrap().is_empty());
}

#[test]
fn a_server_that_does_not_start_is_quoted() {
    let lab = Lab::new(
        &(ECHO.to_owned() + &script("base", "echo not today on {listen} >&2; exit 3") + &server("other")),
    );
    let (results, text) = lab.failed();
    for words in ["base ended before it was ready (exit status: 3)", "not today"] {
        assert!(
            results["incomplete"].as_str().unwrap().contains(words) && text.contains(words),
            "{text}"
        );
    }
}

#[test]
fn a_rival_that_does_not_start_is_left_out_before_the_first_pair() {
    let lazy = script("lazy", "echo not today on {listen} >&2; exit 3");
    let lab = Lab::new(&(ECHO.to_owned() + &server("base") + &lazy + &server("other")));
    let output = lab.run("--pairs 1 --most-pairs 1");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let line = text
        .lines()
        .find(|line| line.starts_with("quoit lab: lazy is left out: "));
    let line = line.unwrap_or_else(|| panic!("{text}"));
    let results = lab.results();
    let why = results["left_out"][0]["why"].as_str().unwrap();
    for words in ["lazy ended before it was ready (exit status: 3)", "not today"] {
        assert!(line.contains(words) && why.contains(words), "{line}\n{why}");
    }
    assert_eq!(places(&results), all_places(&["control base", "other"], 1));

    // Whom the command line names is not left out, and without a rival there is nothing to compare.
    let of_two = || Lab::new(&(ECHO.to_owned() + &server("base") + &lazy));
    let named = of_two().run("--only lazy");
    assert_eq!(named.status.code(), Some(1), "{named:?}");
    let alone = of_two().run("");
    assert_eq!(alone.status.code(), Some(4), "{alone:?}");
    let text = String::from_utf8_lossy(&alone.stderr);
    assert!(
        text.contains("nothing is left to be compared") && text.contains("not today"),
        "{text}"
    );
}

#[test]
fn an_interrupted_run_goes_on_where_it_was() {
    // After two pairs the baseline never gets ready, unless the file `go` is there.
    let folder = tempfile::tempdir().unwrap();
    let (journal, go) = (folder.path().join("out/journal.jsonl"), folder.path().join("go"));
    let base = format!(
        "[ $(grep -c ^..entry...pair {}) -lt 2 ] || [ -e {} ] || exec tail -f /dev/null; \
         exec {{quoit}} serve echo --listen {{listen}} --engine epoll",
        journal.display(),
        go.display()
    );
    let mut lab = Lab::new(&(ECHO.to_owned() + &script("base", &base) + &server("other")));
    fs::rename(lab.path("test.toml"), folder.path().join("test.toml")).unwrap();
    lab.folder = folder;
    let mut child = lab
        .command("")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    while !said
        .last()
        .is_some_and(|line: &String| line.contains("other: pair 1"))
    {
        match lines.next() {
            Some(line) => said.push(line.unwrap()),
            None => panic!("it ended early: {said:?}"),
        }
    }
    signal(&child, libc::SIGINT);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{rest:?}");
    assert!(
        rest.iter()
            .any(|line| line.contains("interrupted") && line.contains("--resume")),
        "{rest:?}"
    );
    let results = lab.results();
    assert_eq!(results["incomplete"], "interrupted");
    assert_eq!(places(&results), all_places(&["control base", "other"], 1));
    let before = slices(&results).clone();

    let other = lab.run("--resume --seconds 0.3");
    assert_eq!(other.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&other.stderr).contains("other options"),
        "{other:?}"
    );

    fs::write(go, "").unwrap();
    let results = lab.measured("--resume");
    assert_eq!(places(&results), all_places(&["control base", "other"], 2));
    assert_eq!(slices(&results)[..before.len()], before);
    // What is complete is only written anew.
    let same = lab.measured("--resume");
    assert_eq!(slices(&same), slices(&results));
}

/// A run that has said that it begins, started by a shell's `script` as `$@`.
fn begun(lab: &Lab, script: &str) -> (Child, Lines<BufReader<ChildStderr>>) {
    let run = lab.command("");
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh"]).arg(run.get_program());
    command
        .args(run.get_args())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    // Whoever runs the tests may have it ignored (`nohup`), which is inherited, and which no shell undoes.
    let heed_the_terminals_end = || {
        // SAFETY: no memory is passed, and `signal` may be called between `fork` and `exec` (signal-safety(7)).
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: it makes one call that is async-signal-safe, and touches no memory.
    unsafe { command.pre_exec(heed_the_terminals_end) };
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    assert!(first.contains("pairs at least"), "{first}");
    (child, lines)
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: no memory is passed; the child has not been waited for, so the id is still its own.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

#[test]
fn the_end_of_the_terminal_is_an_interrupt_unless_it_is_ignored() {
    // It never gets ready.
    let base = script("base", "echo {listen}; exec tail -f /dev/null");
    let lab = Lab::new(&(ECHO.to_owned() + &base + &server("other")));
    let (mut child, lines) = begun(&lab, "exec \"$@\"");
    // As of a terminal that has gone: nothing that is said from now on can be written.
    drop(lines);
    signal(&child, libc::SIGHUP);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(lab.results()["incomplete"], "interrupted");

    let lab = Lab::new(&(ECHO.to_owned() + &base + &server("other")));
    let (mut child, _lines) = begun(&lab, "trap '' HUP; exec \"$@\"");
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let has = |mask: &str, signal: libc::c_int| {
        let line = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap() & 1 << (signal - 1) != 0
    };
    assert!(
        has("SigIgn:", libc::SIGHUP) && has("SigCgt:", libc::SIGTERM),
        "{status}"
    );
    signal(&child, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn figures_that_cannot_be_printed_are_written_all_the_same() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let lab = Lab::new(&(ECHO.to_owned() + &server("base")));
    let run = lab.command("--pairs 1 --most-pairs 1");
    for mut command in [run, quoit("lab list")] {
        let output = command.stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("quoit lab: cannot write to standard output: No space left"),
            "{text}"
        );
    }
    assert_eq!(lab.results()["incomplete"], Value::Null);
    assert!(lab.path("out/report.html").exists());
}

#[test]
fn a_server_of_ones_own_that_is_missing_ends_the_run_before_it_begins() {
    let lab = Lab::new(&(ECHO.to_owned() + &server("base") + &server("other")));
    let mut command = lab.command("");
    command.args(["--server", "mine=/nowhere/mine {listen}"]);
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("\n  mine: there is no /nowhere/mine"), "{text}");
    assert!(!lab.path("out").exists(), "nothing was measured");
}

#[test]
fn an_experiment_that_this_machine_cannot_run_exits_4_and_says_what_it_lacks() {
    let other = server("other").replace("command = \"", "command = \"/nowhere/");
    let lab = Lab::new(&(ECHO.to_owned() + &server("base") + &other));
    let output = lab.run("");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(text.contains("\n  other: there is no /nowhere/"), "{text}");
    assert!(!lab.path("out").exists(), "nothing was measured");
}

#[test]
fn wrong_usage_exits_2_and_names_what_is_wrong() {
    for (arguments, expected) in [
        ("lab run nothing-of-that-name", "there is no experiment"),
        (
            "lab run nothing.toml",
            "`quoit lab list` names those that are built in",
        ),
        ("lab run plaintext --only nobody", "no server has this name"),
        ("lab run plaintext --resume", "--out"),
        ("lab run plaintext --pairs none", "--pairs"),
        ("lab bench", "bench"),
    ] {
        let output = run(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
        assert!(text.contains(expected), "{arguments}: {text}");
    }
    let lab = Lab::new("connections = 5\n");
    let output = lab.run("");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("test.toml"), "{text}");
}
