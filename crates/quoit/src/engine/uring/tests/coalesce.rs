//! When a wait ends: for more than the first completion, and as late as the thread allows.

use super::*;
use std::os::fd::FromRawFd;

/// What came of a wait.
struct Waited {
    /// The ring's completions.
    count: u64,
    time: Duration,
    /// Whether the kernel coalesces (`IORING_FEAT_MIN_TIMEOUT`), also with something there from the start. Where it cannot,
    /// the engine sleeps first, but not if something is there: and the receives here complete as they are submitted.
    coalesces: bool,
}

/// Waits once, with an engine that coalesces so and a receive for each of so many sockets, all of which have something.
fn wait(
    (coalesce, at_most): (Duration, u32),
    sockets: u32,
    without: FeatureSet,
    timeout: Option<Duration>,
) -> Waited {
    let settings = UringSettings {
        coalesce,
        coalesce_at_most: at_most,
        ..SETTINGS
    };
    let mut fixture = Fixture::new(&settings, 8, without);
    let pairs: Vec<_> = (0..sockets).map(|_| UnixStream::pair().unwrap()).collect();
    for (slot, (near, mut far)) in (0..).zip(pairs.iter().map(|(near, far)| (near, far))) {
        far.write_all(b"x").unwrap();
        fixture.receive(slot, near, 1);
    }
    let begun = Instant::now();
    fixture.engine.wait(timeout, &mut fixture.pool).unwrap();
    let time = begun.elapsed();
    let mut completions = Completions::default();
    fixture.engine.reap(&mut fixture.pool, 100, &mut completions);
    let count = fixture.engine.counters().snapshot().completions;
    fixture.quiesce();
    Waited {
        count,
        time,
        coalesces: fixture.engine.waits.sleep_before.is_zero(),
    }
}

#[test]
fn a_wait_goes_on_for_more_and_ends_with_what_came() {
    const TIME: Duration = Duration::from_millis(10);
    for without in levels() {
        let waited = wait((TIME, 100), 1, without, TURN);
        assert!(waited.count >= 1);
        assert!(
            waited.time >= TIME || !waited.coalesces,
            "{:?} without {without}",
            waited.time
        );
        assert!(waited.time < PATIENCE, "the first ends it then");
    }
}

#[test]
fn enough_completions_end_the_wait_at_once() {
    for without in levels() {
        let waited = wait((PATIENCE, 2), 2, without, TURN);
        assert!(waited.count >= 2);
        assert!(waited.time < PATIENCE);
    }
}

#[test]
fn a_wait_does_not_coalesce_beyond_its_own_time() {
    const LIMIT: Duration = Duration::from_millis(10);
    for without in levels() {
        let waited = wait((PATIENCE, 2), 1, without, Some(LIMIT));
        assert!(waited.time < PATIENCE, "{:?}", waited.time);
        assert!(waited.time >= LIMIT || !waited.coalesces, "{:?}", waited.time);
    }
}

/// A descriptor that becomes readable after this time, once (`timerfd_create(2)`).
fn alarm(after: Duration) -> OwnedFd {
    // SAFETY: no memory is passed.
    let made = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    // SAFETY: made just now, and owned by nobody else.
    let alarm = unsafe { OwnedFd::from_raw_fd(Errno::check(made).unwrap()) };
    // SAFETY: a structure of integers, for which all zeroes is a valid value.
    let mut time: libc::itimerspec = unsafe { std::mem::zeroed() };
    time.it_value.tv_nsec = i64::from(after.subsec_nanos());
    // SAFETY: the time is read during the call, and nothing is written.
    let set = unsafe { libc::timerfd_settime(alarm.as_raw_fd(), 0, &raw const time, std::ptr::null_mut()) };
    Errno::check(set).unwrap();
    alarm
}

#[test]
fn a_wait_without_a_limit_ends_with_what_comes_however_long_that_takes() {
    let settings = UringSettings {
        coalesce: Duration::from_millis(1),
        coalesce_at_most: 100,
        ..SETTINGS
    };
    for without in levels() {
        let alarm = alarm(Duration::from_millis(20));
        let wake = Arc::new(Wake::new().unwrap());
        let mut fixture: Fixture = Fixture::woken_by(alarm.as_raw_fd(), wake, &settings, 8, without);
        fixture.engine.wait(None, &mut fixture.pool).unwrap();
        let mut completions = Completions::default();
        fixture.engine.reap(&mut fixture.pool, 1, &mut completions);
        assert_eq!(completions.len(), 1, "it ended with nothing, without {without}");
        fixture.finish();
    }
}

/// Of which a wait for two would never have enough.
#[test]
fn a_queue_of_one_completion_coalesces_none() {
    let settings = UringSettings {
        submission_entries: 1,
        completion_entries: 1,
        coalesce: Duration::from_millis(1),
        coalesce_at_most: 100,
        ..SETTINGS
    };
    for without in levels() {
        let mut fixture = Fixture::new(&settings, 8, without);
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"x").unwrap();
        fixture.receive(0, &near, 1);
        assert!(matches!(fixture.next(), Completion::Received { .. }));
        fixture.quiesce();
    }
}

#[test]
fn a_wait_ends_as_late_as_the_threads_slack_allows() {
    const LIMIT: Duration = Duration::from_millis(1);
    const SLACK: Duration = Duration::from_millis(20);
    // The slack is the thread's, and this one is the test's alone.
    // SAFETY: no memory is passed.
    let set = unsafe {
        libc::prctl(
            libc::PR_SET_TIMERSLACK,
            SLACK.as_nanos() as libc::c_ulong,
            0,
            0,
            0,
        )
    };
    assert_eq!(set, 0);
    for without in levels() {
        let waited = wait((Duration::ZERO, 1), 0, without, Some(LIMIT));
        assert_eq!(waited.count, 0);
        assert!(
            waited.time >= LIMIT + SLACK,
            "{:?} without {without}",
            waited.time
        );
    }
}

/// For more it would wait until the test loses its patience.
#[test]
fn a_wait_ends_with_the_first_completion_while_coalescing_is_off() {
    let settings = UringSettings {
        coalesce: PATIENCE,
        coalesce_at_most: 100,
        ..SETTINGS
    };
    for without in levels() {
        let mut fixture = Fixture::new(&settings, 8, without);
        fixture.engine.coalesce(false);
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"x").unwrap();
        fixture.receive(0, &near, 1);
        let begun = Instant::now();
        assert!(matches!(fixture.next(), Completion::Received { .. }));
        assert!(begun.elapsed() < PATIENCE, "without {without}");
        fixture.quiesce();
    }
}
