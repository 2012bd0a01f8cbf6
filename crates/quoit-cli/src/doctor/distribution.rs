//! Whose kernel this is, and what the next one would bring: from what `make kernels` has kept.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// `lab/kernels/results.json`, of which `docs/kernels.md` is made.
const KEPT: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../lab/kernels/results.json"
));

/// What is known of kernels like this one.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Distribution {
    /// The distributions whose kernels of this version were tried.
    pub(super) tried_on: Vec<String>,
    /// The next one that has more.
    pub(super) next: Option<Next>,
}

/// A newer kernel.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Next {
    /// Whose.
    pub(super) distribution: String,
    /// Its version, such as `6.12`.
    pub(super) kernel: String,
    /// The features of io_uring that it has and this one has not.
    pub(super) brings: Vec<String>,
}

#[derive(Deserialize)]
struct Kept {
    kernels: BTreeMap<String, Kernel>,
}

#[derive(Deserialize)]
struct Kernel {
    title: String,
    release: String,
    doctor: Option<Doctor>,
}

#[derive(Deserialize)]
struct Doctor {
    features: Vec<Feature>,
}

#[derive(Deserialize)]
struct Feature {
    name: String,
    state: String,
}

impl Kernel {
    fn usable(&self) -> impl Iterator<Item = &str> {
        let features = self.doctor.iter().flat_map(|doctor| &doctor.features);
        features
            .filter(|feature| feature.state == "on")
            .map(|feature| feature.name.as_str())
    }
}

/// `(6, 12)` of `6.12.118+deb13-cloud-amd64`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|character: char| !character.is_ascii_digit())
        .map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

impl Distribution {
    /// Of the kernel with this release, where these features are usable: none, if io_uring is not.
    pub(super) fn find(release: &str, usable: &[&str]) -> Self {
        Self::find_in(KEPT, release, usable)
    }

    fn find_in(kept: &str, release: &str, usable: &[&str]) -> Self {
        let kept: Kept = serde_json::from_str(kept).expect("it is part of this program, and a test reads it");
        let Some(here) = version(release) else {
            return Self::default();
        };
        let mut kernels: Vec<_> = kept.kernels.into_values().collect();
        kernels.sort_by_key(|kernel| version(&kernel.release));
        let same: Vec<_> = kernels
            .iter()
            .filter(|kernel| version(&kernel.release) == Some(here))
            .collect();
        // What the kernel has is no reason for a newer one where it is only denied.
        let has = |name: &str| {
            usable.contains(&name) || same.iter().any(|kernel| kernel.usable().any(|one| one == name))
        };
        let next = kernels
            .iter()
            .filter(|kernel| version(&kernel.release) > Some(here))
            .map(|kernel| Next {
                distribution: kernel.title.clone(),
                kernel: version(&kernel.release)
                    .map_or_else(String::new, |(major, minor)| format!("{major}.{minor}")),
                brings: kernel
                    .usable()
                    .filter(|name| !has(name))
                    .map(str::to_owned)
                    .collect(),
            })
            .find(|next| !next.brings.is_empty());
        let known = !usable.is_empty() || !same.is_empty();
        Self {
            tried_on: same.iter().map(|kernel| kernel.title.clone()).collect(),
            next: next.filter(|_| known),
        }
    }

    /// One line, if there is anything to say.
    pub(super) fn line(&self) -> Option<String> {
        let tried = match self.tried_on.as_slice() {
            [] => return None,
            names => format!(
                "this version was tried as the kernel of {}",
                names.join(" and of ")
            ),
        };
        Some(match &self.next {
            None => format!("{tried}; no newer kernel that was tried brings more"),
            Some(next) => format!(
                "{tried}; the next kernel with more is {} of {}: {}",
                next.kernel,
                next.distribution,
                next.brings.join(", ")
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use quoit::FeatureSet;

    use super::*;

    const TWO: &str = r#"{"kernels": {
        "b": {"title": "B 2", "release": "6.1.0-56-cloud-amd64", "doctor": {"features": [
            {"name": "x", "state": "on"}, {"name": "y", "state": "on"}, {"name": "z", "state": "off"}]}},
        "a": {"title": "A 1", "release": "5.4.0-216-generic", "doctor": {"features": [{"name": "x", "state": "unknown"}]}}
    }}"#;

    fn brings(release: &str, usable: &[&str]) -> Option<Vec<String>> {
        Distribution::find_in(TWO, release, usable)
            .next
            .map(|next| next.brings)
    }

    #[test]
    fn what_was_kept_can_be_read() {
        let newest = Distribution::find("6.12.9", &["submit-all"]);
        assert!(newest.line().is_some() || newest.tried_on.is_empty());
    }

    /// What `Auto` takes for proven is what was run: each level is some kernel's, and each kernel has one of them.
    #[test]
    fn the_proven_levels_are_those_of_the_kernels() {
        let kept: Kept = serde_json::from_str(KEPT).expect("it is ours");
        let set = |kernel: &Kernel| {
            kernel
                .usable()
                .collect::<Vec<_>>()
                .join(",")
                .parse::<FeatureSet>()
        };
        let found: Vec<_> = kept
            .kernels
            .values()
            .map(|kernel| set(kernel).expect("names of features"))
            .filter(|features| !features.is_empty())
            .collect();
        for level in FeatureSet::PROVEN {
            assert!(found.contains(&level), "no kernel has just {level}");
        }
        for features in found {
            assert!(
                FeatureSet::PROVEN.contains(&features),
                "{features} is no proven level"
            );
        }
    }

    #[test]
    fn the_next_kernel_is_named_with_what_it_brings() {
        let old = Distribution::find_in(TWO, "5.4.99", &[]);
        assert_eq!(
            old.line().expect("it was tried"),
            "this version was tried as the kernel of A 1; the next kernel with more is 6.1 of B 2: x, y"
        );
        assert_eq!(brings("5.15.0", &["x"]), Some(vec!["y".to_owned()]));
        let newest = Distribution::find_in(TWO, "6.1.7", &["x", "y"]);
        assert!(newest.line().expect("it was tried").ends_with("brings more"));
    }

    #[test]
    fn what_is_only_denied_is_no_reason_for_a_newer_kernel() {
        assert_eq!(brings("6.1.0", &[]), None);
        assert_eq!(brings("5.15.0", &[]), None, "nothing is known of what it has");
        assert_eq!(brings("unknown", &[]), None);
    }
}
