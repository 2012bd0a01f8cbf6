//! Waiting for more than the first completion.

use std::time::Instant;

use super::*;

/// An engine that gathers so, with a receive for each of so many sockets, all of which have something.
fn with_receives(gather: Duration, at_most: u32, sockets: u32, without: FeatureSet) -> Fixture {
    let settings = UringSettings {
        gather,
        gather_at_most: at_most,
        ..SETTINGS
    };
    let mut fixture = Fixture::new(&settings, 8, without);
    for slot in 0..sockets {
        let (near, mut far) = UnixStream::pair().unwrap();
        far.write_all(b"x").unwrap();
        fixture.receive(slot, &near, 1);
        // Receiving goes on with the descriptor that the kernel has taken, or finds what was written and the end.
        std::mem::forget((near, far));
    }
    fixture
}

/// Waits once; answers how many completions of the ring's there were, and how long it took.
fn wait(fixture: &mut Fixture, timeout: Option<Duration>) -> (u64, Duration) {
    let begun = Instant::now();
    fixture.engine.wait(timeout, &mut fixture.pool).unwrap();
    let waited = begun.elapsed();
    let mut completions = Completions::default();
    fixture.engine.reap(&mut fixture.pool, 100, &mut completions);
    (fixture.engine.counters().completions, waited)
}

#[test]
fn a_wait_goes_on_for_more_and_ends_with_what_came() {
    const GATHER: Duration = Duration::from_millis(10);
    for without in levels() {
        let mut fixture = with_receives(GATHER, 100, 1, without);
        let (count, waited) = wait(&mut fixture, TURN);
        assert!(count >= 1);
        assert!(waited >= GATHER, "{waited:?} without {without}");
        assert!(waited < TURN.unwrap(), "the first ends it then");
    }
}

#[test]
fn enough_completions_end_the_wait_at_once() {
    for without in levels() {
        let mut fixture = with_receives(TURN.unwrap(), 2, 2, without);
        let (count, waited) = wait(&mut fixture, TURN);
        assert!(count >= 2);
        assert!(waited < TURN.unwrap());
    }
}

#[test]
fn a_wait_does_not_gather_beyond_its_own_time() {
    const LIMIT: Duration = Duration::from_millis(10);
    for without in levels() {
        let mut fixture = with_receives(TURN.unwrap(), 2, 1, without);
        let (_, waited) = wait(&mut fixture, Some(LIMIT));
        assert!((LIMIT..TURN.unwrap()).contains(&waited), "{waited:?}");
    }
}
