//! The examples, as programs of their own on each engine, talked to by clients that have nothing of this crate.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod axum_rest;
mod axum_tls;
mod example;
mod http_client;
mod line_protocol;
mod quinn_echo;
mod reverse_proxy;
mod tls_client;
mod tonic_streaming;
mod websocket_chat;
