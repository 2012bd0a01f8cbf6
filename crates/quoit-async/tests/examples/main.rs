//! The examples, as programs of their own on each engine, talked to by clients that have nothing of this crate.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod axum_rest;
mod axum_restart;
#[cfg(feature = "examples")]
mod axum_tls;
mod example;
mod http_client;
mod line_protocol;
#[path = "../support/nobody.rs"]
mod nobody;
#[cfg(feature = "examples")]
mod quinn_echo;
mod reverse_proxy;
#[cfg(feature = "examples")]
mod tls_client;
#[cfg(feature = "examples")]
mod tonic_streaming;
#[cfg(feature = "examples")]
mod websocket_chat;
