use super::*;

#[test]
fn bytes_arrive_in_pieces_of_the_pool() {
    let mut bench = Bench::new(3, 8);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 1 << 20);
    theirs.write_all(&pattern(20)).unwrap();
    let pieces = bench.next(3);
    let lengths: Vec<_> = pieces
        .iter()
        .map(|piece| match piece {
            Completion::Received {
                received: Received::Data { length, .. },
                more: true,
                ..
            } => *length,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(lengths, [8, 8, 4]);
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| bench.bytes(piece)).collect();
    assert_eq!(bytes, pattern(20));
    assert_eq!(bench.engine.receivable(&bench.pool), 0);
}

#[test]
fn without_a_free_slot_receiving_ends_and_goes_on_after_one_was_given_back() {
    for with_edge in [false, true] {
        let mut bench = Bench::new(1, 8);
        let (ours, mut theirs) = tcp_pair();
        bench.receive(0, &ours, 1 << 20);
        theirs.write_all(&pattern(12)).unwrap();
        let mut completions = bench.next(2);
        assert_eq!(ended(completions.remove(1)), Received::NoBuffers);
        assert_eq!(bench.bytes(&completions[0]), pattern(12)[..8]);
        bench.silence();
        assert_eq!(bench.engine.counters().snapshot().receive_no_buffers, 1);

        // Again without a slot, whether or not more has come meanwhile.
        if with_edge {
            theirs.write_all(b"up").unwrap();
        }
        bench.receive(0, &ours, 1 << 20);
        assert_eq!(ended(bench.one()), Received::NoBuffers);

        bench.give_back();
        bench.receive(0, &ours, 1 << 20);
        let rest = bench.one();
        let rest = bench.bytes(&rest);
        assert_eq!(rest[..4], pattern(12)[8..]);
        assert_eq!(rest.len(), if with_edge { 6 } else { 4 });
    }
}

/// One slot for two connections, of which the first always has more: who had none in its turn is the first in the next.
#[test]
fn who_found_no_slot_comes_before_those_that_had_one() {
    let settings = EpollSettings {
        receives_per_turn: 1,
        ..EpollSettings::default()
    };
    let mut bench = Bench::with(settings, 1, 8);
    let mut pairs = [tcp_pair(), tcp_pair()];
    for (connection, (ours, theirs)) in (0..).zip(&mut pairs) {
        theirs.write_all(&pattern(40)).unwrap();
        await_events(ours, libc::POLLIN);
        bench.receive(connection, &*ours, 40);
    }
    let receiver = |completion: &Completion| match completion {
        Completion::Received { connection, .. } => connection.get(),
        other => panic!("{other:?}"),
    };
    let mut completions = bench.next(2);
    let (first, last) = (receiver(&completions[0]), receiver(&completions[1]));
    assert_eq!(bench.bytes(&completions[0]), pattern(8));
    assert_eq!(ended(completions.remove(1)), Received::NoBuffers);

    bench.give_back();
    bench.receive_that(last, &pairs[last as usize].0, 40, true);
    let mut completions = bench.next(2);
    assert_eq!([&completions[0], &completions[1]].map(receiver), [last, first]);
    assert_eq!(bench.bytes(&completions[0]), pattern(8));
    assert_eq!(ended(completions.remove(1)), Received::NoBuffers);
}

/// Those that waited come first, and again first in the next turn: within a turn's limit they would be all that it has.
#[test]
fn who_waited_counts_towards_no_limit() {
    let mut bench = Bench::new(2, 8);
    let mut pairs = [tcp_pair(), tcp_pair()];
    for (connection, (ours, theirs)) in (0..).zip(&mut pairs) {
        theirs.write_all(&pattern(8)).unwrap();
        await_events(ours, libc::POLLIN);
        bench.receive_that(connection, &*ours, 8, connection == 0);
    }
    bench.engine.wait(Some(PATIENCE), &mut bench.pool).unwrap();
    let mut completions = Completions::default();
    bench.engine.reap(&mut bench.pool, 1, &mut completions);
    let receivers: Vec<_> = completions
        .list
        .iter()
        .map(|completion| match completion {
            Completion::Received { connection, .. } => connection.get(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(receivers, [0, 1]);
}

#[test]
fn the_budget_is_exact() {
    let mut bench = Bench::new(16, 8);
    let (ours, mut theirs) = tcp_pair();
    theirs.write_all(&pattern(40)).unwrap();
    let mut all = Vec::new();
    for (budget, pieces) in [(8, 1), (19, 3), (1, 1)] {
        bench.receive(0, &ours, budget);
        let completions = bench.next(pieces);
        let before = all.len();
        for (index, completion) in completions.iter().enumerate() {
            let last = index == pieces - 1;
            assert!(matches!(completion, Completion::Received { more, .. } if *more != last));
            all.extend(bench.bytes(completion));
        }
        assert_eq!(all.len() - before, budget as usize);
        bench.silence();
    }
    // The budget covers exactly what is left: no further read is needed to know that it is used up.
    let calls = bench.engine.counters().snapshot().system_calls;
    bench.receive(0, &ours, 12);
    let completions = bench.next(2);
    assert_eq!(bench.engine.counters().snapshot().system_calls - calls, 2);
    all.extend(completions.iter().flat_map(|piece| bench.bytes(piece)));
    assert_eq!(all, pattern(40));
    // And afterwards the next bytes are an edge again.
    bench.receive(0, &ours, 100);
    bench.silence();
    theirs.write_all(b"!").unwrap();
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"!");
}

#[test]
fn bytes_before_the_first_receive_are_found() {
    let mut bench = Bench::new(4, 64);
    let (ours, mut theirs) = tcp_pair();
    theirs.write_all(b"early").unwrap();
    await_events(&ours, libc::POLLIN);
    bench.receive(0, &ours, 100);
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"early");
}

#[test]
fn bytes_between_two_receives_are_found() {
    let mut bench = Bench::new(4, 64);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 100);
    bench.silence();
    bench.cancel(connection(0), Kind::Receive);
    assert_eq!(ended(bench.one()), Received::Stopped);
    theirs.write_all(b"meanwhile").unwrap();
    await_events(&ours, libc::POLLIN);
    bench.silence();
    let free = bench.pool.free();
    assert_eq!(free, 4, "nothing is taken while nobody wants it");
    bench.receive(0, &ours, 100);
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"meanwhile");
}

#[test]
fn nothing_comes_after_a_cancel() {
    let mut bench = Bench::new(4, 64);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 100);
    theirs.write_all(b"bytes").unwrap();
    await_events(&ours, libc::POLLIN);
    // The edge has been seen, but what it told of was not yet read.
    bench.engine.wait(Some(PATIENCE), &mut bench.pool).unwrap();
    assert!(!bench.engine.may_sleep());
    bench.cancel(connection(0), Kind::Receive);
    assert_eq!(ended(bench.one()), Received::Stopped);
    bench.silence();
    bench.cancel(connection(0), Kind::Receive);
    bench.silence();
    assert_eq!(bench.engine.counters().snapshot().in_flight, 0);
}

#[test]
fn the_end_in_one_edge_with_bytes_is_found() {
    for tcp in [true, false] {
        let mut bench = Bench::new(4, 64);
        let (ours, mut theirs): (OwnedFd, Box<dyn Write>) = if tcp {
            let (ours, theirs) = tcp_pair();
            (ours.into(), Box::new(theirs))
        } else {
            let (ours, theirs) = unix_pair();
            (ours.into(), Box::new(theirs))
        };
        bench.receive(0, &ours, 100);
        bench.silence();
        theirs.write_all(b"last words").unwrap();
        drop(theirs);
        await_events(&ours, libc::POLLRDHUP);
        let mut completions = bench.next(2);
        assert_eq!(ended(completions.remove(1)), Received::End);
        assert_eq!(bench.bytes(&completions[0]), b"last words");
        assert_eq!(bench.pool.free(), 3);
    }
}

#[test]
fn the_end_after_the_bytes_were_read_is_found() {
    let mut bench = Bench::new(4, 64);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 100);
    theirs.write_all(b"bytes").unwrap();
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"bytes");
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(ended(bench.one()), Received::End);
    // The other direction goes on.
    bench.send(0, &ours, b"answer");
    assert_eq!(sent(bench.one()), Ok(6));
    let mut answer = [0; 6];
    theirs.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
}

#[test]
fn a_reset_is_an_error_behind_the_bytes() {
    let mut bench = Bench::new(4, 64);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 100);
    bench.silence();
    theirs.write_all(b"bytes").unwrap();
    linger_zero(&theirs);
    drop(theirs);
    await_events(&ours, libc::POLLERR);
    let mut completions = bench.next(2);
    assert_eq!(ended(completions.remove(1)), Received::Error(Errno::ECONNRESET));
    assert_eq!(bench.bytes(&completions[0]), b"bytes");
    bench.send(0, &ours, b"too late");
    assert_eq!(sent(bench.one()), Err(Errno::EPIPE));
}

/// A read stops before urgent data, and no edge follows for what is behind.
#[test]
fn urgent_data_hides_nothing() {
    let mut bench = Bench::new(8, 64);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 100);
    bench.silence();
    theirs.write_all(b"before").unwrap();
    // SAFETY: one readable byte.
    let count = unsafe { libc::send(theirs.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(count, 1);
    theirs.write_all(b"behind").unwrap();
    theirs.shutdown(std::net::Shutdown::Write).unwrap();
    await_events(&ours, libc::POLLRDHUP);
    assert_eq!(
        bench.receive_all(0),
        (b"beforebehind".to_vec(), Some(Received::End))
    );
}

#[test]
fn urgent_data_without_the_end_hides_nothing() {
    let mut bench = Bench::new(8, 64);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 12);
    bench.silence();
    theirs.write_all(b"before").unwrap();
    // SAFETY: one readable byte.
    let count = unsafe { libc::send(theirs.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(count, 1);
    theirs.write_all(b"behind").unwrap();
    await_events(&ours, libc::POLLPRI);
    assert_eq!(bench.receive_all(0), (b"beforebehind".to_vec(), None));
}

/// A read from a Unix socket stops behind a message with descriptors, and no edge follows for what is behind.
#[test]
fn descriptors_in_a_unix_stream_hide_nothing() {
    let mut bench = Bench::new(8, 64);
    let (ours, mut theirs) = unix_pair();
    bench.receive(0, &ours, 100);
    bench.silence();
    send_descriptor(&theirs, b"with", theirs.as_raw_fd());
    theirs.write_all(b"behind").unwrap();
    let pieces = bench.next(2);
    let bytes: Vec<u8> = pieces.iter().flat_map(|piece| bench.bytes(piece)).collect();
    assert_eq!(bytes, b"withbehind");
}

fn send_descriptor(socket: &UnixStream, bytes: &[u8], descriptor: RawFd) {
    let mut gather = Gather::new();
    gather.pieces.push(libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    });
    let mut control = [0u64; 4];
    let header = gather.seal();
    // SAFETY: the header is valid; the control buffer is aligned and larger than one message with one
    // descriptor needs.
    let count = unsafe {
        (*header).msg_control = control.as_mut_ptr().cast();
        (*header).msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as u32) as usize;
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
        libc::CMSG_DATA(message)
            .cast::<RawFd>()
            .write_unaligned(descriptor);
        libc::sendmsg(socket.as_raw_fd(), header, libc::MSG_NOSIGNAL)
    };
    assert_eq!(count, bytes.len() as isize);
}

#[test]
fn what_cannot_be_watched_is_an_error() {
    let mut bench = Bench::new(4, 64);
    let file = tempfile::tempfile().unwrap();
    bench.receive(0, &file, 100);
    assert_eq!(
        ended(bench.one()),
        Received::Error(Errno::from_io(&std::io::Error::from_raw_os_error(libc::ENOTSOCK)))
    );
}
