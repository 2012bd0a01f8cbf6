//! `quoit serve rpc` and `quoit load rpc`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use serde_json::Value;

use crate::support::{Client, Server, connect, engines, error_line, run};

/// Runs `quoit load rpc` against an address, and returns the exit code and the report.
fn load(address: &str, options: &str) -> (Option<i32>, Value) {
    let output = run(&format!(
        "load rpc --connect {address} --warmup 0 --json {options}"
    ));
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), report)
}

#[track_caller]
fn loads_rightly(address: &str, options: &str) -> Value {
    let (code, report) = load(address, options);
    assert_eq!(code, Some(0), "{report:#}");
    let errors = report["errors"].as_object().unwrap();
    assert!(errors.values().all(|count| count == 0), "{report:#}");
    report
}

/// The payload of a frame that opens a stream of responses.
pub(crate) fn open(stream: u32, messages: u64, size: u32, credit: u32) -> Vec<u8> {
    let mut payload = vec![0, 0, 0, 0, 7];
    payload.extend(messages.to_be_bytes());
    payload.extend(size.to_be_bytes());
    payload.extend(credit.to_be_bytes());
    payload.extend([0; 12]);
    frame(stream, 1, &payload)
}

pub(crate) fn frame(stream: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32 + 5;
    [&length.to_be_bytes()[..], &stream.to_be_bytes(), &[kind], payload].concat()
}

/// Reads one frame: stream, kind, payload.
#[track_caller]
pub(crate) fn read_frame(stream: &mut impl Read) -> (u32, u8, Vec<u8>) {
    let mut header = [0; 9];
    stream.read_exact(&mut header).expect("a frame arrives");
    let [length, id] = [0, 4].map(|at| u32::from_be_bytes(header[at..at + 4].try_into().unwrap()));
    let mut payload = vec![0; length as usize - 5];
    stream.read_exact(&mut payload).expect("its payload arrives");
    (id, header[8], payload)
}

/// The content of a message as `docs/rpc.md` describes it.
fn content(sequence: u64, stream: u32, tag: u32, size: usize) -> Vec<u8> {
    let mut content = sequence.to_be_bytes().to_vec();
    content.extend(stream.to_be_bytes());
    content.extend(tag.to_be_bytes());
    content.extend([0; 8]);
    let sum = sequence + u64::from(stream) + u64::from(tag);
    content.extend((24..size as u64).map(|at| ((sum + at) % 251) as u8));
    content
}

#[test]
fn streams_of_every_kind_are_loaded_rightly() {
    for engine in engines() {
        let server = Server::on(engine, "rpc");
        let address = server.address();
        for (options, least_streams) in [
            ("--requests 5000 --connections 4 --streams 25", 150),
            (
                "--requests 5000 --connections 3 --threads 2 --streams 7 --messages 1 --size 24",
                5000,
            ),
            ("--requests 3000 --messages 500 --credit 3 --connections 2", 4),
            (
                "--requests 20000 --connections 3 --messages 0 --credit 100 --size 1024",
                0,
            ),
            (
                "--requests 40 --connections 1 --messages 2 --size 3000000 --streams 3",
                17,
            ),
            (
                "--requests 200 --connections 4 --streams 10 --messages 0 --push 2 --every 0.005",
                0,
            ),
            (
                "--requests 200 --connections 2 --streams 10 --messages 6 --push 3 --every 0.002",
                30,
            ),
            ("--requests 200 --connections 2 --messages 3 --untimed", 60),
        ] {
            let report = loads_rightly(address, options);
            let requests = options
                .split(' ')
                .nth(1)
                .and_then(|text| text.parse::<u64>().ok());
            assert_eq!(
                report["requests"].as_u64(),
                requests,
                "{engine} {options}: {report:#}"
            );
            let rpc = &report["rpc"];
            let streams = rpc["streams_ended"].as_u64().unwrap();
            // The thread that completes the last message of a share need not have ended its stream.
            assert!(streams + 8 >= least_streams, "{engine} {options}: {report:#}");
            assert_eq!(rpc["stream_latency"].is_null(), streams == 0, "{report:#}");
            assert_eq!(
                report["latency"].is_null(),
                options.contains("untimed"),
                "{engine} {options}: {report:#}"
            );
        }
    }
}

#[test]
fn the_bytes_are_those_of_the_description() {
    for engine in engines() {
        let server = Server::on(engine, "rpc");
        let mut stream = connect(server.address());
        stream
            .write_all(&[open(3, 2, 40, 1), open(4, 0, 24, 0)].concat())
            .unwrap();
        assert_eq!(read_frame(&mut stream), (3, 5, content(0, 3, 7, 40)));
        stream
            .write_all(&[frame(3, 3, &[0, 0, 0, 9]), frame(4, 4, &[])].concat())
            .unwrap();
        assert_eq!(read_frame(&mut stream), (3, 5, content(1, 3, 7, 40)));
        let end = |count: u8| vec![0, 0, 0, 0, 0, 0, 0, count, 0, 0, 0, 0];
        assert_eq!(read_frame(&mut stream), (3, 6, end(2)));
        assert_eq!(read_frame(&mut stream), (4, 6, end(0)));

        let request = [&[0, 0, 0, 0, 7][..], &1_u64.to_be_bytes(), &30_u32.to_be_bytes()].concat();
        let message = frame(9, 5, &content(0, 9, 7, 30));
        let (first, second) = message.split_at(17);
        stream
            .write_all(&[&frame(9, 2, &request)[..], first].concat())
            .unwrap();
        stream.write_all(second).unwrap();
        let (id, kind, payload) = read_frame(&mut stream);
        assert_eq!((id, kind, &payload[..8]), (9, 6, &1_u64.to_be_bytes()[..]));
        let sum = crc32(&content(0, 9, 7, 30));
        assert_eq!(payload[8..], sum.to_be_bytes());

        stream.shutdown(Shutdown::Write).unwrap();
        Client::new(stream).is_ended();
    }
}

/// CRC-32 of IEEE 802.3, bit by bit, from its definition.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

#[test]
fn a_client_may_send_messages_larger_than_the_servers_buffers() {
    const SIZE: usize = 400_000;
    for engine in engines() {
        let server = Server::on(engine, "rpc");
        let mut stream = connect(server.address());
        let request = [
            &[0, 0, 0, 0, 7][..],
            &2_u64.to_be_bytes(),
            &(SIZE as u32).to_be_bytes(),
        ]
        .concat();
        stream.write_all(&frame(9, 2, &request)).unwrap();
        let contents = [0, 1].map(|number| content(number, 9, 7, SIZE));
        for content in &contents {
            stream.write_all(&frame(9, 5, content)).unwrap();
        }
        let end = [&2_u64.to_be_bytes()[..], &crc32(&contents.concat()).to_be_bytes()].concat();
        assert_eq!(read_frame(&mut stream), (9, 6, end));
    }
}

#[test]
fn malformed_frames_get_an_error_and_a_close() {
    for engine in engines() {
        let server = Server::on(engine, "rpc");
        for (bytes, code) in [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 1),
            (frame(1, 99, &[]), 1),
            (frame(1, 3, &[0; 3]), 1),
            (vec![0xff; 100], 1),
            (frame(0, 4, &[]), 2),
            (frame(5, 6, &[0; 12]), 2),
            ([open(1, 0, 24, 0), open(1, 0, 24, 0)].concat(), 2),
        ] {
            let mut client = Client::new(connect(server.address()));
            client.send(&bytes);
            let rest = client.rest();
            let (id, kind, payload) = read_frame(&mut &rest[..]);
            assert_eq!(
                (id, kind, payload[..4].to_vec()),
                (0, 7, vec![0, 0, 0, code]),
                "{bytes:?}"
            );
            assert!(std::str::from_utf8(&payload[4..]).is_ok_and(|text| !text.is_empty()));
            assert_eq!(rest.len(), 9 + payload.len());
        }
        // A frame that is cut off is no error that anybody could be told of.
        let mut client = Client::new(connect(server.address()));
        client.send(&open(1, 0, 24, 0)[..20]);
        client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
        client.is_ended();
        loads_rightly(server.address(), "--requests 100");
    }
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory_and_loses_nothing() {
    const SIZE: usize = 100_000;
    // 80 MB over four streams, all of it with credit from the start.
    const MESSAGES: u64 = 200;
    for engine in engines() {
        let server = Server::on(engine, "rpc");
        loads_rightly(server.address(), "--requests 1000");
        let before = server.status_kib("VmRSS");
        let mut slow = connect(server.address());
        for stream in 1..=4 {
            slow.write_all(&open(stream, MESSAGES, SIZE as u32, u32::MAX))
                .unwrap();
        }
        // Once others were served, it has produced for this one what it may.
        loads_rightly(server.address(), "--requests 1000");
        let grown = server.status_kib("VmRSS").saturating_sub(before);
        assert!(grown < 16 * 1024, "{engine}: {grown} KiB more");
        let mut slow = std::io::BufReader::with_capacity(1 << 20, slow);
        let mut next = [0; 4];
        let mut ended = 0;
        while ended < 4 {
            let (id, kind, payload) = read_frame(&mut slow);
            let count = &mut next[id as usize - 1];
            if kind == 6 {
                assert_eq!((*count, &payload[..8]), (MESSAGES, &MESSAGES.to_be_bytes()[..]));
                ended += 1;
            } else {
                assert!(payload == content(*count, id, 7, SIZE), "message {count} on {id}");
                *count += 1;
            }
        }
        let grown = server.status_kib("VmHWM").saturating_sub(before);
        assert!(grown < 16 * 1024, "{engine}: {grown} KiB more");
    }
}

#[test]
fn a_signal_ends_endless_streams_and_lets_the_others_finish() {
    for engine in engines() {
        let mut server = Server::on(engine, "rpc");
        let mut stream = connect(server.address());
        stream
            .write_all(&[open(1, 0, 24, 1), open(2, 2, 24, 1)].concat())
            .unwrap();
        assert_eq!(read_frame(&mut stream).0, 1);
        assert_eq!(read_frame(&mut stream).0, 2);
        let mut idle = Client::new(connect(server.address()));
        server.terminate();
        idle.is_ended();
        // The server waits for this end too.
        drop(idle);
        assert_eq!(
            read_frame(&mut stream),
            (1, 6, vec![0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0])
        );
        // New ones are refused, the code for draining being 5.
        stream.write_all(&open(3, 1, 24, 1)).unwrap();
        let (id, kind, payload) = read_frame(&mut stream);
        assert_eq!((id, kind, &payload[..4]), (3, 7, &[0, 0, 0, 5][..]));
        stream.write_all(&frame(2, 3, &[0, 0, 0, 1])).unwrap();
        assert_eq!(read_frame(&mut stream), (2, 5, content(1, 2, 7, 24)));
        assert_eq!(read_frame(&mut stream).1, 6);
        Client::new(stream).is_ended();
        server.ends_with(0);
    }
}

#[test]
fn streams_and_messages_are_counted() {
    for engine in engines() {
        let server = Server::on(engine, "rpc --metrics 127.0.0.1:0 --streams 2 --loops 2");
        let mut metrics = Client::new(connect(&server.message("metrics on ")));
        let mut stream = connect(server.address());
        let opens = [open(1, 0, 24, 3), open(2, 0, 24, 0), open(3, 1, 24, 1)];
        stream.write_all(&opens.concat()).unwrap();
        for _ in 0..4 {
            read_frame(&mut stream);
        }
        // Published at the end of the turn that sent them, so a later exchange sees it.
        stream.write_all(&frame(1, 4, &[])).unwrap();
        read_frame(&mut stream);
        stream.write_all(&frame(2, 3, &[0, 0, 0, 1])).unwrap();
        read_frame(&mut stream);
        let text = metrics.get("/metrics").text().to_owned();
        let sum = |name: &str| -> u64 {
            let values = text
                .lines()
                .filter_map(|line| line.strip_prefix(name)?.split(' ').nth(1));
            values.map(|value| value.parse::<u64>().expect("a number")).sum()
        };
        assert_eq!(sum("quoit_rpc_streams{"), 1, "{text}");
        assert_eq!(sum("quoit_rpc_streams_opened_total{"), 2, "{text}");
        assert_eq!(sum("quoit_rpc_streams_refused_total{"), 1, "{text}");
        assert!(sum("quoit_rpc_messages_sent_total{") >= 3, "{text}");
    }
}

/// A server before the true one that changes what that answers.
fn through(target: String, change: fn(&mut Vec<u8>)) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        // The first connection is the check before the run.
        for (number, client) in listener.incoming().enumerate() {
            let mut client = client.unwrap();
            let server = TcpStream::connect(&target).unwrap();
            let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_client, &mut to_server);
                let _ = to_server.shutdown(Shutdown::Write);
            });
            std::thread::spawn(move || {
                let mut server = std::io::BufReader::new(server);
                for count in 0.. {
                    let mut header = [0; 9];
                    if server.read_exact(&mut header).is_err() {
                        return;
                    }
                    let length = u32::from_be_bytes(header[..4].try_into().unwrap());
                    let mut frame = header.to_vec();
                    frame.resize(4 + length as usize, 0);
                    if server.read_exact(&mut frame[9..]).is_err() {
                        return;
                    }
                    if number > 0 && count == 10 {
                        change(&mut frame);
                    }
                    if client.write_all(&frame).is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_server_that_answers_wrongly_is_found_out() {
    let server = Server::on("epoll", "rpc");
    for change in [
        |frame: &mut Vec<u8>| frame[50] ^= 1,
        |frame: &mut Vec<u8>| frame.clear(),
        |frame: &mut Vec<u8>| frame.extend(frame.clone()),
    ] {
        let address = through(server.address().to_owned(), change);
        let (code, report) = load(&address, "--requests 100 --connections 1 --messages 50");
        assert_eq!(code, Some(1), "{report:#}");
        assert!(report["errors"]["wrong_content"].as_u64() > Some(0), "{report:#}");
        assert!(report["invalid"].is_string(), "{report:#}");
    }
    // One that speaks something else does not pass the check before the run.
    let echo = Server::on("epoll", "echo");
    let line = error_line(&run(&format!("load rpc --connect {}", echo.address())), 1);
    assert!(line.contains("quoit serve rpc"), "{line}");
}

#[test]
fn options_that_do_not_go_together_are_refused() {
    for (options, word) in [
        ("--push 3", "--every"),
        ("--every 3", "--push"),
        ("--push 1 --every 0.0001", "--every"),
        ("--push 1 --every 10 --timeout 10", "--timeout"),
        ("--pipeline 4", "--streams"),
        ("--messages 0 --rate 100", "--rate"),
        ("--messages 0 --churn", "--churn"),
        ("--streams 2 --churn", "--streams"),
        ("--size 23", "23"),
        ("--credit 0", "0"),
    ] {
        let output = run(&format!("load rpc --connect 127.0.0.1:1 {options}"));
        assert_eq!(output.status.code(), Some(2), "{options}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(word), "{options}: {text}");
    }
}
