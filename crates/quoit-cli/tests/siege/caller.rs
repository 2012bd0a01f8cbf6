//! The client that behaves: it asks, takes the answer, and finds every byte of it right.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use crate::support::{Client, PATIENCE, connect};
use crate::watched::Watched;
use crate::wire::{Service, rpc, rsocket};

/// One connection of it.
pub(crate) struct Caller {
    service: Service,
    client: Client<TcpStream>,
    /// Streams opened so far.
    streams: u32,
}

/// Bytes of a small request and of a larger one.
const SIZES: [usize; 2] = [100, 16_000];
/// Messages of a stream.
const MESSAGES: u32 = 8;

impl Caller {
    pub(crate) fn connect(service: Service, address: &str) -> Self {
        let mut client = Client::new(connect(address));
        client.send(service.greeting());
        Self {
            service,
            client,
            streams: 0,
        }
    }

    /// Asks for something, small or larger by the number, and takes the answer. A sink answers by its end, so that
    /// a connection to it has one request only.
    pub(crate) fn ask(&mut self, number: usize) {
        let size = SIZES[number % 2];
        match self.service {
            Service::Echo => self.echo(size * 2),
            Service::Http => self.http(number),
            Service::Rpc if number % 4 < 2 => self.rpc_response(size),
            Service::Rpc => self.rpc_request(size),
            Service::Rsocket if number % 4 < 2 => self.rsocket_stream(size),
            Service::Rsocket => self.rsocket_response(size),
            Service::Sink => {
                self.client.send(vec![b'c'; size * 10]);
                self.client.stream.get_ref().shutdown(Shutdown::Write).unwrap();
                self.client.is_ended();
            }
        }
    }

    /// Sends something to a sink, which stays connected, and waits until it is taken. Nobody else may send meanwhile.
    pub(crate) fn sent_is_taken(&mut self, sink: &Watched) {
        const TAKEN: &str = "quoit_received_bytes_total";
        let before = sink.figures(TAKEN);
        self.client.send([b'c'; 100]);
        let begin = Instant::now();
        while sink.figures(TAKEN) < before + 100 {
            assert!(begin.elapsed() < PATIENCE, "what was sent is not taken");
            std::thread::yield_now();
        }
    }

    fn echo(&mut self, size: usize) {
        let message: Vec<u8> = (0..size).map(|position| (position % 251) as u8).collect();
        let mut writer = self.client.stream.get_ref().try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| writer.write_all(&message).unwrap());
            let mut back = vec![0; size];
            self.client.stream.read_exact(&mut back).unwrap();
            assert!(back == message, "other bytes came back");
        });
    }

    fn http(&mut self, number: usize) {
        match number % 3 {
            0 => assert_eq!(self.client.get("/healthz").status, 200),
            1 => assert_eq!(self.client.get("/plaintext").text(), "Hello, World!"),
            _ => {
                let response = self.client.get("/bytes/200000");
                assert_eq!((response.status, response.body.len()), (200, 200_000));
                let pattern = (0..200_000).map(|position: u32| (position % 251) as u8);
                assert!(response.body.iter().copied().eq(pattern), "other bytes came");
            }
        }
    }

    fn rpc_frame(&mut self) -> (u32, u8, Vec<u8>) {
        let mut head = [0; 9];
        self.client.stream.read_exact(&mut head).unwrap();
        let [l0, l1, l2, l3, s0, s1, s2, s3, kind] = head;
        let mut payload = vec![0; u32::from_be_bytes([l0, l1, l2, l3]) as usize - 5];
        self.client.stream.read_exact(&mut payload).unwrap();
        (u32::from_be_bytes([s0, s1, s2, s3]), kind, payload)
    }

    fn rpc_response(&mut self, size: usize) {
        self.streams += 1;
        let stream = self.streams;
        self.client
            .send(rpc::open_response(stream, MESSAGES.into(), size as u32, MESSAGES));
        for number in 0..MESSAGES {
            let expected = rpc::content(stream, number.into(), size);
            assert!(
                self.rpc_frame() == (stream, rpc::MESSAGE, expected),
                "another message came"
            );
        }
        self.rpc_end(stream, 0);
    }

    fn rpc_request(&mut self, size: usize) {
        self.streams += 1;
        let stream = self.streams;
        let mut all = rpc::open_request(stream, MESSAGES.into(), size as u32);
        let mut checksum = crc32fast::Hasher::new();
        for number in 0..MESSAGES {
            all.extend(rpc::message(stream, number.into(), size));
            checksum.update(&rpc::content(stream, number.into(), size));
        }
        self.client.send(all);
        self.rpc_end(stream, checksum.finalize());
    }

    fn rpc_end(&mut self, stream: u32, checksum: u32) {
        let mut payload = u64::from(MESSAGES).to_be_bytes().to_vec();
        payload.extend(checksum.to_be_bytes());
        assert_eq!(self.rpc_frame(), (stream, rpc::END, payload));
    }

    /// Takes a message, which is its stream's last one or not.
    fn rsocket_message(&mut self, stream: u32, number: u32, size: usize, last: bool) {
        let mut head = [0; 9];
        self.client.stream.read_exact(&mut head).unwrap();
        let [l0, l1, l2, s0, s1, s2, s3, k0, k1] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize - 6];
        self.client.stream.read_exact(&mut payload).unwrap();
        let kind = u16::from_be_bytes([k0, k1]);
        assert_eq!(
            (u32::from_be_bytes([s0, s1, s2, s3]), kind >> 10),
            (stream, rsocket::PAYLOAD)
        );
        assert_eq!(kind & rsocket::COMPLETE != 0, last, "message {number}");
        let mut expected = [number.to_be_bytes(), stream.to_be_bytes()].concat();
        expected.resize(size, 0);
        assert!(payload == expected, "another message came");
    }

    /// A client's streams have odd ids.
    fn next_rsocket_stream(&mut self) -> u32 {
        self.streams += 1;
        2 * self.streams - 1
    }

    fn rsocket_stream(&mut self, size: usize) {
        let stream = self.next_rsocket_stream();
        self.client
            .send(rsocket::request_stream(stream, MESSAGES, MESSAGES, size as u32));
        for number in 0..MESSAGES {
            self.rsocket_message(stream, number, size, number + 1 == MESSAGES);
        }
    }

    fn rsocket_response(&mut self, size: usize) {
        let stream = self.next_rsocket_stream();
        self.client.send(rsocket::request_response(stream, size));
        self.rsocket_message(stream, 0, size, true);
    }
}
