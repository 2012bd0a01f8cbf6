//! Wrong usage and refusals: one line that says what failed, on what, and what to do.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use crate::support::{Server, deny_io_uring, engines, error_line, limit_descriptors, output, quoit, run};

#[test]
fn wrong_usage_exits_2_and_names_what_is_wrong() {
    for (arguments, expected) in [
        ("serve http --listen nowhere", "nowhere"),
        ("serve http --listen 127.0.0.1:99999", "99999"),
        ("serve http --without warp-drive", "warp-drive"),
        ("serve http --warp 9", "--warp"),
        (
            "serve http --loop 9",
            "found; a similar argument exists: '--loops'",
        ),
        ("serve echo --drain", "--drain"),
        ("load http", "--connect"),
        (
            "load http http://127.0.0.1:9/",
            "found; usage: quoit load http [OPTIONS] --connect <ADDR>; --help",
        ),
        (
            "load echo --connect 127.0.0.1:9 --requests 9 --seconds 1",
            "--requests",
        ),
        ("lab run", "<NAME|FILE>"),
        ("serve http --loops 0", "--loops"),
        ("serve http --zero-copy 0", "0 is not in 1..=1073741824"),
        ("serve http --zero-copy 1073741825", "1..=1073741824"),
        ("serve http --engine kqueue", "kqueue"),
        ("serve gopher", "gopher"),
        ("serve", "Usage"),
        ("doctor --require kqueue", "kqueue"),
        // Each of these is right alone.
        (
            "serve http --inherited --listen 127.0.0.1:0",
            "--listen and --inherited exclude each other",
        ),
        (
            "serve dns --inherited --record a.test=192.0.2.1",
            "dns has sockets of its own: name their address with --listen",
        ),
        (
            "serve sink --drain 3 --keep-idle 4",
            "--keep-idle 4 is longer than the drain",
        ),
        (
            "serve udp-echo --proxy-protocol",
            "--proxy-protocol is for connections",
        ),
        (
            "serve udp-echo --hand-over there",
            "--hand-over is for connections",
        ),
        (
            "serve http --hand-over there --spread reuse-port",
            "use --spread hand-over or shared",
        ),
    ] {
        let output = run(arguments);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {text}");
        assert!(text.contains(expected), "{arguments}: {text}");
        assert!(output.stdout.is_empty());
        let is_help = expected == "Usage";
        assert_eq!(text.lines().count() == 1, !is_help, "{arguments}: {text}");
    }
    let output = run("serve http --without warp-drive");
    assert!(String::from_utf8_lossy(&output.stderr).contains("defer-taskrun"));
}

#[test]
fn flags_may_stand_before_and_after_the_protocol() {
    for arguments in [
        "--listen 127.0.0.1:0 --loops 2 http",
        "http --listen 127.0.0.1:0 --loops 2",
        "--loops 2 http --listen 127.0.0.1:0",
    ] {
        let server = Server::start(arguments);
        assert_eq!(server.ready[0].loops, 2);
        assert_eq!(server.connect().get("/plaintext").text(), "Hello, World!");
    }
}

#[test]
fn an_address_in_use_is_named_with_a_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    for engine in ["auto", "epoll"] {
        let output = run(&format!("serve echo --listen {address} --engine {engine}"));
        let line = error_line_of_serve(&output, 1);
        assert!(
            line.contains(&format!("cannot listen on {address}")) && line.contains("ss -ltnp"),
            "{line}"
        );
        assert!(output.stdout.is_empty());
    }
    let line = error_line_of_serve(
        &run(&format!("serve echo --listen 127.0.0.1:0 --metrics {address}")),
        1,
    );
    assert!(line.contains(&address.to_string()), "{line}");
}

#[track_caller]
fn error_line_of_serve(output: &std::process::Output, code: i32) -> String {
    let line = error_line(output, code);
    assert!(line.starts_with("quoit serve: "), "{line}");
    line
}

#[test]
fn a_missing_permission_is_named_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o555)).unwrap();
    let path = folder.path().join("socket");
    let mut command = quoit(&format!("serve echo --listen unix:{}", path.display()));
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // Permissions do not bind root.
        command.uid(65_534).gid(65_534);
    }
    let line = error_line(&output(command), 1);
    assert!(
        line.contains("not allowed to make or remove the file") && line.contains("check its permissions"),
        "{line}"
    );
}

#[test]
fn without_io_uring_the_engine_is_refused_or_replaced_with_the_reason() {
    let mut required = quoit("serve echo --listen 127.0.0.1:0 --engine uring");
    deny_io_uring(&mut required);
    let line = error_line(&output(required), 1);
    assert!(
        line.contains("engine uring is not usable")
            && line.contains("denied by a seccomp filter")
            && line.contains("seccomp profile that allows io_uring_setup"),
        "{line}"
    );

    let mut automatic = quoit("serve http --listen 127.0.0.1:0");
    deny_io_uring(&mut automatic);
    let server = Server::start_command(automatic, 1);
    assert_eq!(server.ready[0].engine, "epoll");
    let reason = server.message("engine epoll: ");
    assert!(reason.contains("denied by a seccomp filter"), "{reason}");
    assert_eq!(server.connect().get("/plaintext").status, 200);
}

#[test]
fn descriptors_are_raised_as_far_as_asked_and_possible() {
    let limits = |server: &Server| {
        let text = server.proc_file("limits");
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files"));
        let limits: Vec<u64> = line
            .unwrap()
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        (limits[0], limits[1])
    };
    let start = |arguments: &str| {
        let mut command = quoit(&format!(
            "serve echo --engine epoll --listen 127.0.0.1:0 {arguments}"
        ));
        limit_descriptors(&mut command, 90, 300);
        Server::start_command(command, 1)
    };
    let mut enough = start("--connections 100");
    assert_eq!(limits(&enough), (300, 300));
    enough.terminate();
    assert_eq!(enough.ends_with(0), "");

    let untouched = start("--connections 10");
    assert_eq!(limits(&untouched), (90, 300));

    for arguments in ["--connections 1000", ""] {
        let too_few = start(arguments);
        let warning = too_few.message("quoit serve: warning: ");
        assert!(
            warning.contains("may have 300;") && warning.contains("LimitNOFILE="),
            "{warning}"
        );
        assert_eq!(limits(&too_few), (300, 300));
    }
}

#[test]
fn too_few_descriptors_for_a_loop_are_named_with_a_remedy() {
    for engine in engines() {
        let mut command = quoit(&format!(
            "serve echo --engine {engine} --loops 4 --listen 127.0.0.1:0"
        ));
        limit_descriptors(&mut command, 6, 6);
        let output = output(command);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().last().unwrap();
        assert!(
            line.starts_with("quoit serve: ") && line.contains("ulimit -n") && line.contains("LimitNOFILE="),
            "{line}"
        );
    }
}
