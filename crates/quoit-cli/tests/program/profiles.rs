//! The program under profiles of system calls: its own of `deploy/seccomp`, applied as runtimes do it, and with a call of
//! io_uring missing.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use quoit_deploy::profile::{IO_URING, Profile};

use crate::support::{Server, engines, error_line, output, quoit};

/// That of the program.
fn minimal() -> Profile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/seccomp/quoit.json");
    Profile::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The program with these arguments, under a profile.
pub(crate) fn under(profile: &Profile, arguments: &str) -> Command {
    let filter = profile.compile().unwrap();
    let mut command = quoit(arguments);
    // SAFETY: between fork and exec only two system calls are made, with memory that exists already.
    unsafe {
        command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(|_| io::Error::last_os_error()));
    }
    command
}

/// Whether the kernel filters its calls, which is what a test under a profile stands on.
#[track_caller]
pub(crate) fn is_filtered(server: &Server) {
    let status = server.proc_file("status");
    assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
}

#[test]
fn all_servers_and_loads_work_under_the_minimal_profile() {
    let profile = minimal();
    for engine in engines() {
        for (server, load) in [
            (
                "http --metrics 127.0.0.1:0",
                "http --connections 4 --requests 500",
            ),
            ("echo --pin --batch", "echo --connections 4 --requests 500"),
            ("rpc --wait spin:50", "rpc --connections 4 --requests 500"),
            ("udp-echo", "udp --count 500"),
        ] {
            let arguments = format!("serve {server} --loops 2 --engine {engine} --listen 127.0.0.1:0");
            let mut server = Server::start_command(under(&profile, &arguments), 1);
            assert_eq!(server.ready[0].engine, *engine);
            is_filtered(&server);
            let load = format!("load {load} --connect {}", server.address());
            let loaded = output(under(&profile, &load));
            assert!(loaded.status.success(), "{load}: {loaded:?}");
            server.terminate();
            server.ends_with(0);
        }
    }
}

#[test]
fn under_the_minimal_profile_other_calls_are_denied() {
    // What stands for the program asks for a call that the program has no use for.
    let filter = minimal().compile().unwrap();
    let mut command = Command::new("/bin/mkdir");
    command.arg("/nowhere/folder");
    // SAFETY: as in `under`.
    unsafe {
        command.pre_exec(move || seccompiler::apply_filter(&filter).map_err(|_| io::Error::last_os_error()));
    }
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Without the filter it would say that there is no such folder.
    assert!(said.contains("Operation not permitted"), "{said}");
}

#[test]
fn a_profile_that_lacks_one_of_the_three_calls_is_told_of_in_one_line() {
    if engines()[0] != "uring" {
        return;
    }
    for call in IO_URING {
        let profile = minimal().without(&[call]);
        let mut server = Server::start_command(under(&profile, "serve http --listen 127.0.0.1:0"), 1);
        assert_eq!(server.ready[0].engine, "epoll");
        let reason = server.message("engine epoll: ");
        for word in [
            "is denied by a seccomp filter",
            "use a seccomp profile that allows",
            call,
        ] {
            assert!(reason.contains(word), "{call}: {reason}");
        }
        assert_eq!(server.connect().get("/healthz").text(), "ok");
        server.terminate();
        server.ends_with(0);

        // And no fall-back for who asked for none.
        let line = error_line(
            &output(under(&profile, "serve http --listen 127.0.0.1:0 --engine uring")),
            1,
        );
        assert!(line.contains("is denied by a seccomp filter"), "{call}: {line}");
        let doctor = output(under(&profile, "doctor --require uring"));
        assert_eq!(doctor.status.code(), Some(1), "{doctor:?}");
        let verdict = String::from_utf8_lossy(&doctor.stdout)
            .lines()
            .next()
            .unwrap()
            .to_owned();
        assert!(
            verdict.starts_with("engine: epoll, because ") && verdict.contains(call),
            "{verdict}"
        );
    }
}
