//! The engine on real sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::sys::{EpollSys, ReadyEvent};
use super::{Epoll, EpollEngine, EpollSettings};
use crate::address::SocketAddress;
use crate::engine::{
    Completion, Completions, Engine, Gather, Handle, Kind, Message, Operation, Received, SendMode,
};
use crate::errno::Errno;
use crate::id::Slot;
use crate::pool::{Pool, PoolSlot};
use crate::sys::{Linux, SocketSys};
use crate::wake::Wake;

mod accepting;
mod connecting;
mod failing;
mod receiving;
mod room;
mod sending;
mod sharing;
mod turns;

/// After this a test gives up on what it waits for. Only a failing one waits so long.
const PATIENCE: Duration = Duration::from_secs(20);

/// An engine with its pool, driven as the loop drives it.
struct Bench<P = Epoll> {
    engine: EpollEngine<P, Linux>,
    pool: Pool,
    wake: Arc<Wake>,
    seen: Vec<Completion>,
    /// Slots of the pool that were received into and not yet given back.
    held: Vec<PoolSlot>,
}

impl Bench {
    fn new(slots: u32, slot_size: u32) -> Self {
        Self::with(EpollSettings::default(), slots, slot_size)
    }

    fn with(settings: EpollSettings, slots: u32, slot_size: u32) -> Self {
        Self::on_kernel(settings, slots, slot_size)
    }
}

impl<P: EpollSys> Bench<P> {
    fn on_kernel(settings: EpollSettings, slots: u32, slot_size: u32) -> Self {
        let wake = Arc::new(Wake::new().unwrap());
        let mut pool = Pool::new(slots, slot_size, 0, Arc::clone(&wake)).unwrap();
        let mut engine = EpollEngine::new(settings, Linux).unwrap();
        engine.bind(wake.descriptor(), &mut pool).unwrap();
        Self {
            engine,
            pool,
            wake,
            seen: Vec::new(),
            held: Vec::new(),
        }
    }

    fn submit(&mut self, operation: Operation) {
        self.engine.submit(operation, &mut self.pool);
    }

    /// One turn that may sleep; returns what completed.
    fn turn(&mut self) -> Vec<Completion> {
        self.turn_for(PATIENCE)
    }

    /// One turn that does not sleep.
    fn glance(&mut self) -> Vec<Completion> {
        self.turn_for(Duration::ZERO)
    }

    fn turn_for(&mut self, timeout: Duration) -> Vec<Completion> {
        let timeout = if self.engine.may_sleep() {
            timeout
        } else {
            Duration::ZERO
        };
        self.engine.wait(Some(timeout), &mut self.pool).unwrap();
        let mut completions = Completions::default();
        while self.engine.reap(&mut self.pool, 64, &mut completions) {}
        completions.into_list().collect()
    }

    /// Turns until `count` completions are there, and none beyond.
    fn next(&mut self, count: usize) -> Vec<Completion> {
        let start = Instant::now();
        while self.seen.len() < count && start.elapsed() < PATIENCE {
            let completions = self.turn();
            self.seen.extend(completions);
        }
        assert_eq!(self.seen.len(), count, "{:?}", self.seen);
        std::mem::take(&mut self.seen)
    }

    fn one(&mut self) -> Completion {
        self.next(1).remove(0)
    }

    /// Turns that find nothing, as many as it takes for anything at hand or in the kernel to show.
    fn silence(&mut self) {
        for _ in 0..4 {
            let completions = self.glance();
            assert!(completions.is_empty(), "{completions:?}");
        }
        assert!(self.engine.may_sleep());
    }

    /// Events that the kernel has and goes on to report for as long as they are true: those of listeners.
    fn standing_events(&mut self) -> usize {
        let mut events = [ReadyEvent { events: 0, u64: 0 }; 16];
        self.engine
            .kernel
            .wait(&mut events, Some(Duration::ZERO))
            .unwrap()
    }

    /// The bytes of a completion with data; its slot goes to `held`.
    fn bytes(&mut self, completion: &Completion) -> Vec<u8> {
        let Completion::Received {
            received: Received::Data { slot, length },
            ..
        } = completion
        else {
            panic!("no data: {completion:?}");
        };
        self.held.push(*slot);
        // SAFETY: the slot belongs to the receiver, and the engine has filled so much of it.
        unsafe { std::slice::from_raw_parts(self.pool.address(*slot), *length as usize) }.to_vec()
    }

    fn give_back(&mut self) {
        for slot in self.held.drain(..) {
            self.pool.give_back(slot);
        }
    }

    fn receive(&mut self, connection: u32, socket: &impl AsRawFd, budget: u32) {
        self.receive_that(connection, socket, budget, false);
    }

    fn receive_that(&mut self, connection: u32, socket: &impl AsRawFd, budget: u32, waited: bool) {
        self.submit(Operation::Receive {
            connection: Slot::new(connection),
            descriptor: socket.as_raw_fd(),
            budget,
            waited,
        });
    }

    fn send(&mut self, connection: u32, socket: &impl AsRawFd, bytes: &[u8]) {
        self.submit(Operation::Send {
            connection: Slot::new(connection),
            descriptor: socket.as_raw_fd(),
            message: Message::Single {
                address: bytes.as_ptr(),
                length: bytes.len() as u32,
            },
            mode: SendMode::Ordinary,
        });
    }

    fn accept(&mut self, listener: u32, socket: &impl AsRawFd, limit: u32) {
        self.submit(Operation::Accept {
            listener: Slot::new(listener),
            descriptor: socket.as_raw_fd(),
            limit,
        });
    }

    fn cancel(&mut self, handle: Handle, kind: Kind) {
        self.submit(Operation::Cancel { handle, kind });
    }

    fn close(&mut self, handle: Handle, socket: impl Into<OwnedFd>) {
        self.submit(Operation::Close {
            handle,
            descriptor: socket.into(),
        });
    }

    /// Receives from one connection until its receive ends; returns the bytes and how it ended. Slots are
    /// given back at once.
    fn receive_all(&mut self, connection: u32) -> (Vec<u8>, Option<Received>) {
        let mut bytes = Vec::new();
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            for completion in self.turn() {
                let Completion::Received {
                    connection: slot,
                    received,
                    more,
                } = completion
                else {
                    panic!("{completion:?}");
                };
                assert_eq!(slot, Slot::new(connection));
                match received {
                    Received::Data { .. } => bytes.extend(self.bytes(&completion)),
                    end => return (bytes, Some(end)),
                }
                if !more {
                    self.give_back();
                    return (bytes, None);
                }
            }
            self.give_back();
        }
        panic!("no end after {} bytes", bytes.len());
    }

    /// Reads what the peer has, without waiting, and turns until `completions` are there: for sends that the
    /// peer must make room for.
    fn drain_until_sent(&mut self, peer: &mut (impl Read + AsFd), into: &mut Vec<u8>) -> Completion {
        let mut buffer = vec![0; 1 << 16];
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(completion) = self.glance().pop() {
                return completion;
            }
            match peer.read(&mut buffer) {
                Ok(count) => into.extend_from_slice(&buffer[..count]),
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
        }
        panic!("not sent after {} bytes arrived", into.len());
    }
}

fn connection(slot: u32) -> Handle {
    Handle::Connection(Slot::new(slot))
}

fn listener(slot: u32) -> Handle {
    Handle::Listener(Slot::new(slot))
}

fn unix_pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (ours, theirs)
}

fn tcp_listener() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (ours, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_nodelay(true).unwrap();
    (ours, theirs)
}

/// Waits until `socket` has what `events` ask for: on loopback, what the peer has done is there at once, but
/// only the kernel can say so.
fn await_events(socket: &impl AsRawFd, events: i16) {
    let mut poll = libc::pollfd {
        fd: socket.as_raw_fd(),
        events,
        revents: 0,
    };
    // SAFETY: one valid pollfd.
    let count = unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as i32) };
    assert_eq!(count, 1);
    assert_ne!(poll.revents & events, 0, "{:#x}", poll.revents);
}

/// Makes closing `socket` send a reset.
fn linger_zero(socket: &impl AsRawFd) {
    set_option(
        socket,
        libc::SO_LINGER,
        libc::linger {
            l_onoff: 1,
            l_linger: 0,
        },
    );
}

fn set_option<T>(socket: &impl AsRawFd, name: i32, value: T) {
    // SAFETY: the kernel reads the value, whose size is told.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw const value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

/// Bytes that differ from their neighbours and from those a power of two away.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index % 251) as u8).collect()
}

fn sent(completion: Completion) -> Result<usize, Errno> {
    match completion {
        Completion::Sent {
            result, held: false, ..
        } => result,
        other => panic!("not sent: {other:?}"),
    }
}

fn ended(completion: Completion) -> Received {
    match completion {
        Completion::Received {
            received,
            more: false,
            ..
        } => received,
        other => panic!("not the end: {other:?}"),
    }
}
