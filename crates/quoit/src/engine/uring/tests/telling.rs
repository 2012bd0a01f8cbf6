//! Rings that do not tell of what happens elsewhere, as some kernels' do not.

use std::cell::Cell;

use super::super::telling::try_telling;
use super::reluctant::Reluctant;
use super::*;

thread_local! {
    /// The rings of this test register their eventfd with nobody.
    static MUTE: Cell<bool> = const { Cell::new(false) };
    /// With one of these a ring of this test tells of nothing, if there are any.
    static UNTOLD_WITH: Cell<FeatureSet> = const { Cell::new(FeatureSet::EMPTY) };
    static TRIED: Cell<u32> = const { Cell::new(0) };
}

pub(super) fn notify(ring: &mut Ring, eventfd: RawFd) -> Result<(), Errno> {
    if MUTE.get() { Ok(()) } else { ring.notify(eventfd) }
}

pub(super) fn told(features: FeatureSet, telling: Telling) -> Result<(), Errno> {
    if UNTOLD_WITH.get().is_empty() {
        return Ring::try_telling(features, telling);
    }
    TRIED.set(TRIED.get() + 1);
    if features.intersection(UNTOLD_WITH.get()).is_empty() {
        Ok(())
    } else {
        Err(Errno::ETIME)
    }
}

fn without(features: &[Feature]) -> FeatureSet {
    FeatureSet::ALL.without(features.iter().copied().collect())
}

/// The kernel here tells, in every way that a loop may ask for.
#[test]
fn this_kernel_tells() {
    let Some(found) = found() else {
        return;
    };
    let cooperative = [Feature::DeferTaskrun];
    let plain = [Feature::DeferTaskrun, Feature::CooperativeTaskrun];
    for features in [without(&cooperative), without(&plain), FeatureSet::OLDEST] {
        let features = features.intersection(found);
        for telling in [Telling::Wakes, Telling::Completions] {
            assert_eq!(
                Ring::try_telling(features, telling),
                Ok(()),
                "{features} {telling:?}"
            );
        }
    }
}

/// A ring whose eventfd is registered with nobody is found out, in bounded time.
#[test]
fn a_ring_that_tells_nobody_is_found_out() {
    if found().is_none() {
        return;
    }
    MUTE.set(true);
    let result = try_telling::<Reluctant>(FeatureSet::EMPTY, Telling::Completions);
    assert_eq!(result, Err(Errno::ETIME));
    let result = try_telling::<Reluctant>(FeatureSet::EMPTY, Telling::Wakes);
    assert_eq!(result, Ok(()), "the loop waits in the ring itself");
}

/// What keeps a loop from being told is left out, and named with the reason; where nothing helps, there is no ring.
#[test]
fn what_keeps_a_loop_from_being_told_is_left_out() {
    if !has(Feature::CooperativeTaskrun) {
        return;
    }
    UNTOLD_WITH.set([Feature::CooperativeTaskrun].into_iter().collect());
    let found = probe::<Reluctant>(FeatureSet::EMPTY, true).unwrap();
    assert!(!found.features.contains(Feature::CooperativeTaskrun));
    let reason = Missing::Untold(Telling::Wakes);
    assert!(found.missing.contains(&(Feature::CooperativeTaskrun, reason)));
    assert_eq!(TRIED.get(), 3, "wakes with it and without it, and completions");

    UNTOLD_WITH.set(FeatureSet::ALL);
    let error = probe::<Reluctant>(FeatureSet::EMPTY, true).unwrap_err();
    assert_eq!(
        (error.step, error.errno),
        (Step::Telling(Telling::Wakes), Errno::ETIME)
    );
}

/// The notifier of an engine is registered before anything is submitted, and nothing of its ring's work is put off.
#[test]
fn an_engine_for_a_poller_notifies_from_the_start() {
    if found().is_none() {
        return;
    }
    let wake = Arc::new(Wake::new().unwrap());
    let notifier = wake.notifier().unwrap();
    let settings = UringSettings {
        notifier: Some(notifier),
        ..SETTINGS
    };
    let capabilities = probe::<Ring>(FeatureSet::EMPTY, true).unwrap();
    let mut pool = Pool::new(8, SLOT_SIZE, 0, wake).unwrap();
    let engine = UringEngine::<Ring, _>::new(&settings, &capabilities, Linux, &mut pool).unwrap();
    assert_eq!(engine.poll_descriptor(), Some(PollDescriptor::Notifier(notifier)));
    let engine = UringEngine::<Ring, _>::new(&SETTINGS, &capabilities, Linux, &mut pool).unwrap();
    assert_eq!(engine.poll_descriptor(), None);
}
