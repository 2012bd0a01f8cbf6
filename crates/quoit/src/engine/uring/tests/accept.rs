//! Accepting, connecting and closing.

use std::net::SocketAddr;
use std::os::unix::net::UnixListener;
use std::path::Path;

use super::*;
use crate::address::SocketAddress;

impl<S: UringSys> Fixture<S> {
    pub(super) fn accept(&mut self, listener: &impl AsRawFd, limit: u32) {
        self.submit(Operation::Accept {
            listener: Slot::new(1),
            descriptor: listener.as_raw_fd(),
            limit,
        });
    }

    fn next_accepted(&mut self) -> (Result<OwnedFd, Errno>, bool) {
        match self.next() {
            Completion::Accepted { result, more, .. } => (result, more),
            other => panic!("{other:?} where an accept was expected"),
        }
    }

    fn connect(&mut self, socket: &impl AsRawFd, address: SocketAddress) {
        self.submit(Operation::Connect {
            connection: Slot::new(2),
            descriptor: socket.as_raw_fd(),
            address: Box::new(address),
        });
    }

    fn next_connected(&mut self) -> Result<(), Errno> {
        match self.next() {
            Completion::Connected { result, .. } => result,
            other => panic!("{other:?} where a connect was expected"),
        }
    }
}

fn is_close_on_exec(descriptor: &OwnedFd) -> bool {
    // SAFETY: F_GETFD takes no pointers.
    let flags = unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_GETFD) };
    flags & libc::FD_CLOEXEC != 0
}

#[test]
fn one_accept_below_the_margin_is_exact() {
    at_all_levels(|fixture| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let clients: Vec<_> = (0..3)
            .map(|_| TcpStream::connect(listener.local_addr().unwrap()).unwrap())
            .collect();
        for client in &clients {
            fixture.accept(&listener, 1);
            let (result, more) = fixture.next_accepted();
            let socket = TcpStream::from(result.unwrap());
            assert_eq!(socket.peer_addr().unwrap(), client.local_addr().unwrap());
            assert!(!more && is_close_on_exec(&OwnedFd::from(socket)));
        }
        fixture.finish();
    });
}

#[test]
fn accepting_many_stops_before_the_limit_is_passed() {
    const CLIENTS: usize = 120;
    let settings = UringSettings {
        submission_entries: 8,
        completion_entries: 16,
        ..SETTINGS
    };
    for without in levels() {
        let fixture = &mut Fixture::new(&settings, 8, without);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _clients: Vec<_> = (0..CLIENTS)
            .map(|_| TcpStream::connect(address).unwrap())
            .collect();
        let limit = fixture.engine.accept_margin() + 5;
        let mut accepted = 0;
        while accepted < CLIENTS {
            fixture.accept(&listener, limit);
            let mut since_armed = 0;
            loop {
                let (result, more) = fixture.next_accepted();
                match result {
                    Ok(_) => since_armed += 1,
                    Err(errno) => assert!(errno == Errno::ECANCELED && !more),
                }
                if accepted + since_armed == CLIENTS && more {
                    fixture.cancel(1, Kind::Accept);
                }
                if !more {
                    break;
                }
            }
            assert!(since_armed as u32 <= limit, "{since_armed} of {limit}");
            accepted += since_armed;
        }
        let arms = fixture.engine.counters().snapshot().accept_arms;
        if fixture.features.contains(Feature::MultishotAccept) {
            assert!(arms < CLIENTS as u64 / 2, "{arms}");
        } else {
            // As many as it may at once, with what was queued behind the first.
            assert_eq!(arms, (CLIENTS as u64).div_ceil(u64::from(limit)));
        }
        fixture.finish();
    }
}

#[test]
fn accepting_ends_by_itself_before_the_limit() {
    let settings = UringSettings {
        submission_entries: 8,
        completion_entries: 16,
        ..SETTINGS
    };
    for without in levels() {
        let fixture = &mut Fixture::new(&settings, 8, without);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let limit = fixture.engine.accept_margin() + 5;
        let mut clients = Vec::new();
        let mut accepted = 0;
        fixture.accept(&listener, limit);
        loop {
            clients.push(TcpStream::connect(address).unwrap());
            let (result, more) = fixture.next_accepted();
            match result {
                Ok(_) => accepted += 1,
                Err(errno) => assert!(errno == Errno::ECANCELED && !more),
            }
            assert!(accepted <= limit, "{accepted} of {limit}");
            if !more {
                break;
            }
        }
        fixture.finish();
    }
}

#[test]
fn a_cancelled_accept_ends() {
    at_all_levels(|fixture| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for limit in [1, 10_000] {
            fixture.accept(&listener, limit);
            fixture.poll();
            fixture.cancel(1, Kind::Accept);
            let (result, more) = fixture.next_accepted();
            assert_eq!((result.unwrap_err(), more), (Errno::ECANCELED, false));
        }
        fixture.finish();
    });
}

#[test]
fn accepting_on_what_does_not_listen_is_an_error() {
    at_all_levels(|fixture| {
        let (near, _far) = tcp_pair();
        fixture.accept(&near, 10_000);
        let (result, more) = fixture.next_accepted();
        assert_eq!((result.unwrap_err(), more), (Errno::EINVAL, false));
        fixture.finish();
    });
}

#[test]
fn connecting_succeeds_and_is_refused() {
    at_all_levels(|fixture| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let socket = Linux.stream_socket(&address.into()).unwrap();
        fixture.connect(&socket, address.into());
        assert_eq!(fixture.next_connected(), Ok(()));
        assert_eq!(TcpStream::from(socket).peer_addr().unwrap(), address);
        // SAFETY: shutdown takes no pointer. It ends listening and keeps the port, which another test would be given.
        let result = unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RD) };
        assert_eq!(result, 0);
        let socket = Linux.stream_socket(&address.into()).unwrap();
        fixture.connect(&socket, address.into());
        assert_eq!(fixture.next_connected(), Err(Errno::ECONNREFUSED));
        fixture.finish();
    });
}

#[test]
fn a_connection_attempt_that_hangs_is_cancelled() {
    at_all_levels(|fixture| {
        // A full backlog leaves further attempts without an answer.
        let address: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let listener = Linux.stream_socket(&address.into()).unwrap();
        let listening = std::os::fd::AsFd::as_fd(&listener);
        Linux.bind(listening, &address.into()).unwrap();
        Linux.listen(listening, 0).unwrap();
        let address = Linux.local_address(listening).unwrap();
        let queued = Linux.stream_socket(&address).unwrap();
        fixture.connect(&queued, address.clone());
        assert_eq!(fixture.next_connected(), Ok(()));
        let hanging = Linux.stream_socket(&address).unwrap();
        fixture.connect(&hanging, address);
        fixture.poll();
        fixture.cancel(2, Kind::Connect);
        assert_eq!(fixture.next_connected(), Err(Errno::ECANCELED));
        fixture.finish();
    });
}

#[test]
fn unix_connection_attempts_end_at_once() {
    at_all_levels(|fixture| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = SocketAddress::try_from(Path::new(&path)).unwrap();
        let socket = Linux.stream_socket(&address).unwrap();
        fixture.connect(&socket, address.clone());
        assert_eq!(fixture.next_connected(), Err(Errno::ENOENT));
        let _listener = UnixListener::bind(&path).unwrap();
        fixture.connect(&socket, address);
        assert!(!fixture.engine.may_sleep());
        assert_eq!(fixture.next_connected(), Ok(()));
        fixture.finish();
    });
}

#[test]
fn closing_is_silent_and_done() {
    at_all_levels(|fixture| {
        let (near, mut far) = UnixStream::pair().unwrap();
        fixture.submit(Operation::Close {
            handle: Handle::Connection(Slot::new(7)),
            descriptor: near.into(),
        });
        fixture.poll();
        let mut bytes = Vec::new();
        assert_eq!(far.read_to_end(&mut bytes).unwrap(), 0);
        assert!(fixture.pending.is_empty());
        fixture.finish();
    });
}

#[test]
fn a_close_that_was_never_submitted_closes_with_the_engine() {
    for without in levels() {
        let mut fixture = Fixture::new(&SETTINGS, 8, without);
        let (near, mut far) = UnixStream::pair().unwrap();
        fixture.submit(Operation::Close {
            handle: Handle::Connection(Slot::new(7)),
            descriptor: near.into(),
        });
        drop(fixture);
        assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
    }
}
