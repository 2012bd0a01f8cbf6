//! The units of `deploy/systemd`: what systemd's own programs say of them, and the program under what they set.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use quoit_deploy::profile::Profile;

use crate::profiles::{is_filtered, under};
use crate::support::{Server, engines, output};

const SERVICES: [&str; 2] = ["quoit.service", "quoit-activated.service"];
const SOCKET: &str = "quoit-activated.socket";
/// The exposure of each service, in tenths: what `docs/systemd.md` says of it.
const EXPOSURE: &str = "14";

fn unit(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The units with the program where it was built, and without its manual, which is not installed there.
fn placed() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let paths = SERVICES.iter().chain([&SOCKET]).map(|name| {
        let text = unit(name)
            .replace("/usr/bin/quoit", env!("CARGO_BIN_EXE_quoit"))
            .replace("Documentation=man:quoit-serve(1)\n", "");
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    });
    let paths = paths.collect();
    (folder, paths)
}

/// One of systemd's programs; `None` if it is not there, which is said.
fn systemds(program: &str) -> Option<Command> {
    match Command::new(program).arg("--version").output() {
        Ok(_) => Some(Command::new(program)),
        Err(error) => {
            quoit_skipped::skip_this(format!("{program} (package systemd): {error}"));
            None
        }
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_the_units() {
    let Some(mut analyze) = systemds("systemd-analyze") else {
        return;
    };
    let (_folder, paths) = placed();
    let found = output({
        analyze.arg("verify").args(&paths);
        analyze
    });
    assert!(found.status.success() && found.stderr.is_empty(), "{found:?}");
}

#[test]
fn the_services_are_as_little_exposed_as_the_document_says() {
    for service in SERVICES {
        let Some(mut analyze) = systemds("systemd-analyze") else {
            return;
        };
        let (folder, _paths) = placed();
        analyze
            .args(["security", "--offline=yes", "--no-pager", "--threshold", EXPOSURE])
            .arg(folder.path().join(service));
        let found = output(analyze);
        assert!(
            found.status.success(),
            "{}",
            String::from_utf8_lossy(&found.stdout)
        );
    }
}

/// The calls of one of systemd's sets, with those of the sets in it.
fn calls_of(name: &str, calls: &mut BTreeSet<String>) {
    if !name.starts_with('@') {
        calls.insert(name.to_owned());
        return;
    }
    let listed = Command::new("systemd-analyze")
        .args(["syscall-filter", name])
        .output()
        .unwrap();
    assert!(listed.status.success(), "{name}: {listed:?}");
    let text = String::from_utf8(listed.stdout).unwrap();
    for line in text
        .lines()
        .skip(1)
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        calls_of(line, calls);
    }
}

/// What a service's lines of `SystemCallFilter=` allow, as systemd reads them: one after the other.
fn filter_of(service: &str) -> Profile {
    let mut allowed = BTreeSet::new();
    // Those that systemd allows in any case where a list begins with what is allowed.
    calls_of("@default", &mut allowed);
    let text = unit(service);
    let lines: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="))
        .collect();
    assert!(!lines.is_empty());
    for line in lines {
        let (is_denied, names) = line
            .strip_prefix('~')
            .map_or((false, line), |names| (true, names));
        let mut named = BTreeSet::new();
        for name in names.split(' ') {
            calls_of(name, &mut named);
        }
        if is_denied {
            allowed.retain(|call| !named.contains(call));
        } else {
            allowed.extend(named);
        }
    }
    Profile::of(allowed, service)
}

#[test]
fn the_services_filters_let_the_program_do_its_work() {
    for service in SERVICES {
        if systemds("systemd-analyze").is_none() {
            return;
        }
        let filter = filter_of(service);
        for call in ["mount", "reboot", "ptrace"] {
            assert!(!filter.allowed().contains(call), "{service} allows {call}");
        }
        for engine in engines() {
            let arguments = format!("serve http --loops 2 --pin --engine {engine} --listen 127.0.0.1:0");
            let mut server = Server::start_command(under(&filter, &arguments), 1);
            assert_eq!(server.ready[0].engine, *engine);
            is_filtered(&server);
            let load = format!(
                "load http --connections 4 --requests 500 --connect {}",
                server.address()
            );
            let loaded = output(under(&filter, &load));
            assert!(loaded.status.success(), "{loaded:?}");
            server.terminate();
            server.ends_with(0);
        }
    }
}

#[test]
fn the_socket_unit_passes_what_the_activated_service_takes() {
    let Some(mut activate) = systemds("systemd-socket-activate") else {
        return;
    };
    let service = unit("quoit-activated.service");
    let started = service
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/bin/quoit "))
        .unwrap();
    // The port of the metrics is another matter.
    let arguments = started.replace("127.0.0.1:9100", "127.0.0.1:0");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut manager = activate
        .arg(format!("--listen={}", path.display()))
        .arg(env!("CARGO_BIN_EXE_quoit"))
        .args(arguments.split(' '))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(manager.stderr.take().unwrap()).lines();
    let listening = said.next().unwrap().unwrap();
    assert!(listening.starts_with("Listening on "), "{listening}");
    let mut client = UnixStream::connect(&path).unwrap();
    client.set_read_timeout(Some(crate::support::PATIENCE)).unwrap();
    client
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(
        response.starts_with("HTTP/1.1 200 ") && response.ends_with("ok"),
        "{response}"
    );
    // It has become the program, so it drains and ends well.
    crate::support::signal(&manager, libc::SIGTERM);
    let rest: Vec<String> = said.map_while(Result::ok).collect();
    assert!(manager.wait().unwrap().success(), "{rest:?}");
}
