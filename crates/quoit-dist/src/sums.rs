//! `SHA256SUMS`: every file of the output, as `sha256sum --check` reads it.

use std::path::Path;

use crate::image::hex;
use crate::place::{self, Place};

/// The name of the file.
pub(crate) const NAME: &str = "SHA256SUMS";

/// The files of the output and of the folders in it, sorted.
pub(crate) fn files(place: &Place) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    collect(&place.out(), "", &mut names).map_err(|error| format!("{error}; run make dist first"))?;
    names.retain(|name| name != NAME);
    names.sort();
    Ok(names)
}

fn collect(folder: &Path, before: &str, names: &mut Vec<String>) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = format!("{before}{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            collect(&entry.path(), &format!("{name}/"), names)?;
        } else {
            names.push(name);
        }
    }
    Ok(())
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
