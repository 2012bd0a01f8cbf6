//! What a server reads of clients, for the fuzz targets. See [`quoit_corpus`].

pub use crate::http::fuzzing::{http_chunks, http_head, http_server};
pub use crate::rpc::fuzzing::rpc_server;

#[cfg(test)]
mod tests {
    quoit_corpus::replay!(http_chunks http_head http_server rpc_server);
}
