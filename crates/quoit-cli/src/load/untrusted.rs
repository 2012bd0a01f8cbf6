//! What a load reads of servers. See [`crate::untrusted`].

pub use super::http::untrusted::http_reply;
pub use super::rpc::untrusted::rpc_client;
