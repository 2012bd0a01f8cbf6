//! `quoit serve udp-echo` and `udp-sink` under `quoit load udp`, on each engine.

use std::io::{BufRead, BufReader, Lines};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::process::{Child, ChildStdout, Stdio};

use quoit_skipped::{needs_root, this_test};
use quoit_workload::SinkReport;
use serde_json::Value;

use crate::support::{Client, PATIENCE, Server, connect, engines, error_line, quoit, run, signal, stop};

/// Runs the load, which must succeed, and gives its report.
#[track_caller]
fn load(arguments: &str) -> Value {
    let output = run(&format!("load udp {arguments} --json"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    serde_json::from_slice(&output.stdout).expect("the report is JSON")
}

/// A running sink, killed when dropped.
struct Sink {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sink {
    #[track_caller]
    fn start(engine: &str, arguments: &str) -> Self {
        let mut command = quoit(&format!(
            "serve udp-sink --engine {engine} --listen 127.0.0.1:0 {arguments}"
        ));
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.next().expect("it says that it is ready").expect("text");
        assert!(ready.contains(&format!("engine={engine}")), "{ready}");
        let address = ready
            .split(' ')
            .nth(2)
            .expect("the line names the address")
            .to_owned();
        Self {
            child,
            lines,
            address,
        }
    }

    #[track_caller]
    fn signal(&self, number: libc::c_int) {
        signal(&self.child, number);
    }

    /// The most memory that it has had resident so far, as others see it.
    fn peak_resident_bytes(&self) -> u64 {
        let text =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("/proc is there");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
        1024 * kibibytes.expect("the figure is there")
    }

    #[track_caller]
    fn report(mut self) -> SinkReport {
        let line = self.lines.next().expect("it prints a report").expect("text");
        assert!(self.child.wait().expect("it ends").success());
        serde_json::from_str(&line).expect("the report is JSON")
    }
}

#[test]
fn datagrams_come_back_unchanged() {
    for engine in engines() {
        for (server, loads) in [
            (
                "udp-echo",
                &[
                    "--count 3000 --outstanding 16 --senders 2",
                    "--count 200 --size 65507",
                    "--count 500 --sizes 40..9000",
                ][..],
            ),
            (
                "udp-echo --loops 2 --wait spin:20",
                &["--count 3000 --outstanding 4 --senders 4 --mode sendmmsg"],
            ),
            (
                "udp-echo --loops 2 --wait foreign",
                &["--count 1000 --outstanding 4 --senders 4", "--count 50"],
            ),
            (
                "udp-echo --wait coalesce:100",
                &["--count 3000 --outstanding 16 --senders 2", "--count 50"],
            ),
            (
                "udp-echo --gro --work 100",
                &["--count 3200 --outstanding 32 --mode gso", "--count 100"],
            ),
        ] {
            let server = Server::on(engine, server);
            for options in loads {
                let address = server.address();
                let report = load(&format!("--connect {address} --echo --timeout 20 {options}"));
                let replies = &report["replies"];
                assert_eq!(
                    replies["received"], report["sent"],
                    "{engine} {options}: {report:#}"
                );
                assert_eq!(
                    (&replies["lost"], &replies["wrong"]),
                    (&0.into(), &0.into()),
                    "{report:#}"
                );
                assert_eq!(
                    (&replies["duplicates"], &replies["foreign"]),
                    (&0.into(), &0.into()),
                    "{report:#}"
                );
            }
        }
    }
}

#[test]
fn an_empty_datagram_is_answered_and_receiving_goes_on() {
    for engine in engines() {
        let server = Server::on(engine, "udp-echo");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.set_read_timeout(Some(PATIENCE)).expect("not zero");
        socket.connect(server.address()).expect("it receives there");
        for datagram in [&b""[..], b"more", b"", b"and more"] {
            socket.send(datagram).expect("it is sent");
            let mut buffer = [0; 100];
            let length = socket.recv(&mut buffer).expect("it is answered");
            assert_eq!(&buffer[..length], datagram, "{engine}");
        }
    }
}

/// Whether this process may have receive buffers past what the system lets everybody have.
fn may_force_receive_buffers() -> bool {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let bytes: libc::c_int = 1_000_000;
    // SAFETY: the value is an `int` for the time of the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    set == 0
}

#[test]
fn a_sink_accounts_for_every_datagram_and_ends() {
    for engine in engines() {
        for (options, sent) in [
            ("--work 500", "--count 20000 --mode sendmmsg"),
            (
                "--wait spin:50 --max-datagram 2048 --slots 64",
                "--count 5000 --rate 50000 --senders 2",
            ),
            ("--wait poll", "--count 5000"),
            ("--wait gather:200", "--count 5000 --rate 50000"),
            ("--wait foreign", "--count 5000 --mode sendmmsg"),
            ("--work 500", "--phase flat:0.2 --phase 20000:0.2"),
            ("--gro --receive-buffer 1000000", "--count 20000 --mode gso"),
            ("--loops 2", "--count 4000 --rate 40000 --senders 4"),
        ] {
            if options.contains("--receive-buffer") && !may_force_receive_buffers() {
                needs_root(format_args!("{} with {options}", this_test()), "CAP_NET_ADMIN");
                continue;
            }
            let sink = Sink::start(engine, options);
            let load = load(&format!(
                "--connect {} --shutdowns 1000 --shutdown-every 5 {sent}",
                sink.address
            ));
            let report = sink.report();
            assert!(report.complete, "{engine} {options}: {report:?}");
            assert_eq!(
                report.sent,
                load["sent"].as_u64(),
                "{engine} {options}: {report:?}"
            );
            assert_eq!(report.run, load["run"].as_u64(), "{report:?}");
            let missing = report.missing.expect("it is complete");
            assert_eq!(
                report.received + missing,
                load["sent"].as_u64().unwrap(),
                "{report:?}"
            );
            assert_eq!(
                (report.totals.duplicates, report.totals.truncated),
                (0, 0),
                "{report:?}"
            );
            let shutdowns = load["shutdown"]["datagrams"].as_u64().expect("it counts them");
            let dropped = report.data_drops(shutdowns);
            if options.contains("gro") {
                assert!(report.messages < report.totals.taken, "{report:?}");
                assert!(*dropped.start() <= missing, "{report:?}");
            } else {
                assert!(
                    dropped.contains(&missing),
                    "{engine} {options}: {dropped:?} dropped of {shutdowns} shutdowns and {report:?}"
                );
            }
            assert!(
                report.receives > 0 && report.receives <= report.messages,
                "{report:?}"
            );
            assert!(
                report.server.starts_with(&format!("quoit {engine}")),
                "{report:?}"
            );
            accounts_for_time_and_memory(&report, options);
        }
    }
}

/// Processor time is that of the work at least, as far as the kernel's rounding goes, and no more than there was; memory is
/// what was configured, and within its bound.
fn accounts_for_time_and_memory(report: &SinkReport, options: &str) {
    let work = if options.contains("--work 500") { 500 } else { 0 };
    assert_eq!(report.work_ns, work, "{report:?}");
    let used = report.user_ns + report.kernel_ns;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    // Calibrated by the fastest of many rounds: undisturbed it takes all of it.
    assert!(used > report.received * work / 2, "{report:?}");
    assert!(
        used <= processors * report.elapsed_ns + 20_000_000,
        "more than all processors had: {report:?}"
    );

    let loops = if options.contains("--loops 2") { 2 } else { 1 };
    let room = match options {
        _ if options.contains("--gro") => 65_536,
        _ if options.contains("2048") => 2_048,
        _ => 65_527,
    };
    assert_eq!(report.pool_bytes, loops * 64 * room, "{report:?}");
    let socket = report.socket;
    if options.contains("--receive-buffer") {
        assert_eq!(socket.wanted_buffer_bytes, Some(2_000_000), "{report:?}");
        // As much as was asked for where this process may, else what the system allows.
        assert!(socket.receive_buffer_bytes <= 2_000_000, "{report:?}");
    } else {
        assert_eq!(socket.wanted_buffer_bytes, None, "{report:?}");
    }
    assert!(
        socket.peak_memory_bytes <= report.most_socket_bytes(processors),
        "{report:?}"
    );
    assert!(report.largest_message_bytes > 0, "{report:?}");
    // The process is more than its pool and less than a gigabyte; receive buffers need not be pinned.
    assert!(
        (1 << 20..1 << 30).contains(&report.peak_memory_bytes),
        "{report:?}"
    );
    assert!(
        report
            .pinned_bytes
            .is_some_and(|pinned| pinned <= report.peak_memory_bytes),
        "{report:?}"
    );
}

/// The sink is stopped while all is sent, so that it certainly finds something in its socket beside what fits its slots.
#[test]
fn the_peaks_of_memory_are_those_of_the_flood() {
    const COUNT: u64 = 100;
    const SIZE: u64 = 100;
    const SLOTS: u64 = 8;
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    for engine in engines() {
        let sink = Sink::start(engine, &format!("--work 500 --slots {SLOTS}"));
        stop(&sink.child);
        load(&format!(
            "--connect {} --count {COUNT} --size {SIZE} --shutdowns 1",
            sink.address
        ));
        let resident = sink.peak_resident_bytes();
        sink.signal(libc::SIGCONT);
        let report = sink.report();
        assert_eq!(
            (report.received, report.missing),
            (COUNT, Some(0)),
            "all fits the socket: {report:?}"
        );
        // The first look is at the first of them, when the loop has what fits its slots.
        let peak = report.socket.peak_memory_bytes;
        assert!(peak >= (COUNT - SLOTS) * SIZE, "{report:?}");
        assert!(peak <= report.most_socket_bytes(processors), "{report:?}");
        // The kernel's figures are of batches, and so not exact.
        assert!(report.peak_memory_bytes >= resident / 2, "{resident}: {report:?}");
    }
}

#[test]
fn what_does_not_fit_is_cut_and_counted() {
    for engine in engines() {
        let sink = Sink::start(engine, "--max-datagram 500");
        // Far longer: slots are rounded up.
        load(&format!(
            "--connect {} --count 50 --rate 5000 --size 9000",
            sink.address
        ));
        let report = sink.report();
        assert_eq!(report.totals.truncated, report.totals.taken, "{report:?}");
    }
}

#[test]
fn a_signal_ends_a_sink_with_what_it_has() {
    for engine in engines() {
        let sink = Sink::start(engine, "");
        load(&format!(
            "--connect {} --count 10 --rate 1000 --shutdowns 0",
            sink.address
        ));
        sink.signal(libc::SIGTERM);
        let report = sink.report();
        assert!(!report.complete && report.missing.is_none(), "{report:?}");
        assert!(report.received <= 10, "{report:?}");
    }
}

#[test]
fn the_counters_of_datagrams_are_among_the_metrics() {
    let mut command = quoit("serve udp-echo --engine epoll --listen 127.0.0.1:0 --metrics 127.0.0.1:0");
    command.stderr(Stdio::piped());
    let server = Server::start_command(command, 1);
    let metrics = server.message("metrics on ");
    load(&format!(
        "--connect {} --echo --count 50 --timeout 20",
        server.address()
    ));
    // The counts are published twice a second: a reading may come before.
    let text = loop {
        let text = Client::new(connect(&metrics)).get("/metrics").text().to_owned();
        if text.contains("quoit_datagrams_received_total{loop=\"0\"} 51\n") {
            break text;
        }
        std::thread::yield_now();
    };
    for line in [
        "quoit_datagrams_sent_total{loop=\"0\"} 51\n",
        "quoit_datagrams_kernel_drops_total{loop=\"0\"} 0\n",
        "quoit_datagrams_slots{loop=\"0\"} 64\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = taken.local_addr().expect("it is bound");
    let line = error_line(
        &run(&format!("serve udp-echo --engine epoll --listen {address}")),
        1,
    );
    assert!(line.contains(&address.to_string()), "{line}");
}

#[test]
fn wrong_options_are_refused() {
    for (options, expected) in [
        ("--wait spin", "spin:MICROSECONDS"),
        ("--wait elsewhere", "foreign"),
        ("--wait spin:0", "1 to 1000000"),
        ("--wait coalesce:0", "1 to 100000"),
        ("--wait coalesce:100001", "1 to 100000"),
        ("--max-datagram 65528", "65527"),
        ("--slots 0", "--slots"),
    ] {
        let output = run(&format!("serve udp-sink {options}"));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options}: {text}");
        assert!(text.contains(expected), "{options}: {text}");
    }
}

/// As the servers of connections do: a server that was killed leaves the file of its socket behind.
#[test]
fn the_file_of_a_unix_socket_that_nobody_has_is_replaced_and_no_other() {
    for engine in engines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("echo");
        let arguments = format!("udp-echo --engine {engine} --listen unix:{}", path.display());
        // Killed when dropped.
        drop(Server::start(&arguments));
        assert!(path.exists());
        // The kernel lets go of what a ring has by a thread of its own, behind the end of a process that was killed.
        let client = UnixDatagram::unbound().expect("a socket");
        while client.connect(&path).is_ok() {
            std::thread::yield_now();
        }
        let mut server = Server::start(&arguments);
        let refused = error_line(&run(&format!("serve {arguments}")), 1);
        assert!(refused.contains("Address already in use"), "{refused}");
        let client = UnixDatagram::bind(folder.path().join("client")).expect("it is bound");
        client.set_read_timeout(Some(PATIENCE)).expect("it can be set");
        client.send_to(b"still here?", &path).expect("it is sent");
        let mut answer = [0; 20];
        let length = client.recv(&mut answer).expect("it answers");
        assert_eq!(&answer[..length], b"still here?");
        server.terminate();
        server.ends_with(0);
        assert!(!path.exists());

        let _stream = UnixListener::bind(&path).expect("it is free");
        error_line(&run(&format!("serve {arguments}")), 1);
        assert!(path.exists());
    }
}
