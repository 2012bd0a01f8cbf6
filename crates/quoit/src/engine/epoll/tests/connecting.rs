use super::*;

fn connect(bench: &mut Bench, address: &SocketAddress) -> OwnedFd {
    let socket = Linux.stream_socket(address).unwrap();
    TcpStream::from(socket.try_clone().unwrap())
        .set_nonblocking(true)
        .unwrap();
    bench.submit(Operation::Connect {
        connection: Slot::new(0),
        descriptor: socket.as_raw_fd(),
        address: Box::new(address.clone()),
    });
    socket
}

fn connected(completion: Completion) -> Result<(), Errno> {
    match completion {
        Completion::Connected { connection, result } => {
            assert_eq!(connection, Slot::new(0));
            result
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_tcp_connection_is_made_and_used() {
    let mut bench = Bench::new(4, 64);
    let (listener, _) = tcp_listener();
    let socket = connect(&mut bench, &Linux.local_address(listener.as_fd()).unwrap());
    assert_eq!(connected(bench.one()), Ok(()));
    let (mut peer, _) = listener.accept().unwrap();
    bench.send(0, &socket, b"ping");
    assert_eq!(sent(bench.one()), Ok(4));
    bench.receive(0, &socket, 100);
    bench.silence();
    peer.write_all(b"pong").unwrap();
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"pong");
    assert_eq!(bench.engine.counters().snapshot().in_flight, 1);
}

#[test]
fn a_unix_connection_is_made_at_once() {
    let mut bench = Bench::new(4, 64);
    let directory = tempfile::tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
    let address = Linux.local_address(listener.as_fd()).unwrap();
    let _socket = connect(&mut bench, &address);
    assert!(!bench.engine.may_sleep());
    assert_eq!(connected(bench.one()), Ok(()));
    drop(listener);
    let _other = connect(&mut bench, &address);
    assert_eq!(connected(bench.one()), Err(Errno::ECONNREFUSED));
}

#[test]
fn a_refusal_is_told() {
    let mut bench = Bench::new(4, 64);
    // The address of a connected socket: taken, and nobody listens there.
    let (_ours, theirs) = tcp_pair();
    let address = Linux.local_address(theirs.as_fd()).unwrap();
    let _socket = connect(&mut bench, &address);
    assert_eq!(connected(bench.one()), Err(Errno::ECONNREFUSED));
    bench.silence();
}

#[test]
fn an_attempt_can_be_cancelled() {
    let mut bench = Bench::new(4, 64);
    let (listener, _) = tcp_listener();
    let address = Linux.local_address(listener.as_fd()).unwrap();
    let socket = connect(&mut bench, &address);
    bench.cancel(connection(0), Kind::Connect);
    assert_eq!(connected(bench.one()), Err(Errno::ECANCELED));
    bench.silence();
    bench.close(connection(0), socket);
    bench.silence();
}
