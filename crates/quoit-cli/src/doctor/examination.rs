//! What is found out.

use quoit::Capabilities;
use quoit::EngineKind;
use quoit::host::{Diagnosis, HostFacts};
use quoit::{Config, Feature, FeatureSet, Footprint, Loop, LoopIndex, StartError, try_uring};
use quoit_host::DescriptorLimit;
use serde::Serialize;

use super::distribution::Distribution;
use super::hints::{self, Setting};

/// The findings; the field names are those of the JSON object.
#[derive(Debug, Serialize)]
pub(super) struct Examination {
    pub(super) engine: &'static str,
    pub(super) reason: String,
    pub(super) uring: Uring,
    pub(super) kernel: Option<String>,
    pub(super) distribution: Distribution,
    pub(super) features: Vec<FeatureFinding>,
    pub(super) memory_a_loop: Memory,
    pub(super) loops_in_memlock: Option<u64>,
    pub(super) settings: Vec<Setting>,
}

/// Whether io_uring can be used.
#[derive(Debug, Serialize)]
pub(super) struct Uring {
    pub(super) usable: bool,
    pub(super) missing: Option<String>,
    pub(super) remedy: Option<String>,
}

/// One feature of io_uring.
#[derive(Debug, Serialize)]
pub(super) struct FeatureFinding {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) state: State,
    pub(super) reason: Option<String>,
    pub(super) minimum_kernel: &'static str,
    pub(super) by_option: Option<&'static str>,
}

/// Whether a feature is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum State {
    On,
    Off,
    /// Not tried, as io_uring is not usable.
    Unknown,
}

/// What one loop takes, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct Memory {
    pub(super) queues_bytes: u64,
    pub(super) buffer_ring_bytes: u64,
    pub(super) registered_pool_bytes: u64,
    pub(super) locked_bytes: u64,
    pub(super) receive_pool_bytes: u64,
    pub(super) send_memory_bytes: u64,
}

impl From<Footprint> for Memory {
    fn from(footprint: Footprint) -> Self {
        Self {
            queues_bytes: footprint.queues,
            buffer_ring_bytes: footprint.buffer_ring,
            registered_pool_bytes: footprint.registered_pool,
            locked_bytes: footprint.locked(),
            receive_pool_bytes: footprint.receive_pool,
            send_memory_bytes: footprint.send_memory,
        }
    }
}

impl Examination {
    /// Looks at this machine, for loops with `config`.
    ///
    /// # Errors
    /// Not even epoll can be used.
    pub(super) fn make(config: Config) -> Result<Self, StartError> {
        let facts = HostFacts::read();
        let uring = try_uring(&config);
        let quoit = Loop::new(LoopIndex::default(), config.clone())?;
        let (engine, reason) = (quoit.engine(), quoit.engine_reason().to_owned());
        // Its ring must not stand in the way of what the user starts next.
        drop(quoit);
        Ok(Self::of(&config, facts, uring, engine, reason))
    }

    /// The findings from what was tried and read.
    pub(super) fn of(
        config: &Config,
        facts: HostFacts,
        uring: Result<Capabilities, Diagnosis>,
        engine: EngineKind,
        reason: String,
    ) -> Self {
        let features = uring
            .as_ref()
            .map_or(FeatureSet::ALL, |capabilities| capabilities.features);
        let footprint = Footprint::of(config, features);
        let memlock = facts.memlock.and_then(|limit| limit.soft);
        let loops_in_memlock = memlock
            .filter(|_| facts.has_ipc_lock() != Some(true))
            .map(|bytes| bytes.saturating_sub(Footprint::PROBE) / footprint.locked());
        let usable = |capabilities: &Capabilities| -> Vec<_> {
            let all = Feature::ALL.iter().copied();
            all.filter(|&feature| capabilities.features.contains(feature))
                .map(Feature::name)
                .collect()
        };
        let usable = uring.as_ref().map(usable).unwrap_or_default();
        let release = facts.kernel_release.as_deref().unwrap_or_default();
        Self {
            engine: engine.name(),
            reason,
            distribution: Distribution::find(release, &usable),
            features: Feature::ALL
                .iter()
                .map(|&feature| FeatureFinding::of(feature, uring.as_ref().ok()))
                .collect(),
            settings: hints::settings(
                &facts,
                config,
                &footprint,
                loops_in_memlock,
                // Where it cannot be tried, the hard limit is what is known.
                DescriptorLimit::reachable().ok(),
            ),
            kernel: facts.kernel_release,
            memory_a_loop: footprint.into(),
            loops_in_memlock,
            uring: match uring {
                Ok(_) => Uring {
                    usable: true,
                    missing: None,
                    remedy: None,
                },
                Err(diagnosis) => Uring {
                    usable: false,
                    missing: Some(diagnosis.missing),
                    remedy: Some(diagnosis.remedy),
                },
            },
        }
    }
}

impl FeatureFinding {
    fn of(feature: Feature, capabilities: Option<&Capabilities>) -> Self {
        let (state, reason) = match capabilities {
            None => (State::Unknown, None),
            Some(found) if found.features.contains(feature) => (State::On, None),
            Some(found) => {
                let missing = found.missing.iter().find(|(missing, _)| *missing == feature);
                (State::Off, missing.map(|(_, why)| why.to_string()))
            }
        };
        Self {
            name: feature.name(),
            about: feature.about(),
            state,
            reason,
            minimum_kernel: feature.minimum_kernel(),
            by_option: (feature == Feature::ZeroCopySend).then_some("--zero-copy"),
        }
    }
}

#[cfg(test)]
mod tests {
    use quoit::Missing;
    use quoit::host::ResourceLimit;

    use super::*;

    fn facts() -> HostFacts {
        HostFacts {
            kernel_release: Some("6.1.0".into()),
            effective_capabilities: Some(0),
            memlock: Some(ResourceLimit {
                soft: Some(8 << 20),
                hard: Some(8 << 20),
            }),
            ..HostFacts::default()
        }
    }

    #[test]
    fn a_missing_feature_says_why() {
        let mut features = FeatureSet::ALL;
        features.remove(Feature::BufferRing);
        features.remove(Feature::MultishotReceive);
        let missing = vec![
            (Feature::BufferRing, Missing::NotListed),
            (Feature::MultishotReceive, Missing::Needs(Feature::BufferRing)),
        ];
        let found = Examination::of(
            &Config::default(),
            facts(),
            Ok(Capabilities { features, missing }),
            EngineKind::Uring,
            "io_uring is usable here".into(),
        );
        let feature = |name| {
            let found = found.features.iter().find(|feature| feature.name == name);
            found
                .map(|feature| (feature.state, feature.reason.as_deref()))
                .unwrap()
        };
        assert_eq!(feature("single-issuer"), (State::On, None));
        assert_eq!(
            feature("multishot-receive"),
            (State::Off, Some("needs buffer-ring"))
        );
        assert_eq!(found.memory_a_loop.buffer_ring_bytes, 0);
        let locked = found.memory_a_loop.locked_bytes;
        assert_eq!(
            found.loops_in_memlock,
            Some(((8 << 20) - Footprint::PROBE) / locked)
        );
    }

    #[test]
    fn who_may_lock_memory_has_no_limit_of_loops() {
        let facts = HostFacts {
            effective_capabilities: Some(u64::MAX),
            ..facts()
        };
        let found = Examination::of(
            &Config::default(),
            facts,
            Err(Diagnosis {
                missing: "no".into(),
                remedy: "yes".into(),
            }),
            EngineKind::Epoll,
            "no; yes".into(),
        );
        assert_eq!(found.loops_in_memlock, None);
        assert!(found.features.iter().all(|one| one.state == State::Unknown));
        assert_eq!(found.uring.remedy.as_deref(), Some("yes"));
    }
}
