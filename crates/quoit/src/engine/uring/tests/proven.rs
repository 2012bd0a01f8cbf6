//! What `Auto` offers of what was found.

use proptest::prelude::*;

use super::*;

fn with(features: FeatureSet) -> Capabilities {
    Capabilities {
        features,
        missing: Vec::new(),
    }
}

#[test]
fn a_level_that_was_proven_is_offered_whole() {
    for level in FeatureSet::PROVEN {
        let offered = with(level).proven(FeatureSet::EMPTY).unwrap();
        assert_eq!((offered.features, offered.missing), (level, vec![]));
    }
}

/// As in Linux 5.19, which no distribution keeps: buffer rings, but no multishot receive.
#[test]
fn what_was_never_tried_together_is_left_out_and_said() {
    let mut found = FeatureSet::OLDEST;
    found.insert(Feature::BufferRing);
    let offered = with(found).proven(FeatureSet::EMPTY).unwrap();
    assert_eq!(offered.features, FeatureSet::OLDEST);
    assert_eq!(offered.missing, [(Feature::BufferRing, Missing::Unproven)]);
    assert!(
        offered.missing[0]
            .1
            .to_string()
            .contains("if io_uring is required")
    );
}

/// Linux 5.11, before multishot polls.
#[test]
fn less_than_the_oldest_level_is_not_offered() {
    assert!(with(FeatureSet::EMPTY).proven(FeatureSet::EMPTY).is_none());
}

#[test]
fn who_switches_features_off_gets_the_others() {
    let without: FeatureSet = [Feature::BufferRing, Feature::MultishotPoll]
        .into_iter()
        .collect();
    let found = FeatureSet::ALL.without(without).usable();
    let offered = with(found).proven(without);
    // What needs a feature that is switched off is no surplus, and nothing else is lost.
    assert_eq!(offered.unwrap().features, found);
}

proptest! {
    #[test]
    fn what_is_offered_is_there_and_was_proven(found: Vec<prop::sample::Index>) {
        let found: FeatureSet = found.iter().map(|index| *index.get(Feature::ALL)).collect();
        let Some(offered) = with(found).proven(FeatureSet::EMPTY) else {
            prop_assert!(!found.contains(Feature::MultishotPoll));
            return Ok(());
        };
        prop_assert!(offered.features.without(found).is_empty());
        let mut there = offered.features;
        there.insert(Feature::DeferTaskrun);
        there.insert(Feature::CooperativeTaskrun);
        there.insert(Feature::RestrictedRing);
        let proven = FeatureSet::PROVEN.into_iter().any(|mut level| {
            level.insert(Feature::DeferTaskrun);
            level.insert(Feature::CooperativeTaskrun);
            level.insert(Feature::RestrictedRing);
            level == there
        });
        prop_assert!(proven, "{}", offered.features);
        prop_assert_eq!(offered.missing.len(), found.without(offered.features).iter().count());
    }
}
