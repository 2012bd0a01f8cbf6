//! Errors after which a socket goes on: the connection has lost something all the same, so its peer must see a reset,
//! and not the end of what looks complete.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

use std::cell::Cell;
use std::io::{ErrorKind, Read};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::time::Duration;

use quoit::address::SocketAddress;
use quoit::internals::LoopMemory;
use quoit::internals::engine::epoll::sys::{EpollSys, ReadyEvent};
use quoit::internals::engine::epoll::{Epoll, EpollEngine, EpollSettings};
use quoit::internals::sys::Linux;
use quoit::{
    Address, CloseReason, Config, ConnectionId, Errno, Event, Events, ListenerOptions, Loop, LoopIndex,
    Payload, Token,
};

thread_local! {
    static SEND_FAILS: Cell<Option<i32>> = const { Cell::new(None) };
    static RECEIVE_FAILS: Cell<Option<i32>> = const { Cell::new(None) };
}

fn fail(error: &'static std::thread::LocalKey<Cell<Option<i32>>>) -> Result<(), Errno> {
    error.take().map_or(Ok(()), |code| Err(Errno::new(code)))
}

/// The real calls, of which the next may be made to fail.
struct Failing(Epoll);

impl EpollSys for Failing {
    fn create() -> Result<Self, Errno> {
        Epoll::create().map(Self)
    }

    fn descriptor(&self) -> RawFd {
        self.0.descriptor()
    }

    fn add(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        self.0.add(descriptor, events, value)
    }

    fn modify(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        self.0.modify(descriptor, events, value)
    }

    fn remove(&mut self, descriptor: RawFd) -> Result<(), Errno> {
        self.0.remove(descriptor)
    }

    fn wait(&mut self, events: &mut [ReadyEvent], timeout: Option<Duration>) -> Result<usize, Errno> {
        self.0.wait(events, timeout)
    }

    fn accept(&mut self, listener: RawFd) -> Result<OwnedFd, Errno> {
        self.0.accept(listener)
    }

    fn connect(&mut self, socket: RawFd, address: &SocketAddress) -> Result<(), Errno> {
        self.0.connect(socket, address)
    }

    fn protocol(&mut self, socket: RawFd) -> Result<i32, Errno> {
        self.0.protocol(socket)
    }

    fn receive(&mut self, socket: RawFd, address: *mut u8, length: usize) -> Result<usize, Errno> {
        fail(&RECEIVE_FAILS)?;
        self.0.receive(socket, address, length)
    }

    fn send(&mut self, socket: RawFd, address: *const u8, length: usize) -> Result<usize, Errno> {
        fail(&SEND_FAILS)?;
        self.0.send(socket, address, length)
    }

    fn send_message(&mut self, socket: RawFd, header: *const libc::msghdr) -> Result<usize, Errno> {
        fail(&SEND_FAILS)?;
        self.0.send_message(socket, header)
    }

    fn receive_messages(&mut self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
        self.0.receive_messages(socket, messages)
    }
}

/// A loop with one connection, and its client.
struct Fixture {
    event_loop: Loop<EpollEngine<Failing, Linux>, Linux>,
    events: Events,
    connection: ConnectionId,
    client: TcpStream,
}

/// Far longer than anything takes: a test that waits so long waits for something that does not come.
const LONG: Duration = Duration::from_secs(60);

impl Fixture {
    fn new() -> Self {
        let config = Config::default();
        let memory = LoopMemory::new(LoopIndex::default(), &config).unwrap();
        let engine = EpollEngine::new(EpollSettings::default(), Linux).unwrap();
        let mut event_loop =
            Loop::with_engine(LoopIndex::default(), config, memory, engine, String::new(), Linux);
        let any = Address::Tcp(([127, 0, 0, 1], 0).into());
        let listener = event_loop.listen(&any, &ListenerOptions::default()).unwrap();
        let Some(Address::Tcp(address)) = event_loop.listener_address(listener) else {
            unreachable!("it was made with one")
        };
        let client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let mut events = Events::with_capacity(64);
        let connection = wait(&mut event_loop, &mut events, |event| match event {
            Event::Accepted { connection, .. } => Some(*connection),
            _ => None,
        });
        Self {
            event_loop,
            events,
            connection,
            client,
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.event_loop
            .send(self.connection, Payload::Copy(bytes), Token::NONE)
            .unwrap();
    }

    fn closed(&mut self) -> CloseReason {
        wait(&mut self.event_loop, &mut self.events, |event| match event {
            Event::Closed { reason, .. } => Some(*reason),
            _ => None,
        })
    }

    /// What the client receives until an end or an error.
    fn client_receives(&mut self) -> (Vec<u8>, Result<(), ErrorKind>) {
        let mut bytes = Vec::new();
        let result = self.client.read_to_end(&mut bytes);
        (bytes, result.map(drop).map_err(|error| error.kind()))
    }
}

/// Turns until an event is the one that is looked for; what earlier turns brought is looked at first.
fn wait<T>(
    event_loop: &mut Loop<EpollEngine<Failing, Linux>, Linux>,
    events: &mut Events,
    look: impl Fn(&Event) -> Option<T>,
) -> T {
    loop {
        let found = events.drain().find_map(|event| look(&event));
        if let Some(found) = found {
            return found;
        }
        event_loop.turn([], events, Some(LONG)).unwrap();
    }
}

#[test]
fn a_send_that_fails_for_want_of_memory_is_not_taken_for_the_end() {
    let mut fixture = Fixture::new();
    fixture.send(b"the beginning");
    // The first is with the socket before the second fails.
    fixture
        .event_loop
        .turn([], &mut fixture.events, Some(Duration::ZERO))
        .unwrap();
    let mut beginning = [0; 13];
    fixture.client.read_exact(&mut beginning).unwrap();
    SEND_FAILS.set(Some(libc::ENOBUFS));
    fixture.send(b"and the rest");
    fixture
        .event_loop
        .turn([], &mut fixture.events, Some(Duration::ZERO))
        .unwrap();
    // It may have been reset by now. If not, this ends it in the ordinary way.
    let _ = fixture.client.shutdown(Shutdown::Write);
    assert_eq!(fixture.closed(), CloseReason::Error(Errno::new(libc::ENOBUFS)));
    assert_eq!(
        fixture.client_receives(),
        (Vec::new(), Err(ErrorKind::ConnectionReset))
    );
}

#[test]
fn a_receive_that_fails_for_want_of_memory_cuts_no_answer_short_unseen() {
    let mut fixture = Fixture::new();
    RECEIVE_FAILS.set(Some(libc::ENOMEM));
    // Nothing unread is in the socket, which would reset the connection anyway.
    fixture.client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(fixture.closed(), CloseReason::Error(Errno::new(libc::ENOMEM)));
    assert_eq!(
        fixture.client_receives(),
        (Vec::new(), Err(ErrorKind::ConnectionReset))
    );
}
