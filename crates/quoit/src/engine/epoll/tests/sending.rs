use super::*;

#[test]
fn a_send_completes_inline_with_one_call() {
    let mut bench = Bench::new(1, 64);
    let (ours, mut theirs) = unix_pair();
    let calls = bench.engine.counters().snapshot().system_calls;
    bench.send(0, &ours, b"hello");
    assert!(!bench.engine.may_sleep());
    assert_eq!(sent(bench.one()), Ok(5));
    let counters = bench.engine.counters().snapshot();
    assert_eq!(counters.system_calls - calls, 1);
    assert_eq!(
        (counters.sends, counters.send_pieces, counters.sent_bytes),
        (1, 1, 5)
    );
    let mut bytes = [0; 5];
    theirs.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"hello");
}

#[test]
fn pieces_leave_together_and_their_list_comes_back() {
    let mut bench = Bench::new(1, 64);
    let (ours, mut theirs) = tcp_pair();
    let pieces = [pattern(3), pattern(1000), pattern(7)];
    let mut gather = Gather::new();
    gather.pieces.extend(pieces.iter().map(|piece| libc::iovec {
        iov_base: piece.as_ptr().cast_mut().cast(),
        iov_len: piece.len(),
    }));
    bench.submit(Operation::Send {
        connection: Slot::new(0),
        descriptor: ours.as_raw_fd(),
        message: Message::Gathered(gather),
        mode: SendMode::ZeroCopy,
    });
    let Completion::Sent {
        result: Ok(1010),
        gather: Some(gather),
        held: false,
        ..
    } = bench.one()
    else {
        panic!("not sent");
    };
    assert_eq!(gather.pieces.len(), 3);
    assert_eq!(bench.engine.counters().snapshot().send_pieces, 3);
    let mut bytes = vec![0; 1010];
    theirs.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes, pieces.concat());
}

fn send_through(ours: OwnedFd, mut theirs: impl Read + AsFd) {
    let mut bench = Bench::new(1, 64);
    let all = pattern(8 << 20);
    let mut taken = 0;
    let mut arrived = Vec::new();
    let mut ends = 0;
    while taken < all.len() {
        bench.send(0, &ours, &all[taken..]);
        let count = sent(bench.drain_until_sent(&mut theirs, &mut arrived)).unwrap();
        assert!(count > 0);
        taken += count;
        ends += 1;
    }
    assert!(ends > 1, "the socket was meant to be too small");
    let counters = bench.engine.counters().snapshot();
    assert_eq!(counters.sent_bytes, all.len() as u64);
    assert!(counters.short_sends >= ends - 1);
    drop(ours);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match theirs.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => arrived.extend_from_slice(&buffer[..count]),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
        }
    }
    assert!(arrived == all);
}

#[test]
fn a_full_socket_goes_on_once_it_was_drained() {
    let (ours, theirs) = tcp_pair();
    theirs.set_nonblocking(true).unwrap();
    send_through(ours.into(), theirs);
    let (ours, theirs) = unix_pair();
    theirs.set_nonblocking(true).unwrap();
    send_through(ours.into(), theirs);
}

/// Fills the socket until nothing more is taken; the last send stays outstanding.
fn fill(bench: &mut Bench, ours: &impl AsRawFd, bytes: &[u8]) {
    for _ in 0..10_000 {
        bench.send(0, ours, bytes);
        let completions = bench.glance();
        if completions.is_empty() {
            bench.silence();
            return;
        }
    }
    panic!("the socket takes everything");
}

#[test]
fn a_waiting_send_can_be_cancelled() {
    let mut bench = Bench::new(1, 64);
    let (ours, mut theirs) = unix_pair();
    let bytes = pattern(1 << 16);
    fill(&mut bench, &ours, &bytes);
    bench.cancel(connection(0), Kind::Send);
    assert_eq!(sent(bench.one()), Err(Errno::ECANCELED));
    // Room made afterwards is of no consequence, and is remembered for the next send.
    theirs.set_nonblocking(true).unwrap();
    let mut sink = vec![0; 1 << 20];
    while theirs.read(&mut sink).is_ok() {}
    await_events(&ours, libc::POLLOUT);
    bench.silence();
    bench.send(0, &ours, b"next");
    assert_eq!(sent(bench.one()), Ok(4));
    assert_eq!(bench.engine.counters().snapshot().in_flight, 0);
}

#[test]
fn a_waiting_send_ends_with_the_connection() {
    let mut bench = Bench::new(1, 64);
    let (ours, theirs) = tcp_pair();
    let bytes = pattern(1 << 20);
    fill(&mut bench, &ours, &bytes);
    linger_zero(&theirs);
    drop(theirs);
    assert_eq!(sent(bench.one()), Err(Errno::ECONNRESET));
}

#[test]
fn a_reset_reaches_both_directions() {
    let mut bench = Bench::new(4, 64);
    let (ours, theirs) = tcp_pair();
    let bytes = pattern(1 << 20);
    fill(&mut bench, &ours, &bytes);
    bench.receive(0, &ours, 100);
    bench.silence();
    linger_zero(&theirs);
    drop(theirs);
    let mut completions = bench.next(2);
    assert_eq!(sent(completions.remove(1)), Err(Errno::EPIPE));
    assert_eq!(ended(completions.remove(0)), Received::Error(Errno::ECONNRESET));
}

#[test]
fn a_file_longer_than_the_socket_holds_arrives_whole() {
    let mut bench = Bench::new(1, 64);
    let (ours, mut theirs) = tcp_pair();
    theirs.set_nonblocking(true).unwrap();
    let all = pattern(12 << 20);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&all).unwrap();
    let mut offset = 5;
    let mut arrived = Vec::new();
    let mut waited = false;
    loop {
        bench.submit(Operation::SendFile {
            connection: Slot::new(0),
            descriptor: ours.as_raw_fd(),
            file: file.as_raw_fd(),
            offset: offset as u64,
            length: 1 << 30,
        });
        waited |= bench.engine.may_sleep();
        let count = sent(bench.drain_until_sent(&mut theirs, &mut arrived)).unwrap();
        if count == 0 {
            break;
        }
        offset += count;
    }
    assert!(waited, "the socket was meant to be too small");
    assert_eq!(offset, all.len());
    drop(ours);
    theirs.set_nonblocking(false).unwrap();
    theirs.read_to_end(&mut arrived).unwrap();
    assert!(arrived == all[5..]);
}
