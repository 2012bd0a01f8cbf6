use super::*;

#[test]
fn a_wake_ends_the_wait_every_time() {
    let mut bench = Bench::new(1, 64);
    for _ in 0..3 {
        assert!(bench.wake.prepare_sleep());
        bench.wake.wake();
        assert!(matches!(bench.one(), Completion::Woken));
        assert!(bench.wake.end_sleep());
        bench.silence();
    }
}

#[test]
fn a_turn_with_nothing_to_do_ends_at_its_time() {
    let mut bench = Bench::new(1, 64);
    assert!(bench.turn_for(Duration::from_millis(1)).is_empty());
    bench.engine.wait(Some(Duration::ZERO), &mut bench.pool).unwrap();
}

#[test]
fn a_wait_that_coalesces_lasts_its_time_and_no_longer_than_the_turn() {
    const TIME: Duration = Duration::from_millis(10);
    let settings = |coalesce| EpollSettings {
        coalesce,
        ..EpollSettings::default()
    };
    let received = |coalesce, on, timeout| {
        let mut bench = Bench::with(settings(coalesce), 1, 64);
        bench.engine.coalesce(on);
        let (ours, mut theirs) = tcp_pair();
        theirs.write_all(b"request").unwrap();
        await_events(&ours, libc::POLLIN);
        bench.receive(0, &ours, 7);
        let begun = Instant::now();
        let completions = bench.turn_for(timeout);
        (completions.len(), begun.elapsed())
    };
    let (count, waited) = received(TIME, true, PATIENCE);
    assert_eq!(count, 1);
    assert!((TIME..PATIENCE).contains(&waited), "{waited:?}");
    let (count, waited) = received(PATIENCE, true, TIME);
    assert_eq!(count, 1);
    assert!((TIME..PATIENCE).contains(&waited), "{waited:?}");
    let (count, waited) = received(PATIENCE, false, PATIENCE);
    assert_eq!(count, 1);
    assert!(waited < PATIENCE, "it does not coalesce");
}

#[test]
fn a_request_and_its_answer_cost_three_calls() {
    let mut bench = Bench::new(4, 64);
    let (ours, mut theirs) = tcp_pair();
    bench.receive(0, &ours, 1 << 30);
    bench.silence();
    for round in 0..10 {
        let before = bench.engine.counters().snapshot().system_calls;
        theirs.write_all(b"request").unwrap();
        await_events(&ours, libc::POLLIN);
        let completion = bench.one();
        assert_eq!(bench.bytes(&completion), b"request");
        bench.give_back();
        bench.send(0, &ours, b"answer");
        assert_eq!(sent(bench.one()), Ok(6));
        let calls = bench.engine.counters().snapshot().system_calls - before;
        assert_eq!(calls, 3, "one wait, one receive, one send (round {round})");
        let mut answer = [0; 6];
        theirs.read_exact(&mut answer).unwrap();
    }
}

/// A connection that always has more to read keeps its share of a turn, and no more.
#[test]
fn a_flood_does_not_keep_others_from_their_turn() {
    let mut bench = Bench::with(
        EpollSettings {
            receives_per_turn: 4,
            ..EpollSettings::default()
        },
        64,
        1024,
    );
    let (flooded, mut flood) = unix_pair();
    let (quiet, mut theirs) = tcp_pair();
    bench.receive(0, &flooded, u32::MAX);
    bench.receive(1, &quiet, 1 << 20);
    bench.silence();
    flood.set_nonblocking(true).unwrap();
    let bytes = pattern(1 << 16);
    let mut quiet_turns = 0;
    for round in 0..200 {
        while flood.write(&bytes).is_ok() {}
        if round % 10 == 5 {
            theirs.write_all(b"me too").unwrap();
            await_events(&quiet, libc::POLLIN);
            quiet_turns = 0;
        }
        quiet_turns += 1;
        let mut flooding = 0;
        for completion in bench.turn() {
            let bytes = bench.bytes(&completion);
            match completion {
                Completion::Received { connection, .. } if connection == Slot::new(1) => {
                    assert_eq!(bytes, b"me too");
                    assert!(quiet_turns <= 2, "waited {quiet_turns} turns");
                    quiet_turns = 0;
                }
                _ => flooding += 1,
            }
        }
        assert!((1..=4).contains(&flooding), "{flooding} reads in a turn");
        bench.give_back();
        assert!(round % 10 != 9 || quiet_turns < 10);
        if round % 10 == 8 {
            assert!(round < 5 || quiet_turns <= 3, "the quiet one was never heard");
        }
    }
}

#[test]
fn reaping_is_bounded_and_says_whether_more_is_there() {
    let mut bench = Bench::new(64, 64);
    let pairs: Vec<_> = (0..10).map(|_| tcp_pair()).collect();
    for (index, (ours, theirs)) in pairs.iter().enumerate() {
        (&*theirs).write_all(b"x").unwrap();
        await_events(ours, libc::POLLIN);
        bench.receive(index as u32, ours, 10);
    }
    bench.engine.wait(Some(PATIENCE), &mut bench.pool).unwrap();
    let mut completions = Completions::default();
    for expected in [4, 8] {
        assert!(bench.engine.reap(&mut bench.pool, 4, &mut completions));
        assert_eq!(completions.len(), expected);
    }
    assert!(!bench.engine.reap(&mut bench.pool, 4, &mut completions));
    assert_eq!(completions.len(), 10);
}

/// The socket of a slot lives on through a duplicate, and still reports: to nobody.
#[test]
fn events_of_a_slots_past_use_do_not_reach_the_present_one() {
    let mut bench = Bench::new(4, 64);
    let (past, mut past_peer) = tcp_pair();
    bench.receive(0, &past, 100);
    bench.silence();
    let _duplicate = past.try_clone().unwrap();
    bench.cancel(connection(0), Kind::Receive);
    bench.one();
    bench.close(connection(0), past);

    let (present, mut present_peer) = tcp_pair();
    bench.receive(0, &present, 100);
    bench.silence();
    past_peer.write_all(b"for the past").unwrap();
    await_events(&_duplicate, libc::POLLIN);
    let counters = bench.engine.counters().snapshot();
    bench.silence();
    let after = bench.engine.counters().snapshot();
    assert_eq!(
        after.system_calls - counters.system_calls,
        after.enters - counters.enters,
        "the present socket was not even tried"
    );
    present_peer.write_all(b"present").unwrap();
    let completion = bench.one();
    assert_eq!(bench.bytes(&completion), b"present");
}

/// A slot closed while its turn was still to come, and used again before that: the present use has one turn, its
/// own.
#[test]
fn a_turn_of_a_slots_past_use_is_skipped() {
    let mut bench = Bench::with(
        EpollSettings {
            receives_per_turn: 1,
            ..EpollSettings::default()
        },
        4,
        8,
    );
    let (past, mut past_peer) = tcp_pair();
    bench.receive(0, &past, 100);
    past_peer.write_all(b"for the past").unwrap();
    await_events(&past, libc::POLLIN);
    bench.engine.wait(Some(PATIENCE), &mut bench.pool).unwrap();
    bench.cancel(connection(0), Kind::Receive);
    let mut completions = Completions::default();
    // What has ended is told whatever the limit, and no socket has its turn.
    assert!(bench.engine.reap(&mut bench.pool, 0, &mut completions));
    assert_eq!(ended(completions.list.remove(0)), Received::Stopped);
    bench.close(connection(0), past);
    // So that the next wait asks the kernel although something seems to be at hand.
    bench.engine.wait(Some(Duration::ZERO), &mut bench.pool).unwrap();

    let (present, mut present_peer) = tcp_pair();
    present_peer.write_all(&pattern(20)).unwrap();
    await_events(&present, libc::POLLIN);
    bench.receive(0, &present, 100);
    let completions = bench.turn();
    assert_eq!(completions.len(), 1);
    assert_eq!(bench.bytes(&completions[0]), pattern(20)[..8]);
}

#[test]
fn quiescing_ends_everything() {
    let mut bench = Bench::new(4, 64);
    let (ours, _theirs) = tcp_pair();
    let (socket, _) = tcp_listener();
    bench.receive(0, &ours, 100);
    bench.accept(0, &socket, 1);
    bench.silence();
    assert!(bench.engine.quiesce(&mut bench.pool, PATIENCE, &|| Linux.now()));
    assert_eq!(bench.next(2).len(), 2);
    assert_eq!(bench.engine.counters().snapshot().in_flight, 0);
    let descriptor = ours.into_raw_fd();
    // SAFETY: just taken out of its owner.
    let owned = unsafe { <OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(descriptor) };
    bench.close(connection(0), owned);
}
