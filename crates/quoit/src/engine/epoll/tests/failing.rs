//! Errors that the real kernel gives too seldom to wait for, injected in front of it.

use std::collections::VecDeque;

use super::accepting::clients;
use super::*;

/// The real calls, each of which first returns the errors that were set for it.
pub(super) struct Failing {
    real: Epoll,
    accept: VecDeque<i32>,
    receive: VecDeque<i32>,
    pub(super) send: VecDeque<i32>,
    wait: VecDeque<i32>,
    add: VecDeque<i32>,
    pub(super) modify: VecDeque<i32>,
}

fn fail(errors: &mut VecDeque<i32>) -> Result<(), Errno> {
    errors.pop_front().map_or(Ok(()), |code| Err(Errno::new(code)))
}

impl EpollSys for Failing {
    fn create() -> Result<Self, Errno> {
        Ok(Self {
            real: Epoll::create()?,
            accept: VecDeque::new(),
            receive: VecDeque::new(),
            send: VecDeque::new(),
            wait: VecDeque::new(),
            add: VecDeque::new(),
            modify: VecDeque::new(),
        })
    }

    fn descriptor(&self) -> RawFd {
        self.real.descriptor()
    }

    fn add(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        fail(&mut self.add)?;
        self.real.add(descriptor, events, value)
    }

    fn modify(&mut self, descriptor: RawFd, events: u32, value: u64) -> Result<(), Errno> {
        fail(&mut self.modify)?;
        self.real.modify(descriptor, events, value)
    }

    fn remove(&mut self, descriptor: RawFd) -> Result<(), Errno> {
        self.real.remove(descriptor)
    }

    fn wait(&mut self, events: &mut [ReadyEvent], timeout: Option<Duration>) -> Result<usize, Errno> {
        fail(&mut self.wait)?;
        self.real.wait(events, timeout)
    }

    fn accept(&mut self, listener: RawFd) -> Result<OwnedFd, Errno> {
        fail(&mut self.accept)?;
        self.real.accept(listener)
    }

    fn connect(&mut self, socket: RawFd, address: &SocketAddress) -> Result<(), Errno> {
        self.real.connect(socket, address)
    }

    fn protocol(&mut self, socket: RawFd) -> Result<i32, Errno> {
        self.real.protocol(socket)
    }

    fn receive(&mut self, socket: RawFd, address: *mut u8, length: usize) -> Result<usize, Errno> {
        fail(&mut self.receive)?;
        self.real.receive(socket, address, length)
    }

    fn send(&mut self, socket: RawFd, address: *const u8, length: usize) -> Result<usize, Errno> {
        fail(&mut self.send)?;
        self.real.send(socket, address, length)
    }

    fn send_message(&mut self, socket: RawFd, header: *const libc::msghdr) -> Result<usize, Errno> {
        fail(&mut self.send)?;
        self.real.send_message(socket, header)
    }

    fn receive_messages(&mut self, socket: RawFd, messages: &mut [libc::mmsghdr]) -> Result<usize, Errno> {
        self.real.receive_messages(socket, messages)
    }
}

pub(super) fn bench() -> Bench<Failing> {
    Bench::on_kernel(EpollSettings::default(), 4, 64)
}

#[test]
fn interruptions_are_not_seen() {
    let mut bench = bench();
    let (ours, mut theirs) = tcp_pair();
    // More than one turn tries for.
    bench.engine.kernel.receive = vec![libc::EINTR; 40].into();
    bench.engine.kernel.send = vec![libc::EINTR; 3].into();
    bench.engine.kernel.wait = vec![libc::EINTR; 2].into();
    bench.receive(0, &ours, 100);
    theirs.write_all(b"bytes").unwrap();
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"bytes");
    assert_eq!(bench.pool.free(), 3);
    bench.send(0, &ours, b"answer");
    assert_eq!(sent(bench.one()), Ok(6));
    assert!(bench.engine.kernel.receive.is_empty());
    assert!(bench.engine.kernel.send.is_empty());
}

#[test]
fn a_failed_wait_is_told() {
    let mut bench = bench();
    bench.engine.kernel.wait = [libc::EBADF].into();
    assert_eq!(
        bench.engine.wait(Some(Duration::ZERO), &mut bench.pool),
        Err(Errno::EBADF)
    );
}

#[test]
fn errors_of_single_connections_do_not_end_an_accept() {
    let mut bench = bench();
    let (socket, address) = tcp_listener();
    let _clients = clients(address, 1);
    // More than one turn tries for.
    bench.engine.kernel.accept = [libc::ECONNABORTED, libc::EPROTO, libc::EINTR, libc::EHOSTUNREACH]
        .repeat(30)
        .into();
    bench.accept(0, &socket, 5);
    assert!(matches!(
        bench.one(),
        Completion::Accepted {
            result: Ok(_),
            more: true,
            ..
        }
    ));
    assert!(bench.engine.kernel.accept.is_empty());
}

#[test]
fn without_descriptors_accepting_ends_and_the_connection_waits() {
    let mut bench = bench();
    let (socket, address) = tcp_listener();
    let _clients = clients(address, 1);
    bench.engine.kernel.accept = [libc::EMFILE].into();
    bench.accept(0, &socket, 5);
    assert!(matches!(
        bench.one(),
        Completion::Accepted {
            result: Err(Errno::EMFILE),
            more: false,
            ..
        }
    ));
    // While nobody accepts, the queue keeps nobody awake.
    bench.silence();
    assert_eq!(bench.standing_events(), 0);
    bench.accept(0, &socket, 5);
    assert!(matches!(
        bench.one(),
        Completion::Accepted {
            result: Ok(_),
            more: true,
            ..
        }
    ));
}

#[test]
fn what_cannot_be_registered_is_an_error_and_can_be_tried_again() {
    let mut bench = bench();
    let (ours, mut theirs) = tcp_pair();
    let (socket, _) = tcp_listener();
    bench.engine.kernel.add = vec![libc::ENOSPC; 3].into();
    let no_space = Errno::new(libc::ENOSPC);
    bench.receive(0, &ours, 100);
    assert_eq!(ended(bench.one()), Received::Error(no_space));
    bench.accept(0, &socket, 1);
    assert!(matches!(
        bench.one(),
        Completion::Accepted { result: Err(error), more: false, .. } if error == no_space
    ));
    bench.engine.kernel.send = [libc::EAGAIN].into();
    bench.send(0, &ours, b"bytes");
    assert_eq!(sent(bench.one()), Err(no_space));
    assert_eq!(bench.engine.counters().snapshot().in_flight, 0);

    bench.receive(0, &ours, 100);
    theirs.write_all(b"now").unwrap();
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"now");
    bench.send(0, &ours, b"bytes");
    assert_eq!(sent(bench.one()), Ok(5));
}

#[test]
fn a_failed_send_gives_back_its_list() {
    let mut bench = bench();
    let (ours, _theirs) = tcp_pair();
    let bytes = [1u8; 4];
    let mut gather = Gather::new();
    gather.pieces.push(libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    });
    bench.engine.kernel.send = [libc::ENOBUFS].into();
    bench.submit(Operation::Send {
        connection: Slot::new(0),
        descriptor: ours.as_raw_fd(),
        message: Message::Gathered(gather),
        mode: SendMode::Ordinary,
    });
    assert!(matches!(
        bench.one(),
        Completion::Sent {
            result: Err(Errno::ENOBUFS),
            gather: Some(_),
            ..
        }
    ));
}
