//! What both ends read of each other, for the fuzz targets. See [`quoit_corpus`].

pub use crate::dns::fuzzing::dns_query;
pub use crate::rpc::fuzzing::rpc_frames;

#[cfg(test)]
mod tests {
    quoit_corpus::replay!(dns_query rpc_frames);
}
