//! The HTTP/1.1 server of `quoit serve http`, as logic without input or output of its own.
//!
//! A driver owns the sockets, the buffers and the clock. For every connection it keeps one
//! [`HttpConnection`], hands it the bytes that arrived and sends the bytes that it appends; everything that
//! the connections of one loop share is in one [`Environment`]. Nothing here blocks, reads a clock or makes
//! a system call, so the same input always gives the same output, however it was cut into pieces.
//!
//! The messages are those of RFC 9112 (HTTP/1.1) and RFC 9110 (semantics), read strictly: where the RFCs
//! let a recipient choose between repair and refusal, this server refuses with 400 and closes, because two
//! programs that repair differently are what request smuggling lives on.
//!
//! | Path         | Methods   | Answer                                                                  |
//! |--------------|-----------|-------------------------------------------------------------------------|
//! | `/plaintext` | GET, HEAD | `Hello, World!`, as TechEmpower's plaintext test defines it              |
//! | `/json`      | GET, HEAD | `{"message":"Hello, World!"}`, serialised for every request              |
//! | `/bytes/N`   | GET, HEAD | N bytes, the byte at position p being p mod 251; N up to 2^63 - 1        |
//! | `/echo`      | POST      | the request's body, streamed, framed as the request framed it            |
//! | `/metrics`   | GET, HEAD | the text that the environment's metrics writer supplies                  |
//! | `/healthz`   | GET, HEAD | `ok`, or 503 and `draining` while the loop that answers drains           |
//! | `/readyz`    | GET, HEAD | `ok`, or 503 and `draining` from the signal on                           |
//! | `/livez`     | GET, HEAD | `ok`, or 503 and which loop stands still                                 |
//!
//! Query strings are ignored and percent-encoding is not decoded. Every error response closes the
//! connection; so does a response whose request asked for it, and every response while draining.

mod body;
mod connection;
mod environment;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod head;
mod method;
mod pattern;
mod respond;
mod routes;
mod target;

#[cfg(test)]
mod course_tests;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod tests;

pub(crate) use connection::{HttpConnection, Next, Phase};
pub(crate) use environment::{Environment, HttpConfig, Observed};

/// Longest request head, in bytes, from the method to the empty line that ends it. Past it: 414 when not
/// even the request line has ended, else 431. Twice what common servers allow, and what one connection may
/// make this server keep.
pub(crate) const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Most header fields in a head. Past it: 431.
pub(crate) const MAX_FIELDS: usize = 64;

/// Longest request target, in bytes. Past it: 414. RFC 9112, section 3, asks for 8,000 at least.
pub(crate) const MAX_TARGET_BYTES: usize = 8 * 1024;

/// Most bytes of chunk extensions in one body, all chunks together. Past it: 400. Extensions are ignored,
/// and a client that pads tiny chunks with long ones makes the server work for nothing.
pub(crate) const MAX_CHUNK_EXTENSION_BYTES: u32 = 4 * 1024;

/// Most bytes of trailer fields after a chunked body, which are checked and discarded. Past it: 431.
pub(crate) const MAX_TRAILER_BYTES: u32 = 8 * 1024;

/// Largest body read and discarded on a route that takes none. Past it: 413.
pub(crate) const MAX_DISCARDED_BODY_BYTES: u64 = 64 * 1024;

/// Default of [`HttpConfig::max_echo_body_bytes`]: 16 GiB. The body is streamed and costs no memory; the
/// limit only keeps one request from holding its connection for ever.
pub(crate) const DEFAULT_MAX_ECHO_BODY_BYTES: u64 = 16 * 1024 * 1024 * 1024;
