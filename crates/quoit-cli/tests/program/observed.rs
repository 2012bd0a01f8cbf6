//! What dashboards and rules of `deploy/` ask for, and what a control group shows of a server.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::support::{Client, PATIENCE, Server, connect, engines, quoit};

fn deploy(path: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../deploy")
            .join(path),
    )
    .unwrap()
}

/// Names of metrics in a text.
fn named(text: &str) -> BTreeSet<&str> {
    text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .filter(|word| word.starts_with("quoit_") && *word != "quoit_engine")
        .collect()
}

#[test]
fn what_dashboards_and_rules_ask_for_is_exported() {
    let server = Server::start("echo --listen 127.0.0.1:0 --metrics 127.0.0.1:0");
    let mut client = Client::<TcpStream>::new(connect(&server.message("metrics on ")));
    let text = client.get("/metrics").text().to_owned();
    let exported: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    // As OpenTelemetry's exporter calls it, with Kestrel; and what a rule records.
    let elsewhere = BTreeSet::from(["quoit_loop_lag_max_seconds", "quoit_loops_busy_share"]);
    for file in ["grafana/dashboard.json", "prometheus/rules.yaml"] {
        let text = deploy(file);
        let asked = named(&text);
        assert!(asked.len() > 4, "{file}: {asked:?}");
        let missing: Vec<_> = asked
            .difference(&exported)
            .filter(|name| !elsewhere.contains(*name))
            .collect();
        assert!(
            missing.is_empty(),
            "{file} asks for what is not exported: {missing:?}"
        );
    }
}

/// A bpftrace that runs; killed when dropped.
struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the script prints of a loop, while that has something to do.
#[test]
fn the_script_of_bpftrace_sees_loops_of_both_engines() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/bpftrace/loops.bt");
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return quoit_skipped::needs_root(quoit_skipped::this_test(), "CAP_BPF, CAP_PERFMON");
    }
    if !Path::new("/sys/kernel/tracing/events/syscalls/sys_enter_io_uring_enter").exists() {
        return quoit_skipped::skip_this("the kernel's tracepoints of system calls (tracefs) are not there");
    }
    for engine in engines() {
        let server = Server::on(engine, "http");
        let tracer = std::process::Command::new("bpftrace")
            .arg(&script)
            .arg(server.id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut tracer = match tracer {
            Ok(tracer) => Tracer(tracer),
            Err(error) => return quoit_skipped::skip_this(format!("bpftrace (Debian's package): {error}")),
        };
        let output = BufReader::new(tracer.0.stdout.take().unwrap());
        let seen = Arc::new(AtomicBool::new(false));
        let reader = {
            let (seen, engine) = (Arc::clone(&seen), *engine);
            std::thread::spawn(move || {
                let mut expected =
                    BTreeSet::from(["@handled_us[quoit-loop-0, ", "@waited_us[quoit-loop-0, "]);
                if engine == "uring" {
                    expected.insert("@submitted[quoit-loop-0, ");
                }
                for line in output.lines().map_while(Result::ok) {
                    expected.retain(|prefix| !line.starts_with(prefix));
                    if expected.is_empty() {
                        break;
                    }
                }
                seen.store(true, Ordering::Relaxed);
                expected
            })
        };
        let mut client = server.connect();
        let begin = Instant::now();
        while !seen.load(Ordering::Relaxed) {
            assert_eq!(client.get("/plaintext").status, 200);
            assert!(begin.elapsed() < PATIENCE, "the script shows nothing of {engine}");
        }
        let missing = reader.join().unwrap();
        assert!(missing.is_empty(), "{engine}: {missing:?}");
    }
}

/// A control group that counts memory; removed when dropped.
struct Group(PathBuf);

impl Group {
    /// In the hierarchy of version 1, or in that of version 2.
    fn make() -> Result<Self, String> {
        let name = format!("quoit-test-{}", std::process::id());
        let mut problem = "no control group counts memory here".to_owned();
        for (root, shows) in [
            ("/sys/fs/cgroup/memory", "memory.kmem.usage_in_bytes"),
            ("/sys/fs/cgroup", "memory.stat"),
        ] {
            let path = Path::new(root).join(&name);
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let group = Self(path);
                    if group.0.join(shows).exists() {
                        return Ok(group);
                    }
                }
                Err(error) => problem = format!("{}: {error}", path.display()),
            }
        }
        Err(problem)
    }

    /// Bytes of the kernel's own that are charged to it.
    fn kernel_memory(&self) -> u64 {
        let read = |file| std::fs::read_to_string(self.0.join(file));
        if let Ok(text) = read("memory.kmem.usage_in_bytes") {
            return text.trim().parse().unwrap();
        }
        let text = read("memory.stat").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("kernel "));
        line.unwrap().parse().unwrap()
    }

    /// Starts a server in it.
    fn start(&self, arguments: &str) -> Server {
        let mut command = std::process::Command::new("/bin/sh");
        let program = quoit("");
        command
            .args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$1\" serve $2"])
            .arg(&self.0)
            .arg(program.get_program())
            .arg(arguments);
        Server::start_command(command, 1)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A process that ends leaves its group a moment later.
        for _ in 0..1000 {
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// `docs/containers.md` says how much of the kernel's memory a loop takes: its rings, which `quoit doctor` names, and less than twice as
/// much for its thread, its stack and its descriptors.
#[test]
fn a_loops_rings_are_charged_to_its_control_group() {
    let group = match Group::make() {
        Ok(group) => group,
        Err(error) => return quoit_skipped::skip_this(error),
    };
    if engines()[0] != "uring" {
        return;
    }
    let doctor = crate::support::run("doctor --json");
    let found: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let rings = found["memory_a_loop"]["locked_bytes"].as_u64().unwrap();
    let with_loops = |loops: u64| {
        let mut server = group.start(&format!(
            "echo --listen 127.0.0.1:0 --engine uring --loops {loops}"
        ));
        let taken = group.kernel_memory();
        server.terminate();
        server.ends_with(0);
        taken
    };
    // The same but for sixteen loops.
    let (few, many) = (with_loops(1), with_loops(17));
    let a_loop = many.saturating_sub(few) / 16;
    assert!(
        (rings..rings * 3).contains(&a_loop),
        "a loop took {a_loop} bytes, its rings have {rings}"
    );
}
