//! `quoit load` as a program, against small servers on threads of the test.

mod addresses;
mod churn;
mod files;
mod limits;
mod open_loop;
mod output;
mod servers;
mod shapes;
mod udp;

use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::Value;

use self::servers::{
    answer, assert_right, echo, error_line, interrupted_report, may_not_raise_limits, plain, quoit, report,
    send, serve,
};

/// An address where nobody is, and that no socket of another test is given meanwhile.
fn nobody() -> SocketAddr {
    let host = IpAddr::from([127, 0, 0, 1]);
    SocketAddr::new(host, quoit_host::ports::free(host).expect("a port is free"))
}

#[test]
fn a_good_echo_is_measured() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    for options in [
        "--connections 8 --requests 1000",
        "--connections 3 --threads 2 --pipeline 7 --requests 1001 --size 1",
        "--connections 2 --pipeline 4 --requests 50 --size 300000",
        "--connections 16 --requests 5",
    ] {
        let requests = options
            .split("--requests ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let requests = requests
            .and_then(|text| text.parse().ok())
            .expect("options name the requests");
        assert_right(
            &format!("load echo --connect {address} --warmup 0 {options}"),
            requests,
        );
    }
}

#[test]
fn warm_up_comes_before_the_requests_that_are_measured() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let load = format!("load echo --connect {address} --connections 4 --pipeline 3");
    assert_right(&format!("{load} --warmup 0.05 --requests 500"), 500);
    assert_right(&format!("{load} --warmup 0.05 --requests 1"), 1);
}

#[test]
fn a_window_in_seconds_has_that_length() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let (code, report) = report(&format!(
        "load echo --connect {address} --connections 2 --warmup 0 --seconds 1"
    ));
    assert_eq!(code, 0, "{report:#}");
    let elapsed = report["elapsed_seconds"].as_f64().expect("a number");
    assert!((0.0..=1.0).contains(&elapsed), "{report:#}");
    assert!(report["requests"].as_u64() > Some(0), "{report:#}");
}

#[test]
fn unix_sockets_are_loaded_by_path_and_by_abstract_name() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("echo.sock");
    let name = format!("quoit-load-test-{}", std::process::id());
    let abstract_name = UnixAddress::from_abstract_name(&name).expect("the name is short");
    for (listener, target) in [
        (UnixListener::bind(&path), format!("unix:{}", path.display())),
        (UnixListener::bind_addr(&abstract_name), format!("unix:@{name}")),
    ] {
        let listener = listener.expect("the name is free");
        thread::spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("accept works");
                thread::spawn(move || echo(stream, |_| {}));
            }
        });
        let options = "--connections 4 --pipeline 4 --size 100000 --warmup 0 --requests 200";
        assert_right(&format!("load echo --connect {target} {options}"), 200);
    }
}

#[test]
fn a_corrupted_byte_is_found_and_the_load_goes_on() {
    // Connections 1 to 4 are those of the run; each changes a byte of its first message. Of later ones a connection whose
    // thread gets no processor might see none: the others would send them all.
    let address = serve(|number, stream| {
        let mut seen = 0;
        echo(stream, |bytes| {
            let target = 20;
            if (1..=4).contains(&number) && (seen..seen + bytes.len()).contains(&target) {
                bytes[target - seen] ^= 1;
            }
            seen += bytes.len();
        });
    });
    let (code, report) = report(&format!(
        "load echo --connect {address} --connections 4 --warmup 0 --requests 400"
    ));
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(report["errors"]["wrong_content"], 4, "{report:#}");
    assert_eq!(report["requests"], 396, "{report:#}");
    // Whose byte is found wrong with the run's last replies is not opened again.
    let reconnects = report["reconnects"].as_u64().unwrap();
    assert!((1..=4).contains(&reconnects), "{report:#}");
    assert_eq!(report["invalid"], "errors occurred", "{report:#}");
    let first = report["first_error"].as_str().expect("the first error is told");
    assert!(first.contains("byte 20 is"), "{first}");
}

#[test]
fn what_is_no_echo_is_found_before_the_run() {
    let address = serve(|_, stream| echo(stream, |bytes| bytes[0] ^= 1));
    let line = error_line(&quoit(&format!("load echo --connect {address} --requests 10")));
    assert!(line.contains(&address) && line.contains("byte 0 is"), "{line}");
}

#[test]
fn proper_http_replies_are_measured_whatever_their_framing() {
    let plain_address = serve(|_, stream| answer(stream, |_| plain("Hello, World!")));
    let chunked_address = serve(|_, stream| {
        answer(stream, |index| {
            // The same body in other chunks.
            let chunks = if index % 2 == 0 {
                "5\r\nHello\r\n0\r\n\r\n"
            } else {
                "2\r\nHe\r\n3\r\nllo\r\n0\r\n\r\n"
            };
            Some(format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"
            ))
        });
    });
    let options = "--connections 4 --pipeline 5 --warmup 0 --requests 1000";
    assert_right(
        &format!("load http --connect http://{plain_address}/plaintext {options}"),
        1000,
    );
    assert_right(&format!("load http --connect {chunked_address} {options}"), 1000);
}

#[test]
fn a_large_body_is_compared_over_many_reads() {
    let body = "0123456789abcdef".repeat(40_000);
    let address = serve(move |number, stream| {
        answer(stream, |index| {
            let mut reply = plain(&body)?;
            // The first: how many of the requests a connection gets is up to the scheduler.
            if number == 1 && index == 0 {
                reply.truncate(reply.len() - 1);
                reply.push('X');
            }
            Some(reply)
        });
    });
    let (code, report) = report(&format!(
        "load http --connect {address} --connections 2 --warmup 0 --requests 20"
    ));
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(report["errors"]["wrong_content"], 1, "{report:#}");
    assert_eq!(report["requests"], 19, "{report:#}");
    assert_eq!(report["reconnects"], 0, "{report:#}");
    let first = report["first_error"].as_str().expect("the first error is told");
    assert!(first.ends_with("at byte 639999"), "{first}");
}

#[test]
fn a_wrong_status_is_counted_and_the_connection_goes_on() {
    let address = serve(|number, stream| {
        answer(stream, |index| {
            if number > 0 && index % 10 == 9 {
                Some("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy".to_owned())
            } else {
                plain("Hello")
            }
        });
    });
    let (code, report) = report(&format!(
        "load http --connect {address} --connections 1 --warmup 0 --requests 100"
    ));
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(report["errors"]["wrong_status"], 10, "{report:#}");
    assert_eq!(report["requests"], 90, "{report:#}");
    assert_eq!(report["reconnects"], 0, "{report:#}");

    let address = serve(|_, stream| {
        answer(stream, |_| {
            Some("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned())
        });
    });
    let line = error_line(&quoit(&format!(
        "load http --connect {address} --path /none --requests 1"
    )));
    assert!(line.contains("status 404") && line.contains("path"), "{line}");
}

/// All replies of a server that is always wrong are alike.
#[test]
fn a_body_that_is_not_the_expected_one_ends_the_run() {
    let address = serve(|_, stream| answer(stream, |_| plain("Hallo")));
    let load = format!("load http --connect {address} --connections 1 --warmup 0 --requests 10");
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = folder.path().join("body");
    std::fs::write(&file, "Hallo").expect("it can be written");
    assert_right(&format!("{load} --expect Hallo"), 10);
    assert_right(&format!("{load} --expect @{}", file.display()), 10);
    for (expected, found) in [
        (
            "Hello",
            "has 5 bytes and is not the 5 of --expect: they differ at byte 1",
        ),
        (
            "Hallo!",
            "has 5 bytes and is not the 6 of --expect: they differ at byte 5",
        ),
    ] {
        let line = error_line(&quoit(&format!("{load} --expect {expected}")));
        assert!(line.contains(found), "{line}");
    }
    let missing = quoit(&format!("{load} --expect @/nonexistent/body"));
    assert_eq!(missing.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&missing.stderr).contains("cannot read /nonexistent/body"));
}

#[test]
fn an_announced_close_is_no_error() {
    let address = serve(|_, stream| {
        answer(stream, |index| {
            let reply = plain("Hello")?;
            match index {
                0 | 1 => Some(reply),
                2 => Some(reply.replace("Date", "Connection: close\r\nDate")),
                _ => None,
            }
        });
    });
    for pipeline in [1, 8] {
        let options = format!("--connections 4 --pipeline {pipeline} --warmup 0 --requests 300");
        let report = assert_right(&format!("load http --connect {address} {options}"), 300);
        // Those behind the one that was answered last are sent once more.
        assert_eq!(report["repeated_requests"] != 0, pipeline > 1, "{report:#}");
    }
}

#[test]
fn a_close_after_each_reply_is_counted_and_the_load_goes_on() {
    let address = serve(|_, stream| answer(stream, |index| if index == 0 { plain("Hello") } else { None }));
    let (code, report) = report(&format!(
        "load http --connect {address} --connections 2 --warmup 0 --requests 100"
    ));
    assert_eq!(code, 1, "{report:#}");
    let errors = &report["errors"];
    let count = |value: &Value| value.as_u64().expect("a count");
    assert!(
        count(&errors["closed_early"]) + count(&errors["reset"]) > 10,
        "{report:#}"
    );
    assert!(count(&report["reconnects"]) > 10, "{report:#}");
    // Every request was either answered or lost.
    assert_eq!(
        count(&report["requests"]) + count(&errors["lost_requests"]),
        100,
        "{report:#}"
    );
}

#[test]
fn a_reply_that_no_request_called_for_is_found() {
    // The reply comes twice in one write; the check before the run would refuse it.
    let address = serve(|number, stream| {
        answer(stream, |_| {
            let reply = plain("Hello")?;
            Some(if number == 1 { reply.repeat(2) } else { reply })
        });
    });
    let (code, report) = report(&format!(
        "load http --connect {address} --connections 1 --warmup 0 --requests 1"
    ));
    assert_eq!(code, 1, "{report:#}");
    assert_eq!(report["errors"]["wrong_content"], 1, "{report:#}");
    assert_eq!(report["requests"], 1, "{report:#}");
}

#[test]
fn a_server_that_falls_silent_ends_the_run() {
    let silent = Arc::new(AtomicUsize::new(0));
    let count = silent.clone();
    let address = serve(move |number, mut stream| {
        if number == 0 {
            return echo(stream, |_| {});
        }
        count.fetch_add(1, Ordering::Relaxed);
        // Reads all and answers nothing.
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
    });
    let (code, report) = report(&format!(
        "load echo --connect {address} --connections 2 --warmup 0 --requests 10 --timeout 2"
    ));
    assert_eq!(code, 1, "{report:#}");
    assert!(report["errors"]["timeouts"].as_u64() >= Some(2), "{report:#}");
    assert_eq!(report["requests"], 0, "{report:#}");
    assert!(silent.load(Ordering::Relaxed) >= 2);
}

#[test]
fn a_refused_connection_is_told_in_one_line() {
    let address = nobody();
    for protocol in ["echo", "http"] {
        let line = error_line(&quoit(&format!(
            "load {protocol} --connect {address} --requests 1"
        )));
        assert!(
            line.contains(&address.to_string()) && line.contains("refused"),
            "{line}"
        );
        assert!(line.contains("is the server running"), "{line}");
    }
}

#[test]
fn too_many_connections_for_the_descriptor_limit_are_refused_before_anything_starts() {
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(env!("CARGO_BIN_EXE_quoit"));
        command
    };
    let mut command = shell("ulimit -n 100 && exec \"$0\" load echo --connect 127.0.0.1:9 --connections 200");
    may_not_raise_limits(&mut command);
    let refused = |output: &Output, connections: &str| {
        let line = error_line(output);
        assert!(
            line.contains(connections) && line.contains("hard limit is 100") && line.contains("`ulimit -Hn "),
            "{line}"
        );
    };
    refused(
        &command.output().expect("a shell can be started"),
        "200 connections",
    );

    // A hard limit is raised by who may, which the shell tells.
    let address = serve(|_, stream| echo(stream, |_| {}));
    let load = format!("load echo --connect {address} --connections 150 --warmup 0 --requests 300");
    let run = |script: &str| shell(script).output().expect("a shell can be started");
    let output = run(&format!("ulimit -n 100 && exec \"$0\" {load}"));
    if run("ulimit -n 100 && ulimit -n 300").status.success() {
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    } else {
        refused(&output, "150 connections");
    }

    // A soft limit that is too low is raised by anyone.
    let output = run(&format!("ulimit -S -n 100 && exec \"$0\" {load}"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn wrong_usage_is_told_apart() {
    for arguments in [
        "load",
        "load echo",
        "load echo --connect localhost:80",
        "load echo --connect http://127.0.0.1:80/",
        "load echo --connect 127.0.0.1:80 --size 0",
        "load echo --connect 127.0.0.1:80 --connections 0",
        "load echo --connect 127.0.0.1:80 --connections 1 --threads 2",
        "load echo --connect 127.0.0.1:80 --seconds 1 --requests 1",
        "load http --connect https://127.0.0.1/",
        "load http --connect http://127.0.0.1/x --path /y",
        "load http --connect 127.0.0.1:80 --path x",
        "load echo --connect 127.0.0.1:80 --rate 0",
        "load echo --connect 127.0.0.1:80 --schedule fixed",
        "load echo --connect 127.0.0.1:80 --size 5 --sizes 5..6",
        "load echo --connect 127.0.0.1:80 --sizes 6..5",
        "load echo --connect 127.0.0.1:80 --slow 64",
        "load echo --connect 127.0.0.1:80 --churn --pipeline 2",
        "load echo --connect 127.0.0.1:80 --source ::1",
        "load echo --connect unix:@x --source 127.0.0.1",
        "load echo --connect 127.0.0.1:80 --slip 0",
        "load echo --connect 127.0.0.1:80 --start-at soon",
    ] {
        let output = quoit(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {output:?}");
        assert!(
            !output.stderr.is_empty() && output.stdout.is_empty(),
            "{arguments}: {output:?}"
        );
    }
}

#[test]
fn people_get_a_table_and_no_progress_bar_outside_a_terminal() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let output = quoit(&format!(
        "load echo --connect {address} --connections 2 --warmup 0 --requests 100"
    ));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    for name in ["requests/s", "p50", "p99.9", "generator CPU", "errors"] {
        assert!(text.contains(name), "{text}");
    }
}

#[test]
fn an_interrupt_ends_the_run_and_what_was_measured_is_printed() {
    ended_by(&["-INT"]);
}

/// A service manager or Kubernetes; or `timeout`, whose command gets the signal twice.
#[test]
fn so_does_whoever_ends_the_process() {
    ended_by(&["-TERM", "-TERM"]);
}

fn ended_by(signals: &[&str]) {
    let (seen, answered) = std::sync::mpsc::sync_channel(1);
    let address = serve(move |number, stream| {
        let mut messages = 0;
        let seen = seen.clone();
        echo(stream, |_| {
            messages += 1;
            if number > 0 && messages == 100 {
                // Nobody waits any more after the first.
                let _ = seen.try_send(());
            }
        });
    });
    let child = Command::new(env!("CARGO_BIN_EXE_quoit"))
        .args([
            "load",
            "echo",
            "--connect",
            &address,
            "--connections",
            "2",
            "--warmup",
            "0",
        ])
        .args(["--seconds", "3600", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("the program can be started");
    answered.recv().expect("the load arrives");
    for signal in signals {
        send(&child, signal);
    }
    let report = interrupted_report(child);
    assert!(report["requests"].as_u64() >= Some(100), "{report:#}");
}

#[test]
fn the_window_is_announced_ahead_of_it() {
    let address = serve(|_, stream| echo(stream, |_| {}));
    let output = quoit(&format!(
        "load echo --connect {address} --connections 2 --seconds 0.2 --warmup 0.1 --announce --json"
    ));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8_lossy(&output.stderr);
    let words: Vec<&str> = text.split_whitespace().collect();
    let [window, opens, lasts, opens_in] = words[..] else {
        panic!("{text}")
    };
    let number = |word: &str, name: &str| -> u64 {
        let value = word.strip_prefix(name).expect(word);
        value.parse().expect(word)
    };
    assert_eq!(window, "window");
    assert!(number(opens, "opens_ns=") > 100_000_000);
    assert_eq!(number(lasts, "lasts_ns="), 200_000_000);
    assert!((1..=100_000_000).contains(&number(opens_in, "in_ns=")));
}
