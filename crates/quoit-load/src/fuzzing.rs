//! What a load reads of servers, for the fuzz targets. See [`quoit_corpus`].

pub use crate::http::fuzzing::http_reply;
pub use crate::rpc::fuzzing::rpc_client;

#[cfg(test)]
mod tests {
    quoit_corpus::replay!(http_reply rpc_client);
}
