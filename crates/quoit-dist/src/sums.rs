//! `SHA256SUMS`: every file of the output, as `sha256sum --check` reads it.

use crate::image::hex;
use crate::place::{self, Place};

/// The name of the file.
pub(crate) const NAME: &str = "SHA256SUMS";

/// The files of the output, sorted.
pub(crate) fn files(place: &Place) -> Result<Vec<String>, String> {
    let out = place.out();
    let entries = std::fs::read_dir(&out)
        .map_err(|error| format!("{}: {error}; run make dist first", out.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| error.to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name != NAME && entry.path().is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Writes it.
pub(crate) fn write(place: &Place) -> Result<(), String> {
    let mut text = String::new();
    for name in files(place)? {
        let digest = hex(&place::bytes(&place.out().join(&name))?);
        text.push_str(&format!("{digest}  {name}\n"));
    }
    place::write(&place.out().join(NAME), text)
}

/// What two lists say differently, as one line for each file.
pub(crate) fn differences(one: &str, other: &str) -> Vec<String> {
    let read = |text: &str| -> std::collections::BTreeMap<String, String> {
        text.lines()
            .filter_map(|line| line.split_once("  "))
            .map(|(digest, name)| (name.to_owned(), digest.to_owned()))
            .collect()
    };
    let (one, other) = (read(one), read(other));
    let mut names: Vec<_> = one.keys().chain(other.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter_map(|name| match (one.get(name), other.get(name)) {
            (Some(first), Some(second)) if first == second => None,
            (Some(_), Some(_)) => Some(format!("{name} differs")),
            _ => Some(format!("{name} was made once only")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::differences;

    #[test]
    fn lists_are_compared_by_name() {
        let one = "aa  x.deb\nbb  y.deb\ncc  z.deb\n";
        assert!(differences(one, one).is_empty());
        let other = "bb  y.deb\naa  x.deb\ndd  z.deb\nee  new.deb\n";
        assert_eq!(
            differences(one, other),
            ["new.deb was made once only", "z.deb differs"]
        );
    }
}
