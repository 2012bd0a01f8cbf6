//! A loop with datagram sockets, run turn by turn in the test's own thread; every event is checked against the table
//! of `quoit::event`.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant, SystemTime};

use quoit::{
    Address, Command, Config, DatagramCounters, DatagramError, DatagramOptions, DatagramSend,
    DatagramSocketId, Datagrams, Ecn, Errno, Event, Events, Loop, LoopIndex, Refusal, Token,
};

use crate::levels::Level;
use crate::sockets::PATIENCE;

/// What one received datagram was.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Got {
    pub(crate) socket: DatagramSocketId,
    pub(crate) bytes: Vec<u8>,
    pub(crate) peer: Address,
    pub(crate) local: Option<IpAddr>,
    pub(crate) interface: Option<u32>,
    pub(crate) ecn: Option<Ecn>,
    pub(crate) timestamp: Option<SystemTime>,
    pub(crate) segment_size: Option<u16>,
    pub(crate) truncated: bool,
}

#[derive(Default)]
struct State {
    token: Token,
    paused: bool,
    closing: bool,
    writable_owed: bool,
    asked: HashSet<Token>,
}

/// A loop and what it has reported.
pub(crate) struct Bench {
    pub(crate) event_loop: Loop,
    /// Keep what is received, and so its slots.
    pub(crate) holds: bool,
    pub(crate) held: Vec<Datagrams>,
    pub(crate) got: Vec<Got>,
    pub(crate) sent: Vec<(Token, Result<u32, Errno>)>,
    pub(crate) errors: Vec<(DatagramSocketId, DatagramError)>,
    pub(crate) refused: Vec<(Token, Option<DatagramSocketId>, Refusal)>,
    pub(crate) opened: Vec<DatagramSocketId>,
    pub(crate) closed: HashMap<DatagramSocketId, Option<Errno>>,
    pub(crate) writable: u32,
    pub(crate) pressure: u32,
    pub(crate) timers: u32,
    pub(crate) drained: bool,
    open: HashMap<DatagramSocketId, State>,
    events: Events,
    idle_in_flight: u64,
}

/// Runs `body` on a loop of this level. Afterwards nothing may be left of what the loop lent or began.
pub(crate) fn bench(level: &Level, body: impl FnOnce(&mut Bench)) {
    bench_with(level, |_| (), body);
}

pub(crate) fn bench_with(level: &Level, tune: impl FnOnce(&mut Config), body: impl FnOnce(&mut Bench)) {
    let mut config = level.config();
    tune(&mut config);
    let mut bench = Bench::new(config);
    body(&mut bench);
    bench.finish();
}

impl Bench {
    fn new(config: Config) -> Self {
        let event_loop = Loop::new(LoopIndex::default(), config).unwrap();
        let mut bench = Self {
            event_loop,
            holds: false,
            held: Vec::new(),
            got: Vec::new(),
            sent: Vec::new(),
            errors: Vec::new(),
            refused: Vec::new(),
            opened: Vec::new(),
            closed: HashMap::new(),
            writable: 0,
            pressure: 0,
            timers: 0,
            drained: false,
            open: HashMap::new(),
            events: Events::with_capacity(1024),
            idle_in_flight: 0,
        };
        bench.turn(Duration::ZERO);
        bench.idle_in_flight = bench.event_loop.counters().in_flight;
        bench
    }

    pub(crate) fn set_event_room(&mut self, capacity: usize) {
        self.events = Events::with_capacity(capacity);
    }

    pub(crate) fn turn(&mut self, timeout: Duration) -> usize {
        self.turn_with([], timeout)
    }

    pub(crate) fn turn_with<'a>(
        &mut self,
        commands: impl IntoIterator<Item = Command<'a>>,
        timeout: Duration,
    ) -> usize {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(1));
        let count = self
            .event_loop
            .turn(commands, &mut events, Some(timeout))
            .unwrap();
        for event in events.drain() {
            self.record(event);
        }
        self.events = events;
        count
    }

    fn state(&mut self, socket: DatagramSocketId) -> &mut State {
        assert!(
            !self.closed.contains_key(&socket),
            "{socket:?} has closed, and goes on"
        );
        self.open
            .get_mut(&socket)
            .unwrap_or_else(|| panic!("{socket:?} was never opened"))
    }

    fn record(&mut self, event: Event) {
        assert!(!self.drained, "{event:?} after the loop has drained");
        match event {
            Event::DatagramOpened { socket, token } => {
                assert!(!self.closed.contains_key(&socket), "{socket:?} is used again");
                let state = State {
                    token,
                    ..State::default()
                };
                assert!(
                    self.open.insert(socket, state).is_none(),
                    "{socket:?} opens twice"
                );
                self.opened.push(socket);
            }
            Event::Datagrams { socket, datagrams } => {
                let state = self.state(socket);
                assert!(!state.paused, "datagrams of {socket:?} while paused");
                assert!(!state.closing, "datagrams of {socket:?} after its close");
                assert_eq!(datagrams.iter().count(), datagrams.len());
                assert_eq!(
                    datagrams.first().bytes(),
                    datagrams.iter().next().unwrap().bytes()
                );
                for one in &datagrams {
                    self.got.push(Got {
                        socket,
                        bytes: one.to_vec(),
                        peer: one.peer(),
                        local: one.local_address(),
                        interface: one.interface(),
                        ecn: one.ecn(),
                        timestamp: one.timestamp(),
                        segment_size: one.segment_size(),
                        truncated: one.is_truncated(),
                    });
                }
                if self.holds {
                    self.held.push(datagrams);
                }
            }
            Event::DatagramSent {
                socket,
                token,
                result,
            } => {
                assert!(
                    self.state(socket).asked.remove(&token),
                    "{event:?} was not asked for"
                );
                self.sent.push((token, result));
            }
            Event::DatagramError { socket, error } => {
                self.state(socket);
                self.errors.push((socket, error));
            }
            Event::DatagramWritable { socket } => {
                let state = self.state(socket);
                assert!(!state.closing, "{event:?} after its close");
                assert!(
                    std::mem::take(&mut state.writable_owed),
                    "{event:?} was owed by nothing"
                );
                self.writable += 1;
            }
            Event::DatagramPressure { socket } => {
                assert!(!self.state(socket).closing, "{event:?} after its close");
                self.pressure += 1;
            }
            Event::DatagramClosed { socket, token, error } => {
                assert_eq!(self.state(socket).token, token);
                self.open.remove(&socket);
                self.closed.insert(socket, error);
            }
            Event::DatagramRefused {
                token,
                socket,
                refusal,
            } => self.refused.push((token, socket, refusal)),
            Event::Timer { .. } => self.timers += 1,
            Event::Drained => {
                assert!(self.open.is_empty());
                self.drained = true;
            }
            Event::Draining | Event::Woken => {}
            other => panic!("unknown to this suite: {other:?}"),
        }
    }

    /// Turns until `condition` holds.
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let since = Instant::now();
        while !condition(self) {
            assert!(
                since.elapsed() < PATIENCE,
                "still waiting: {what}: {} received, {:?} sent, {:?}",
                self.got.len(),
                self.sent,
                self.errors
            );
            self.turn(Duration::from_millis(5));
        }
    }

    /// Turns until two in a row have reported nothing.
    pub(crate) fn until_quiet(&mut self) {
        self.until("nothing more happens", |bench| {
            bench.turn(Duration::from_millis(5)) == 0 && bench.turn(Duration::from_millis(5)) == 0
        });
    }

    /// Turns until nothing is queued for sending: of sends that nobody asked about, nothing tells.
    pub(crate) fn flush(&mut self, socket: DatagramSocketId) {
        self.until("all is sent", |bench| bench.counters(socket).queued_bytes == 0);
    }

    pub(crate) fn wait_received(&mut self, count: usize) {
        self.until("datagrams arrive", |bench| bench.got.len() >= count);
    }

    /// The bytes of all that came, in order.
    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        self.got.iter().map(|got| got.bytes.clone()).collect()
    }

    pub(crate) fn bind(&mut self, address: &str, options: &DatagramOptions) -> DatagramSocketId {
        self.bind_at(&address.parse().unwrap(), options)
    }

    pub(crate) fn bind_at(&mut self, address: &Address, options: &DatagramOptions) -> DatagramSocketId {
        let id = self
            .event_loop
            .bind_datagram(address, options, Token(99))
            .unwrap();
        self.until("it opens", |bench| bench.open.contains_key(&id));
        self.state(id).paused = options.paused;
        id
    }

    pub(crate) fn address(&self, socket: DatagramSocketId) -> Address {
        self.event_loop.datagram_address(socket).unwrap().clone()
    }

    /// A blocking client, connected to the socket.
    pub(crate) fn client(&self, socket: DatagramSocketId) -> UdpSocket {
        let Address::Tcp(address) = self.address(socket) else {
            panic!("no UDP socket")
        };
        let local = if address.is_ipv4() {
            "127.0.0.1:0"
        } else {
            "[::1]:0"
        };
        let client = client(local);
        let to = match address.ip() {
            ip if !ip.is_unspecified() => address,
            IpAddr::V4(_) => SocketAddr::new([127, 0, 0, 1].into(), address.port()),
            IpAddr::V6(_) => SocketAddr::new(std::net::Ipv6Addr::LOCALHOST.into(), address.port()),
        };
        client.connect(to).unwrap();
        client
    }

    pub(crate) fn send(
        &mut self,
        socket: DatagramSocketId,
        datagram: DatagramSend<'_>,
    ) -> Result<(), Refusal> {
        let token = datagram.token;
        let result = self.event_loop.send_datagram(socket, datagram);
        if result.is_ok() && token != Token::NONE {
            self.state(socket).asked.insert(token);
        }
        if result == Err(Refusal::Full) || (result.is_ok() && self.event_loop.is_datagram_full(socket)) {
            self.state(socket).writable_owed = true;
        }
        result
    }

    /// Sends bytes that nothing more is asked of, and for which there is room.
    pub(crate) fn send_to(&mut self, socket: DatagramSocketId, to: SocketAddr, bytes: &[u8]) {
        self.send(socket, DatagramSend::new(Address::Tcp(to), bytes))
            .unwrap();
    }

    pub(crate) fn pause(&mut self, socket: DatagramSocketId) {
        self.event_loop.pause_datagrams(socket).unwrap();
        self.state(socket).paused = true;
    }

    pub(crate) fn resume(&mut self, socket: DatagramSocketId) {
        self.event_loop.resume_datagrams(socket).unwrap();
        self.state(socket).paused = false;
    }

    pub(crate) fn close(&mut self, socket: DatagramSocketId) {
        self.event_loop.close_datagram(socket).unwrap();
        self.state(socket).closing = true;
    }

    pub(crate) fn counters(&mut self, socket: DatagramSocketId) -> DatagramCounters {
        self.event_loop.datagram_counters(socket).unwrap()
    }

    /// Sets an option of the socket behind the loop's back.
    pub(crate) fn set(&self, socket: DatagramSocketId, level: i32, name: i32, value: i32) {
        set(
            self.event_loop.datagram_descriptor(socket).unwrap(),
            level,
            name,
            value,
        );
    }

    /// Ends everything; then nothing may be left.
    fn finish(mut self) {
        self.held.clear();
        self.holds = false;
        let open: Vec<_> = self.open.keys().copied().collect();
        for socket in open {
            // One that is being closed already is as good.
            let _ = self.event_loop.close_datagram(socket);
            self.state(socket).closing = true;
        }
        self.until("all sockets close", |bench| {
            bench.open.is_empty() && bench.event_loop.datagram_sockets() == 0
        });
        self.until("nothing is in flight", |bench| {
            bench.event_loop.counters().in_flight <= bench.idle_in_flight
        });
    }
}

/// A blocking client that fails instead of waiting for ever.
pub(crate) fn client(address: &str) -> UdpSocket {
    let client = UdpSocket::bind(address).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client
}

/// A socket that hears itself only, and its address: whoever else sends to it is told that nobody is there, and nobody can
/// take its port.
pub(crate) fn deaf(host: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((host, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    socket.connect(address).unwrap();
    (socket, address)
}

/// Receives, whatever interrupts it: a thread that made a ring is interrupted when the kernel takes that ring down, and
/// with `SO_RCVTIMEO` a read says so (`signal(7)`).
pub(crate) fn uninterrupted<T>(mut receive: impl FnMut() -> std::io::Result<T>) -> T {
    loop {
        match receive() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result.unwrap(),
        }
    }
}

/// The next datagram.
pub(crate) fn receive(client: &UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let length = uninterrupted(|| client.recv(&mut buffer));
    buffer.truncate(length);
    buffer
}

pub(crate) fn set(socket: impl AsFd, level: i32, name: i32, value: i32) {
    // SAFETY: the value outlives the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// The number of an interface of this namespace.
pub(crate) fn interface(name: &CStr) -> u32 {
    // SAFETY: a C string that outlives the call.
    let number = unsafe { libc::if_nametoindex(name.as_ptr()) };
    assert_ne!(number, 0, "{}", std::io::Error::last_os_error());
    number
}

/// Bytes that differ from those of other numbers, and show where they are.
pub(crate) fn numbered(number: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (number * 31 + at * 7 + at / 251) as u8)
        .collect()
}
