//! The siege (`make siege`): real servers on both engines, the program's own and one of each door's, each among many peers
//! of one kind that do what keeps others from being served, and beside them a client that behaves. Each of its requests
//! must be answered within a bound, counted in turns of the loop; when the peers have gone, everything that they held must
//! come back. What was found goes into a table of docs/reliability.md (`make siege-page`).

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

#[path = "../program/cable.rs"]
mod cable;
mod caller;
mod conduct;
mod kinds;
mod peers;
mod results;
mod servers;
#[path = "../program/support.rs"]
#[allow(
    dead_code,
    reason = "shared with the tests of the program, which use all of it"
)]
mod support;
#[path = "../soak/watched.rs"]
mod watched;
mod wire;

/// A test for each server on each engine, so that one can be besieged alone: `make siege ONLY=netty`, `ONLY=epoll::netty`.
macro_rules! sieges {
    ($($name:ident)*) => {
        sieges! { uring: $($name)* }
        sieges! { epoll: $($name)* }

        const TESTS: &[&str] = &[$(stringify!($name)),*];
    };
    ($engine:ident: $($name:ident)*) => {
        mod $engine {
            $(
                #[test]
                #[ignore = "takes minutes: make siege"]
                fn $name() {
                    crate::conduct::siege(stringify!($name), stringify!($engine));
                }
            )*
        }
    };
}

sieges! {
    serve_echo serve_http serve_rpc serve_sink serve_metrics
    go_event_echo go_event_http go_fasthttp go_nethttp go_listener
    netty_echo netty_http netty_rpc netty_rsocket
    kestrel kestrel_inline
}

#[test]
fn each_server_has_a_test() {
    let rows: Vec<_> = servers::ROWS.iter().map(|row| row.name).collect();
    assert_eq!(rows, TESTS);
}
