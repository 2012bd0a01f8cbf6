//! What a kernel's io_uring may have or lack, as a set that is probed and that can be switched off piece by
//! piece.

use std::fmt;
use std::str::FromStr;

macro_rules! features {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal, $kernel:literal, needs $needs:tt, $about:literal;)*) => {
        /// One feature of io_uring that the engine uses where the kernel has it, and does without elsewhere.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Feature {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Feature {
            /// All features, each after those that it needs.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used in messages, flags and configuration: lower case with hyphens.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it is for, in one line.
            #[must_use]
            pub const fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)* }
            }

            /// The first mainline kernel that has it. Distributions carry features back, so this is for
            /// messages only: whether a kernel has a feature is found by trying.
            #[must_use]
            pub const fn minimum_kernel(self) -> &'static str {
                match self { $(Self::$variant => $kernel,)* }
            }

            /// The feature that this one cannot be used without.
            #[must_use]
            pub const fn needs(self) -> Option<Self> {
                match self { $(Self::$variant => features!(@needs $needs),)* }
            }
        }
    };
    (@needs nothing) => { None };
    (@needs $feature:ident) => { Some(Self::$feature) };
}

features! {
    /// `IORING_SETUP_SUBMIT_ALL`.
    SubmitAll = "submit-all", "5.18", needs nothing,
        "an invalid submission fails alone and does not hold up those behind it";
    /// `IORING_SETUP_COOP_TASKRUN` with `TASKRUN_FLAG`; used where `DeferTaskrun` is not.
    CooperativeTaskrun = "cooperative-taskrun", "5.19", needs nothing,
        "completions wait for the next system call instead of interrupting the thread";
    /// `IORING_SETUP_SINGLE_ISSUER`.
    SingleIssuer = "single-issuer", "6.0", needs nothing,
        "the kernel relies on one thread submitting";
    /// `IORING_SETUP_DEFER_TASKRUN` with `TASKRUN_FLAG`.
    DeferTaskrun = "defer-taskrun", "6.1", needs SingleIssuer,
        "completions are handled in one batch when the loop enters the kernel";
    /// `IORING_SETUP_NO_SQARRAY`.
    NoSubmissionArray = "no-submission-array", "6.6", needs nothing,
        "submissions need no separate array of indices";
    /// `IORING_REGISTER_RING_FDS`.
    RegisteredRing = "registered-ring", "5.18", needs nothing,
        "a call that enters the ring need not look up its descriptor";
    /// `IOSQE_CQE_SKIP_SUCCESS`.
    CompletionSkip = "completion-skip", "5.17", needs nothing,
        "no completions for closes and cancellations that succeed";
    /// `IOSQE_CQE_SKIP_SUCCESS` on a send with `MSG_DONTWAIT`, which ends while it is submitted: that no completion
    /// tells of a failure is the success.
    AttemptedSend = "attempted-send", "5.17", needs CompletionSkip,
        "no completions for sends that succeed at once";
    /// `IORING_FEAT_NO_IOWAIT`.
    NoIowait = "no-iowait", "6.15", needs nothing,
        "waiting is not accounted as waiting for storage";
    /// `IORING_POLL_ADD_MULTI`.
    MultishotPoll = "multishot-poll", "5.13", needs nothing,
        "one submission watches for all wakes";
    /// `IORING_ACCEPT_MULTISHOT`.
    MultishotAccept = "multishot-accept", "5.19", needs nothing,
        "one submission accepts many connections";
    /// `IORING_REGISTER_PBUF_RING`.
    BufferRing = "buffer-ring", "5.19", needs nothing,
        "the kernel picks the receive buffer when data is there";
    /// `IORING_RECV_MULTISHOT`.
    MultishotReceive = "multishot-receive", "6.0", needs BufferRing,
        "one submission receives many times";
    /// `optlen` of a multishot receive. The receive that reaches it is not cut short, so it is passed by less
    /// than one buffer.
    ReceiveBudget = "receive-budget", "6.17", needs MultishotReceive,
        "a multishot receive that ends by itself after a number of bytes";
    /// `IORING_OP_SEND_ZC` and `SENDMSG_ZC` with `IORING_SEND_ZC_REPORT_USAGE`.
    ZeroCopySend = "zero-copy-send", "6.2", needs nothing,
        "sending from the user's memory without a copy; the kernel reports if it copied after all";
    /// `IORING_REGISTER_RESTRICTIONS`.
    RestrictedRing = "restricted-ring", "5.10", needs nothing,
        "the ring takes only the operations that the loop uses: no files, devices or registered memory";
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Feature {
    type Err = UnknownFeature;

    fn from_str(name: &str) -> Result<Self, UnknownFeature> {
        Self::ALL
            .iter()
            .copied()
            .find(|feature| feature.name() == name)
            .ok_or_else(|| UnknownFeature(name.to_owned()))
    }
}

/// A name that is no feature's. Its message lists the names that are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownFeature(String);

impl fmt::Display for UnknownFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a known feature of io_uring; known are ", self.0)?;
        for (index, feature) in Feature::ALL.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{feature}")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownFeature {}

/// A set of [`Feature`]s.
///
/// Written and parsed as names separated by commas.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FeatureSet(u32);

const _: () = assert!(Feature::ALL.len() <= u32::BITS as usize);

impl FeatureSet {
    /// None.
    pub const EMPTY: Self = Self(0);
    /// All.
    pub const ALL: Self = Self((1 << Feature::ALL.len()) - 1);
    /// What kernel 5.15 had, the oldest that is supported.
    pub const OLDEST: Self = Self::EMPTY
        .with(Feature::MultishotPoll)
        .with(Feature::RestrictedRing);

    /// The levels at which everything was run, each on kernels of its own, from the oldest to the newest
    /// (`docs/kernels.md`): what Linux 5.15 had, 6.1, 6.8 and 7.2. [`EngineChoice::Auto`](crate::EngineChoice::Auto)
    /// offers no other.
    pub const PROVEN: [Self; 4] = {
        let level_6_1 = Self::OLDEST
            .with(Feature::SubmitAll)
            .with(Feature::CooperativeTaskrun)
            .with(Feature::SingleIssuer)
            .with(Feature::DeferTaskrun)
            .with(Feature::RegisteredRing)
            .with(Feature::CompletionSkip)
            .with(Feature::AttemptedSend)
            .with(Feature::MultishotAccept)
            .with(Feature::BufferRing)
            .with(Feature::MultishotReceive)
            .with(Feature::ZeroCopySend);
        [
            Self::OLDEST,
            level_6_1,
            level_6_1.with(Feature::NoSubmissionArray),
            Self::ALL,
        ]
    };

    const fn with(self, feature: Feature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// Whether `feature` is in the set.
    #[must_use]
    pub const fn contains(self, feature: Feature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// Whether nothing is in the set.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds `feature`.
    pub const fn insert(&mut self, feature: Feature) {
        *self = self.with(feature);
    }

    /// Takes `feature` out.
    pub const fn remove(&mut self, feature: Feature) {
        self.0 &= !(1 << feature as u8);
    }

    /// What is in this set and not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// This set without the features that need another one which is not in it.
    #[must_use]
    pub fn usable(self) -> Self {
        let mut usable = self;
        // In this order a feature comes after what it needs, so one pass finds chains too.
        for feature in self.iter() {
            if feature.needs().is_some_and(|needed| !usable.contains(needed)) {
                usable.remove(feature);
            }
        }
        usable
    }

    /// The features in the set.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL
            .iter()
            .copied()
            .filter(move |&feature| self.contains(feature))
    }
}

impl FromIterator<Feature> for FeatureSet {
    fn from_iter<I: IntoIterator<Item = Feature>>(features: I) -> Self {
        features.into_iter().fold(Self::EMPTY, Self::with)
    }
}

impl Extend<Feature> for FeatureSet {
    fn extend<I: IntoIterator<Item = Feature>>(&mut self, features: I) {
        *self = features.into_iter().fold(*self, Self::with);
    }
}

impl FromStr for FeatureSet {
    type Err = UnknownFeature;

    /// Parses names separated by commas; spaces around them and empty ones do not matter.
    fn from_str(list: &str) -> Result<Self, UnknownFeature> {
        list.split(',')
            .map(str::trim)
            .filter(|name| !name.is_empty())
            .map(Feature::from_str)
            .collect()
    }
}

impl fmt::Display for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, feature) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{feature}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FeatureSet({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_feature_comes_after_what_it_needs() {
        for (index, feature) in Feature::ALL.iter().enumerate() {
            if let Some(needed) = feature.needs() {
                assert!(
                    Feature::ALL[..index].contains(&needed),
                    "{feature} before {needed}"
                );
            }
        }
    }

    #[test]
    fn what_needs_a_missing_feature_is_not_usable() {
        let mut set = FeatureSet::ALL;
        set.remove(Feature::SingleIssuer);
        set.remove(Feature::BufferRing);
        let usable = set.usable();
        for gone in [
            Feature::DeferTaskrun,
            Feature::MultishotReceive,
            Feature::ReceiveBudget,
        ] {
            assert!(!usable.contains(gone), "{gone}");
        }
        assert_eq!(usable.iter().count(), Feature::ALL.len() - 5);
        assert_eq!(FeatureSet::ALL.usable(), FeatureSet::ALL);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let message = "buffer-ring,warp-drive"
            .parse::<FeatureSet>()
            .unwrap_err()
            .to_string();
        assert!(message.contains("\"warp-drive\""), "{message}");
        for feature in Feature::ALL {
            assert!(message.contains(feature.name()), "{message}");
        }
    }

    #[test]
    fn spaces_and_empty_names_do_not_matter() {
        let set: FeatureSet = " buffer-ring, ,defer-taskrun,".parse().unwrap();
        let expected: FeatureSet = [Feature::DeferTaskrun, Feature::BufferRing].into_iter().collect();
        assert_eq!(set, expected);
        assert_eq!("".parse::<FeatureSet>().unwrap(), FeatureSet::EMPTY);
    }

    proptest! {
        #[test]
        fn a_set_is_parsed_from_what_it_writes(bits in 0..=FeatureSet::ALL.0) {
            let set = FeatureSet(bits);
            prop_assert_eq!(set.to_string().parse::<FeatureSet>().unwrap(), set);
            prop_assert_eq!(set.iter().collect::<FeatureSet>(), set);
            prop_assert_eq!(set.without(set), FeatureSet::EMPTY);
        }
    }
}
