//! The list of distributions: `dist/distributions.toml`.

use serde::Deserialize;

/// The list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    #[serde(rename = "distribution")]
    pub(crate) distributions: Vec<Distribution>,
}

/// A root file system, and what is tried in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Distribution {
    pub(crate) name: String,
    pub(crate) title: String,
    /// What debootstrap is asked for.
    pub(crate) suite: Option<String>,
    /// Where from, unless debootstrap knows.
    pub(crate) mirror: Option<String>,
    /// Where from for another processor than x86-64, where that is another place.
    pub(crate) ports: Option<String>,
    /// Packages beside those that every one has.
    #[serde(default)]
    pub(crate) include: Vec<String>,
    /// How it is had, where nothing here makes it.
    pub(crate) by_hand: Option<String>,
    /// Another processor's programs, under QEMU.
    #[serde(default)]
    pub(crate) emulated: bool,
    pub(crate) packages: Vec<Kind>,
    pub(crate) note: Option<String>,
}

/// How a package is installed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Deb,
    Rpm,
    Archive,
    Musl,
}

impl Kind {
    /// As the list has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Deb => "deb",
            Self::Rpm => "rpm",
            Self::Archive => "archive",
            Self::Musl => "musl",
        }
    }
}

impl List {
    /// Reads it, and refuses what could not be carried out.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        let list: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        for distribution in &list.distributions {
            let ways = [
                distribution.suite.is_some(),
                distribution.by_hand.is_some(),
                distribution.emulated,
            ];
            if ways.iter().filter(|way| **way).count() != 1 {
                return Err(format!(
                    "{}: one of suite, by_hand and emulated says how it is had",
                    distribution.name
                ));
            }
        }
        Ok(list)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_read() {
        let list = List::read(include_str!("../../../../dist/distributions.toml")).unwrap();
        assert!(list.distributions.len() > 5);
    }

    #[test]
    fn one_that_cannot_be_had_is_refused() {
        let text = "[[distribution]]\nname = \"x\"\ntitle = \"X\"\npackages = [\"deb\"]\n";
        assert!(List::read(text).unwrap_err().contains("x: one of"));
        List::read(&format!("{text}suite = \"y\"\n")).unwrap();
        List::read(&format!("{text}suite = \"y\"\nemulated = true\n")).unwrap_err();
        List::read(&format!("{text}suite = \"y\"\nsuit = 1\n")).unwrap_err();
    }
}
