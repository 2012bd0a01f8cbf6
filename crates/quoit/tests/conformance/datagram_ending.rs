//! The ends of datagram sockets and of their sends: what is told no more, and what keeps nobody waiting.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use quoit::{
    Address, Command, Config, DatagramOptions, DatagramSend, DatagramSocketId, Errno, Events, Handler, Loop,
    Token,
};

use crate::datagram_bench::{bench, bench_with, client, numbered, uninterrupted};
use crate::datagram_sending::stuck;
use crate::levels::Level;
use crate::sockets::PATIENCE;

macro_rules! datagram_ending {
    ($level:ident) => {
        tests! { $level, datagram_ending:
            nothing_is_told_after_a_close_of_the_same_turn
            what_came_before_a_drain_is_delivered
            one_that_is_gone_keeps_no_loop_awake
            a_full_stranger_keeps_no_connected_socket_waiting
        }
    };
}

/// Closes its socket as soon as what it sent has left.
#[derive(Default)]
struct ClosesWhenSent {
    sent: bool,
    writable: bool,
    closed: bool,
}

impl Handler for ClosesWhenSent {
    fn on_datagram_sent(
        &mut self,
        event_loop: &mut Loop,
        socket: DatagramSocketId,
        _token: Token,
        result: Result<u32, Errno>,
    ) {
        result.unwrap();
        self.sent = true;
        event_loop.close_datagram(socket).unwrap();
    }

    fn on_datagram_writable(&mut self, _quoit: &mut Loop, _socket: DatagramSocketId) {
        self.writable = true;
    }

    fn on_datagram_closed(
        &mut self,
        _quoit: &mut Loop,
        _socket: DatagramSocketId,
        _token: Token,
        _error: Option<Errno>,
    ) {
        self.closed = true;
    }
}

/// That a send has left and that there is room again are told together; the call that hears the first may close the
/// socket.
pub(crate) fn nothing_is_told_after_a_close_of_the_same_turn(level: &Level) {
    let mut event_loop = Loop::new(quoit::LoopIndex::default(), level.config()).unwrap();
    let options = DatagramOptions {
        high_water: 100,
        low_water: 10,
        ..DatagramOptions::default()
    };
    let local = "127.0.0.1:0".parse().unwrap();
    let socket = event_loop.bind_datagram(&local, &options, Token(1)).unwrap();
    let client = client("127.0.0.1:0");
    let mut datagram = DatagramSend::new(client.local_addr().unwrap().into(), &[7; 100][..]);
    datagram.token = Token(2);
    event_loop.send_datagram(socket, datagram).unwrap();
    assert!(event_loop.is_datagram_full(socket), "so that room is told of");
    let mut handler = ClosesWhenSent::default();
    let mut events = Events::with_capacity(64);
    let begun = std::time::Instant::now();
    while !handler.closed {
        assert!(begun.elapsed() < PATIENCE, "it does not close");
        event_loop
            .run_turn(&mut handler, &mut events, Some(Duration::from_millis(5)))
            .unwrap();
    }
    assert!(handler.sent);
    assert!(!handler.writable, "of a socket that is closed");
}

/// A close that cannot send gives up what is queued; nothing of that may be left for the loop to look after.
/// In the turn that begins to drain, and has nothing else to wait for, the datagrams come that were there before.
pub(crate) fn what_came_before_a_drain_is_delivered(level: &Level) {
    if level.config().kernel_poll.is_some() {
        // The kernel's thread receives when it comes to it, which may be after the turn.
        return;
    }
    bench(level, |bench| {
        let socket = bench.bind("127.0.0.1:0", &DatagramOptions::default());
        let peer = bench.client(socket);
        bench.turn(Duration::ZERO);
        peer.send(b"before").unwrap();
        // A kernel with much to do leaves datagrams to a thread of its own, in their order: this one comes after that one.
        let behind = UdpSocket::bind("127.0.0.1:0").unwrap();
        behind.send_to(b"behind", behind.local_addr().unwrap()).unwrap();
        behind.recv(&mut [0; 8]).unwrap();
        let drain = Command::Drain { within: PATIENCE };
        bench.turn_with([drain], PATIENCE);
        while !bench.drained {
            bench.turn(PATIENCE);
        }
        assert_eq!(bench.got.len(), 1);
        assert_eq!(bench.closed.get(&socket), Some(&None));
    });
}

pub(crate) fn one_that_is_gone_keeps_no_loop_awake(level: &Level) {
    let tune = |config: &mut Config| config.close_deadline = Duration::from_millis(5);
    bench_with(level, tune, |bench| {
        let (socket, _peer) = stuck(bench, &DatagramOptions::default());
        for number in 0..400 {
            bench
                .send(socket, DatagramSend::to_connected(&numbered(number, 10)[..]))
                .unwrap();
        }
        bench.until_quiet();
        bench.close(socket);
        bench.until("it closes", |bench| bench.closed.contains_key(&socket));
        bench.until_quiet();
        bench
            .event_loop
            .set_named_timer(Duration::from_millis(50), Token(1))
            .unwrap();
        let mut turns = 0;
        while bench.timers == 0 {
            bench.turn(PATIENCE);
            turns += 1;
        }
        // One that waits, and what the kernel's affairs may end; not one after the other.
        assert!(turns < 20, "{turns} turns without anything to do");
    });
}

/// A connected Unix socket is told when its peer has room again, but of nobody else: what it sends to others does not
/// wait.
pub(crate) fn a_full_stranger_keeps_no_connected_socket_waiting(level: &Level) {
    bench(level, |bench| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("full");
        let stranger = UnixDatagram::bind(&path).unwrap();
        // One alone may run out of memory for what it sends before the stranger's queue is full (`net.unix.max_dgram_qlen`).
        let mut fillers = Vec::new();
        loop {
            let filler = UnixDatagram::unbound().unwrap();
            filler.set_nonblocking(true).unwrap();
            if filler.send_to(b"x", &path).is_err() {
                break;
            }
            while filler.send_to(b"x", &path).is_ok() {}
            fillers.push(filler);
        }
        let (socket, peer) = stuck(bench, &DatagramOptions::default());
        let sends = [
            (1, DatagramSend::to_connected(b"before")),
            (2, DatagramSend::new(Address::UnixPath(path), b"stranger")),
            (3, DatagramSend::to_connected(b"after")),
        ];
        for (token, mut datagram) in sends {
            datagram.token = Token(token);
            bench.send(socket, datagram).unwrap();
        }
        bench.until("all are told", |bench| bench.sent.len() == 3);
        let expected = [
            (Token(1), Ok(6)),
            (Token(2), Err(Errno::EAGAIN)),
            (Token(3), Ok(5)),
        ];
        assert_eq!(bench.sent, expected);
        for expected in [&b"before"[..], b"after"] {
            let mut buffer = [0; 20];
            let length = uninterrupted(|| peer.recv(&mut buffer));
            assert_eq!(&buffer[..length], expected);
        }
        drop(stranger);
    });
}
