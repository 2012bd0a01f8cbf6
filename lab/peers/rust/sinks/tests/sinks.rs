//! Each sink as a program, with a few datagrams whose account is known.

use std::io::{BufRead, BufReader, Lines};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};

use quoit_workload::{Header, Kind, SinkReport};

/// A running sink, killed when dropped.
struct Sink {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    socket: UdpSocket,
}

impl Drop for Sink {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Sink {
    fn start(words: &str) -> Self {
        let mut child = command(words)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.next().expect("it says that it is ready").expect("text");
        let address = ready.split(' ').nth(2).expect("the ready line names the address");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.connect(address).expect("it receives there");
        Self { child, lines, socket }
    }

    fn report(mut self) -> SinkReport {
        let line = self.lines.next().expect("it prints a report").expect("text");
        assert!(self.child.wait().expect("it ends").success());
        serde_json::from_str(&line).expect("the report is JSON")
    }

    /// Lets the kernel cut what is sent into datagrams of 100 bytes.
    fn cut(&self) {
        let size: libc::c_int = 100;
        // SAFETY: the value is a c_int that outlives the call, and its size is given.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_UDP,
                libc::UDP_SEGMENT,
                (&raw const size).cast(),
                size_of_val(&size) as libc::socklen_t,
            )
        };
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
    }

    fn send(&self, bytes: &[u8]) {
        assert_eq!(self.socket.send(bytes).expect("it is sent"), bytes.len());
    }
}

fn command(words: &str) -> Command {
    let (program, rest) = words.split_once(' ').expect("a program and its kind");
    let mut command = Command::new(match program {
        "sink-classic" => env!("CARGO_BIN_EXE_sink-classic"),
        _ => env!("CARGO_BIN_EXE_sink-uring"),
    });
    command.args(rest.split(' '));
    command
}

fn datagram(kind: Kind, sequence: u64) -> Vec<u8> {
    let header = Header {
        kind,
        sender: 0,
        senders: 1,
        shutdown: 0,
        run: 77,
        sequence,
        due: 0,
    };
    [&header.encode()[..], &[0; 60]].concat()
}

/// The kinds that can run here. Where io_uring is denied, that is said, and the classic ones are tested alone.
fn kinds() -> impl Iterator<Item = &'static str> {
    let ring = io_uring::IoUring::new(2);
    if let Err(error) = &ring {
        println!("without io_uring: {error}");
    }
    KINDS
        .into_iter()
        .filter(move |kind| ring.is_ok() || !kind.starts_with("sink-uring"))
}

const KINDS: [&str; 5] = [
    "sink-classic recvfrom",
    "sink-classic recvmmsg",
    "sink-classic epoll",
    "sink-uring single-shot",
    "sink-uring single-shot --depth 16",
];

#[test]
fn every_sink_takes_what_is_sent_one_by_one() {
    for kind in kinds() {
        let sink = Sink::start(&format!(
            "{kind} --work 100 --receive-buffer 100000 --max-datagram 99"
        ));
        // One is lost on the way, and one comes twice; none fits wholly.
        for sequence in [0, 1, 2, 3, 5, 6, 6] {
            sink.send(&datagram(Kind::Data, sequence));
        }
        sink.send(b"stray");
        sink.send(&[]);
        sink.send(&datagram(Kind::Shutdown, 8));
        let report = sink.report();
        assert!(report.complete, "{report:?}");
        assert_eq!(
            (report.sent, report.received, report.missing),
            (Some(8), 6, Some(2)),
            "{report:?}"
        );
        let totals = report.totals;
        assert_eq!(
            (totals.duplicates, totals.foreign, totals.truncated),
            (1, 2, 7),
            "{report:?}"
        );
        assert_eq!((report.socket.drops, report.work_ns), (0, 100), "{report:?}");
        assert_eq!(
            (report.socket.receive_buffer_bytes, report.messages),
            (200_000, 10),
            "{report:?}"
        );
    }
}

#[test]
fn every_sink_takes_joined_datagrams_apart() {
    for kind in kinds() {
        let sink = Sink::start(&format!("{kind} --gro"));
        sink.cut();
        for first in [0, 20, 40] {
            let joined: Vec<u8> = (first..first + 20)
                .flat_map(|sequence| datagram(Kind::Data, sequence))
                .collect();
            sink.send(&joined);
        }
        sink.send(&datagram(Kind::Data, 60)[..64]);
        sink.send(&datagram(Kind::Shutdown, 61));
        let report = sink.report();
        assert_eq!(
            (report.sent, report.received, report.missing),
            (Some(61), 61, Some(0)),
            "{report:?}"
        );
        assert_eq!(
            (report.totals.reordered, report.totals.truncated),
            (0, 0),
            "{report:?}"
        );
        assert!(report.messages < 61, "{report:?}");
    }
}

#[test]
fn a_signal_ends_a_sink_with_what_it_has() {
    for kind in kinds() {
        let sink = Sink::start(kind);
        sink.send(&datagram(Kind::Data, 3));
        let id = libc::pid_t::try_from(sink.child.id()).expect("a process id");
        // SAFETY: the process is a child that was not waited for, so that the id is its own.
        assert_eq!(unsafe { libc::kill(id, libc::SIGTERM) }, 0);
        let report = sink.report();
        assert!(!report.complete && report.missing.is_none(), "{report:?}");
    }
}

#[test]
fn a_pause_puts_each_receive_off() {
    let began = std::time::Instant::now();
    let sink = Sink::start("sink-classic recvmmsg --pause 100000");
    sink.send(&datagram(Kind::Data, 0));
    sink.send(&datagram(Kind::Shutdown, 1));
    let report = sink.report();
    assert!(report.complete && report.received == 1, "{report:?}");
    assert!(began.elapsed() >= std::time::Duration::from_millis(100));
}

#[test]
fn wrong_usage_is_refused() {
    for words in [
        "sink-classic other",
        "sink-uring single-shot --depth 0",
        "sink-classic epoll --work",
    ] {
        let output = command(words).output().expect("the program can be started");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stderr).contains("usage: "),
            "{output:?}"
        );
    }
}
