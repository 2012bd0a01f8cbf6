//! How hyper's servers and clients behave: over `tokio::net` first, then over ours, both engines, one loop per thread and loops
//! beside a runtime. The other side is a plain socket wherever single bytes matter.
//!
//! hyper is compiled for one type of stream, which has a socket of either kind in it.
#![allow(clippy::unwrap_used, reason = "a test fails by it")]

mod client;
mod client_ends;
mod clock;
mod frames;
mod http2;
mod net;
mod parts;
mod server;
mod server_ends;
#[path = "../support/mod.rs"]
mod support;
mod upgrades;

/// A scenario: the same code over the sockets of tokio and over ours.
macro_rules! behaviour {
    ($(#[$doc:meta])* fn $name:ident($says:ident, $net:ident) $body:block) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            async fn run($says: $crate::support::Says, $net: $crate::net::Net) $body

            $crate::support::compare(
                concat!(module_path!(), "::", stringify!($name)),
                $crate::support::config,
                |says| Box::pin(run(says, $crate::net::Net::Stock)),
                |says| Box::pin(run(says, $crate::net::Net::Ours)),
            );
        }
    };
}
use behaviour;
