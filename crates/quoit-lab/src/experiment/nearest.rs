//! The name that was probably meant.

/// `; did you mean ...?` with the name that is nearest to what was written, if one is near.
pub(super) fn nearest<'n>(written: &str, known: impl Iterator<Item = &'n str>) -> String {
    let distances = known.map(|name| (strsim::damerau_levenshtein(written, name), name));
    match distances.min() {
        Some((distance, name)) if distance <= 1 + written.chars().count() / 4 => {
            format!("; did you mean `{name}`?")
        }
        _ => String::new(),
    }
}
