use super::*;

/// Takes completions apart into accepted sockets; returns whether the accept goes on.
pub(super) fn accepted(completions: Vec<Completion>, into: &mut Vec<OwnedFd>) -> bool {
    let mut goes_on = true;
    for completion in completions {
        let Completion::Accepted {
            result: Ok(descriptor),
            more,
            ..
        } = completion
        else {
            panic!("{completion:?}");
        };
        assert!(goes_on, "nothing comes after the terminal completion");
        goes_on = more;
        into.push(descriptor);
    }
    goes_on
}

pub(super) fn clients(address: std::net::SocketAddr, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(address).unwrap()).collect()
}

#[test]
fn the_limit_is_exact_and_the_rest_waits() {
    let mut bench = Bench::new(1, 64);
    let (socket, address) = tcp_listener();
    let _clients = clients(address, 5);
    let mut sockets = Vec::new();
    bench.accept(0, &socket, 2);
    assert!(!accepted(bench.next(2), &mut sockets));
    bench.silence();
    bench.accept(0, &socket, 10);
    assert!(accepted(bench.next(3), &mut sockets));
    bench.silence();
    let _late = clients(address, 1);
    assert!(accepted(bench.next(1), &mut sockets));
    assert_eq!(sockets.len(), 6);
    for socket in &sockets {
        // SAFETY: fcntl(2) without pointers.
        let (status, flags) = unsafe {
            (
                libc::fcntl(socket.as_raw_fd(), libc::F_GETFL),
                libc::fcntl(socket.as_raw_fd(), libc::F_GETFD),
            )
        };
        assert_ne!(status & libc::O_NONBLOCK, 0);
        assert_ne!(flags & libc::FD_CLOEXEC, 0);
    }
}

#[test]
fn a_limit_that_is_taken_up_again_in_the_same_turn_costs_no_registration() {
    let mut bench = Bench::new(1, 64);
    let (socket, address) = tcp_listener();
    let _clients = clients(address, 3);
    let mut sockets = Vec::new();
    bench.accept(0, &socket, 1);
    assert!(!accepted(bench.next(1), &mut sockets));
    let counters = bench.engine.counters().snapshot();
    for _ in 0..2 {
        bench.accept(0, &socket, 1);
        assert!(!accepted(bench.next(1), &mut sockets));
    }
    let calls = bench.engine.counters().snapshot().system_calls - counters.system_calls;
    let polls = bench.engine.counters().snapshot().enters - counters.enters;
    assert_eq!(calls - polls, 2, "two calls to accept and no other");
}

#[test]
fn many_connections_take_several_turns() {
    let mut bench = Bench::with(
        EpollSettings {
            accepts_per_turn: 4,
            ..EpollSettings::default()
        },
        1,
        64,
    );
    let (socket, address) = tcp_listener();
    let _clients = clients(address, 40);
    bench.accept(0, &socket, 100);
    let mut sockets = Vec::new();
    for turn in 1..=10 {
        assert!(accepted(bench.turn(), &mut sockets));
        assert_eq!(sockets.len(), turn * 4);
    }
    bench.silence();
}

#[test]
fn nothing_comes_after_a_cancel() {
    let mut bench = Bench::new(1, 64);
    let (socket, address) = tcp_listener();
    bench.accept(0, &socket, 5);
    let _clients = clients(address, 1);
    bench.engine.wait(Some(PATIENCE), &mut bench.pool).unwrap();
    assert!(!bench.engine.may_sleep());
    bench.cancel(listener(0), Kind::Accept);
    let Completion::Accepted {
        result: Err(Errno::ECANCELED),
        more: false,
        ..
    } = bench.one()
    else {
        panic!("not cancelled");
    };
    bench.silence();
    bench.cancel(listener(0), Kind::Accept);
    bench.silence();
    bench.accept(0, &socket, 5);
    let mut sockets = Vec::new();
    assert!(accepted(bench.next(1), &mut sockets));
}

/// Accepting fails for good, here since the socket does not listen; so will the next attempt, at once.
#[test]
fn a_failed_accept_leaves_its_hint_to_the_next_one() {
    let mut bench = Bench::new(1, 64);
    let (listening, _) = tcp_listener();
    let socket = Linux
        .stream_socket(&Linux.local_address(listening.as_fd()).unwrap())
        .unwrap();
    for _ in 0..2 {
        bench.accept(0, &socket, 5);
        let Completion::Accepted {
            result: Err(Errno::EINVAL),
            more: false,
            ..
        } = bench.one()
        else {
            panic!("not refused");
        };
        bench.accept(0, &socket, 5);
        assert!(!bench.engine.may_sleep(), "the next attempt needs no event");
        assert!(matches!(
            bench.one(),
            Completion::Accepted {
                result: Err(_),
                more: false,
                ..
            }
        ));
        // Between attempts, what the listener reports keeps nobody awake.
        bench.silence();
    }
}
