//! What the lab reads of files of experiments, for the fuzz targets. See [`quoit_corpus`].

pub use crate::experiment::fuzzing::experiment;

#[cfg(test)]
mod tests {
    quoit_corpus::replay!(experiment);
}
