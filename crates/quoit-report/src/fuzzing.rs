//! What is read of files of results, for the fuzz targets. See [`quoit_corpus`].

pub use crate::compare::fuzzing::results;

#[cfg(test)]
mod tests {
    quoit_corpus::replay!(results);
}
