//! `quoit load udp`, against sinks and echoes on threads of the test.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use quoit_workload::{Header, Kind, Sink, SinkReport, Taken, Work};
use serde_json::Value;

use super::nobody;
use super::servers::{error_line, interrupt, interrupt_the_check, interrupted_report, number, quoit, report};

/// Guards against hanging; nothing that works waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A socket of the test, and its address.
fn bind(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(address).expect("a port is free");
    socket
        .set_read_timeout(Some(PATIENCE))
        .expect("the time is not zero");
    let address = socket.local_addr().expect("a bound socket has an address");
    (socket, address)
}

/// A sink on a thread: its address, and what it finds.
fn sink(address: &str) -> (SocketAddr, JoinHandle<SinkReport>) {
    let (socket, address) = bind(address);
    let found = thread::spawn(move || {
        let mut sink = Sink::new(Work::of(Duration::ZERO));
        let mut buffer = vec![0; 1 << 16];
        loop {
            let length = socket.recv(&mut buffer).expect("datagrams come");
            sink.received(1);
            if sink.take(&buffer[..length], true) == Taken::Last {
                sink.look(socket.as_fd()).expect("the socket can be looked at");
                return sink.report("test", Duration::ZERO, 0).expect("memory is known");
            }
        }
    });
    (address, found)
}

/// An echo on a thread, for as long as the test lives. `replies` says what each datagram but the probe before a run is
/// answered with.
fn echo(replies: impl Fn(Header, &[u8]) -> Vec<Vec<u8>> + Send + 'static) -> SocketAddr {
    let (socket, address) = bind("127.0.0.1:0");
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        let mut probed = false;
        while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
            let datagram = &buffer[..length];
            let answers = match Header::decode(datagram) {
                Ok(header) if probed => replies(header, datagram),
                _ => vec![datagram.to_vec()],
            };
            probed = true;
            for answer in answers {
                // A run that is over takes no replies.
                let _ = socket.send_to(&answer, peer);
            }
        }
    });
    address
}

/// Runs against a sink until all is said, and checks that every datagram is accounted for.
#[track_caller]
fn run_to_sink(bound: &str, options: &str) -> (Value, SinkReport) {
    let (address, found) = sink(bound);
    // More shutdowns than are ever needed: a sink that is overrun loses some.
    let load = format!("load udp --connect {address} --shutdowns 1000 --shutdown-every 5 {options}");
    let (code, sent) = report(&load);
    assert_eq!(code, 0, "{sent:#}");
    let found = found.join().expect("the sink ended");
    assert!(found.complete, "{found:?}");
    assert_eq!(found.sent, Some(number(&sent["sent"])), "{found:?}");
    assert_eq!(found.run, Some(number(&sent["run"])), "{found:?}");
    assert_eq!(
        found.sent,
        found.missing.map(|missing| missing + found.received),
        "{found:?}"
    );
    let dropped = found.data_drops(number(&sent["shutdown"]["datagrams"]));
    assert!(
        found.missing.is_some_and(|missing| dropped.contains(&missing)),
        "{dropped:?} {found:?}"
    );
    assert_eq!(
        (found.totals.duplicates, found.totals.foreign),
        (0, 0),
        "{found:?}"
    );
    (sent, found)
}

#[test]
fn every_datagram_is_accounted_for_at_a_sink() {
    for options in [
        "--count 5000",
        "--count 5001 --mode sendmmsg --batch 7 --senders 2",
        "--count 5003 --mode gso --senders 3",
        "--count 301 --mode gso --size 20000",
        "--count 3000 --mode sendmmsg --sizes 40..3000 --seed 4",
        "--count 2000 --rate 100000 --senders 2 --source 127.0.0.2-127.0.0.3",
    ] {
        let (sent, _) = run_to_sink("127.0.0.1:0", options);
        let count = options.split(' ').nth(1).and_then(|count| count.parse().ok());
        assert_eq!(sent["sent"].as_u64(), count, "{sent:#}");
        assert_eq!(sent["shutdown"]["ended_early"], true, "{sent:#}");
        assert_eq!(sent["invalid"], Value::Null, "{sent:#}");
    }
    run_to_sink("[::1]:0", "--count 1000 --mode sendmmsg");
}

#[test]
fn a_run_in_seconds_sends_at_its_rate_and_no_faster() {
    let (sent, found) = run_to_sink("127.0.0.1:0", "--seconds 0.5 --rate 2000 --senders 3 --size 40");
    // What falls due in half a second; fewer, if the machine lets a sender sleep through the end.
    assert!((1..=1000).contains(&found.sent.unwrap()), "{sent:#}");
    assert_eq!(sent["offered_per_second"], 2000.0, "{sent:#}");
    assert!(sent["lag"]["max_ns"].as_u64() > Some(0), "{sent:#}");
    assert_eq!(found.totals.bytes, 40 * found.received);
}

#[test]
fn phases_follow_one_another_and_every_tenth_of_a_second_closes() {
    let phases = "--phase flat:0.2 --phase 1000:0.3 --phase 3000:0.2 --senders 2 --mode sendmmsg";
    let (sent, found) = run_to_sink("127.0.0.1:0", phases);
    let phases = sent["phases"].as_array().expect("a list");
    let offered: Vec<_> = phases.iter().map(|phase| &phase["offered_per_second"]).collect();
    assert_eq!(
        offered,
        [&Value::Null, &1000.0.into(), &3000.0.into()],
        "{sent:#}"
    );
    let begins: Vec<_> = phases.iter().map(|phase| &phase["begins_seconds"]).collect();
    assert_eq!(begins, [&Value::from(0.0), &0.2.into(), &0.5.into()], "{sent:#}");
    let total: u64 = phases.iter().map(|phase| number(&phase["sent"])).sum();
    assert_eq!(total, number(&sent["sent"]), "{sent:#}");
    // No more than fell due; fewer, if the machine lets a sender sleep through the end of a phase.
    assert!((1..=300).contains(&number(&phases[1]["sent"])), "{sent:#}");
    assert!((1..=600).contains(&number(&phases[2]["sent"])), "{sent:#}");
    assert_eq!(sent["offered_per_second"], Value::Null, "{sent:#}");

    let counted = sent["intervals"].as_array().expect("a list");
    assert!((6..=7).contains(&counted.len()), "{sent:#}");
    assert_eq!(counted.iter().map(number).sum::<u64>(), total, "{sent:#}");
    assert!(counted[2..5].iter().map(number).sum::<u64>() <= 300, "{sent:#}");
    let handled = found.intervals.counts();
    assert_eq!(handled.iter().sum::<u64>(), found.received, "{found:?}");
    for (place, &handled) in handled.iter().enumerate() {
        assert!(handled <= number(&counted[place]), "{place}: {found:?} {sent:#}");
    }
}

#[test]
fn an_interrupt_ends_the_run_and_the_sink_is_told() {
    let (socket, address) = bind("127.0.0.1:0");
    let mut child = Command::new(env!("CARGO_BIN_EXE_quoit"))
        .args([
            "load",
            "udp",
            "--connect",
            &address.to_string(),
            "--shutdowns",
            "1",
        ])
        .args(["--rate", "100", "--seconds", "3600", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program can be started");
    let mut buffer = [0; 2048];
    let mut next = || {
        let length = socket.recv(&mut buffer).expect("datagrams come");
        Header::decode(&buffer[..length]).expect("they are of the load")
    };
    assert_eq!(next().kind, Kind::Data);
    interrupt(&child);
    // In less than the minute that all this would take.
    let told = (0..6_000)
        .map(|_| next())
        .find(|header| header.kind == Kind::Shutdown);
    if told.is_none() {
        child.kill().expect("it runs");
    }
    let report = interrupted_report(child);
    let sent = number(&report["sent"]);
    assert_eq!(told.map(|header| header.sequence), Some(sent), "{report:#}");
    assert_eq!(report["phases"][0]["sent"], sent, "{report:#}");
}

/// The check before a run ends with an interrupt, too, and at once: nothing is measured yet.
#[test]
fn an_interrupt_ends_the_check_of_an_echo_that_says_nothing() {
    let (socket, address) = bind("127.0.0.1:0");
    interrupt_the_check(&["udp", "--echo"], &address.to_string(), || {
        socket.recv(&mut [0; 2048]).expect("it asks");
    });
}

#[test]
fn a_good_echo_answers_everything() {
    let address = echo(|_, datagram| vec![datagram.to_vec()]);
    for options in [
        "--count 2000",
        "--count 2001 --outstanding 8 --senders 2 --mode sendmmsg",
        // By a timetable it does not wait for replies: a socket's memory has room for all of them.
        "--count 150 --rate 20000 --sizes 40:9,1400:1",
        "--count 100 --outstanding 2 --size 65507",
    ] {
        let load = format!("load udp --connect {address} --echo --timeout 20 {options}");
        let (code, found) = report(&load);
        assert_eq!(code, 0, "{found:#}");
        let replies = &found["replies"];
        assert_eq!(replies["received"], found["sent"], "{found:#}");
        for none in ["lost", "duplicates", "wrong", "foreign"] {
            assert_eq!(replies[none], 0, "{none}: {found:#}");
        }
        assert!(replies["latency"]["p50_ns"].as_u64() > Some(0), "{found:#}");
        assert_eq!(found["shutdown"]["datagrams"], 0, "{found:#}");
    }
}

#[test]
fn lost_repeated_and_late_replies_are_counted_exactly() {
    // The third of ten never comes back, the fifth twice, the eighth after the ninth.
    let held = std::sync::Mutex::new(Vec::new());
    let address = echo(move |header, datagram| match header.sequence % 10 {
        3 => Vec::new(),
        5 => vec![datagram.to_vec(), datagram.to_vec()],
        8 => {
            held.lock().unwrap().push(datagram.to_vec());
            Vec::new()
        }
        9 => std::iter::once(datagram.to_vec())
            .chain(held.lock().unwrap().drain(..))
            .collect(),
        _ => vec![datagram.to_vec()],
    });
    // More outstanding than are lost, and fewer than a socket's memory has room for, however late the echo runs.
    let (code, found) = report(&format!(
        "load udp --connect {address} --echo --count 200 --outstanding 32 --timeout 3"
    ));
    assert_eq!(code, 0, "{found:#}");
    let replies = &found["replies"];
    assert_eq!(found["sent"], 200, "{found:#}");
    assert_eq!(replies["received"], 180, "{found:#}");
    assert_eq!(
        (&replies["lost"], &replies["duplicates"]),
        (&20.into(), &20.into()),
        "{found:#}"
    );
    assert_eq!(
        (&replies["reordered"], &replies["wrong"]),
        (&20.into(), &0.into()),
        "{found:#}"
    );
}

#[test]
fn datagrams_without_a_reply_make_room_after_the_timeout() {
    let address = echo(|header, datagram| match header.sequence {
        0 | 1 => Vec::new(),
        _ => vec![datagram.to_vec()],
    });
    let load = format!("load udp --connect {address} --echo --count 50 --outstanding 2 --timeout 1");
    let (code, found) = report(&load);
    assert_eq!((code, &found["sent"]), (0, &50.into()), "{found:#}");
    assert_eq!(found["replies"]["lost"], 2, "{found:#}");
}

#[test]
fn wrong_replies_make_a_run_invalid() {
    let address = echo(|header, datagram| {
        let mut reply = datagram.to_vec();
        match header.sequence {
            4 => reply[700] ^= 1,
            5 => reply.truncate(900),
            6 => reply.push(0),
            7 => reply = b"what?".to_vec(),
            _ => {}
        }
        vec![reply]
    });
    let (code, found) = report(&format!(
        "load udp --connect {address} --echo --count 20 --rate 1000 --timeout 1"
    ));
    assert_eq!(code, 1, "{found:#}");
    let replies = &found["replies"];
    assert_eq!(
        (&replies["wrong"], &replies["foreign"]),
        (&3.into(), &1.into()),
        "{found:#}"
    );
    assert_eq!(
        (&replies["received"], &replies["lost"]),
        (&16.into(), &4.into()),
        "{found:#}"
    );
    assert_eq!(found["invalid"], "replies were wrong", "{found:#}");
    let first = replies["first_error"].as_str().expect("a text");
    assert!(first.contains("byte 700 of the reply to datagram 4"), "{first}");
}

#[test]
fn the_report_for_people_has_the_same_figures() {
    let address = echo(|_, datagram| vec![datagram.to_vec()]);
    let output = quoit(&format!(
        "load udp --connect {address} --echo --count 100 --timeout 20"
    ));
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for line in [
        "udp of 1024 bytes on",
        "1 x sendto",
        "replies",
        "p99.9",
        "generator CPU",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_run_that_cannot_be_made_says_why_and_what_to_do() {
    let address = nobody();
    let line = error_line(&quoit(&format!("load udp --connect {address} --count 100000")));
    assert!(line.contains("quoit serve udp-sink --listen"), "{line}");
    let line = error_line(&quoit(&format!("load udp --connect {address} --echo")));
    assert!(line.contains("quoit serve udp-echo --listen"), "{line}");

    let (silent, address) = bind("127.0.0.1:0");
    let line = error_line(&quoit(&format!(
        "load udp --connect {address} --echo --timeout 0.1"
    )));
    assert!(
        line.contains("answered none of 4 datagrams within 100ms"),
        "{line}"
    );
    drop(silent);
    let line = error_line(&quoit(&format!(
        "load udp --connect {address} --source 192.0.2.1"
    )));
    assert!(line.contains("192.0.2.1"), "{line}");
}

#[test]
fn wrong_usage_is_refused_with_the_limits() {
    for (options, expected) in [
        ("--size 39", "the least is 40"),
        ("--size 65508", "the most that UDP can carry"),
        ("--size 64 --shutdown-size 64", "another size"),
        ("--mode gso --size 1024 --batch 64", "at most 63 datagrams"),
        ("--mode gso --sizes 40..50", "give one --size"),
        ("--senders 3 --count 2", "at least as many datagrams"),
        ("--source ::1", "not of the same kind"),
        ("--outstanding 3", "--echo"),
        ("--echo --outstanding 3 --rate 5", "--rate"),
        ("--phase 100", "RATE:SECONDS"),
        ("--phase fast:1", "fast"),
        ("--phase 100:1 --rate 5", "--rate"),
        ("--phase 100:1 --echo", "--echo"),
    ] {
        let output = quoit(&format!("load udp --connect 127.0.0.1:9 {options}"));
        assert_eq!(output.status.code(), Some(2), "{options}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(expected), "{options}: {text}");
    }
}

#[test]
fn what_ends_a_run_is_a_shutdown_of_the_size_that_was_asked_for() {
    let (socket, address) = bind("127.0.0.1:0");
    let seen = thread::spawn(move || {
        let mut buffer = [0; 2000];
        let mut shutdowns = Vec::new();
        while shutdowns.len() < 6 {
            let length = socket.recv(&mut buffer).expect("datagrams come");
            let header = Header::decode(&buffer[..length]).expect("all are of the run");
            if header.kind == Kind::Shutdown {
                shutdowns.push((length, header.sender, header.shutdown, header.sequence));
            }
        }
        shutdowns
    });
    let options = "--count 7 --senders 2 --shutdowns 3 --shutdown-every 1 --shutdown-size 99";
    let (code, found) = report(&format!("load udp --connect {address} {options}"));
    assert_eq!(
        (code, &found["shutdown"]["datagrams"]),
        (0, &6.into()),
        "{found:#}"
    );
    let expected: Vec<_> = (0..6)
        .map(|number| (99, (number % 2) as u16, number, 4 - u64::from(number % 2)))
        .collect();
    assert_eq!(seen.join().expect("all came"), expected);
}
