//! What decodes bytes that others chose, one function for each decoder: they take any bytes, and panic where the
//! decoder does not keep its promises. The fuzz targets in `fuzz/` call them with what the fuzzer invents, and the
//! tests here with the files of its corpora.

mod dns_query;
mod pieces;
mod rpc_server;
#[cfg(test)]
mod tests;

pub use crate::lab::untrusted::{experiment, results};
pub use crate::load::untrusted::{http_reply, rpc_client};
pub use crate::rpc::untrusted::rpc_frames;
pub use crate::serve::http::untrusted::{http_chunks, http_head, http_server};
pub use dns_query::dns_query;
pub use rpc_server::rpc_server;

pub(crate) use pieces::cuttings;
