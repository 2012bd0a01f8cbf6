//! What users may rely on, checked from real client sockets: one set of cases, written once and run in full on
//! each engine, and for each option or downgrade level the cases that it touches.
//!
//! A test is named `level::group::case`. Every event that a case sees goes through `quoit-event-order`, which
//! holds the tables of `quoit::event`. Waits have generous limits that only end a test which hangs; nothing sleeps, and no
//! assertion depends on how fast something was.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test ends with the panic that says what went wrong"
)]

/// The tests of one group at one level.
macro_rules! tests {
    ($level:ident, $group:ident: $($case:ident)*) => {
        mod $group {
            $(
                #[test]
                fn $case() {
                    let path = concat!(module_path!(), "::", stringify!($case));
                    $crate::levels::run(&$crate::levels::$level, path, $crate::$group::$case);
                }
            )*
        }
    };
}

/// The groups that are run at one level.
macro_rules! level {
    ($name:ident = $level:ident: $($group:ident)*) => {
        mod $name {
            $($group! { $level })*
        }
    };
}

mod counts;
mod datagram_bench;
mod driver;
mod levels;
mod locked_memory;
mod sockets;

#[macro_use]
mod accepting;
#[macro_use]
mod bulk;
#[macro_use]
mod clock;
#[macro_use]
mod connecting;
#[macro_use]
mod datagram_bounds;
#[macro_use]
mod datagram_ending;
#[macro_use]
mod datagram_errors;
#[macro_use]
mod datagram_network;
#[macro_use]
mod datagram_receiving;
#[macro_use]
mod datagram_sending;
#[macro_use]
mod datagram_sockets;
#[macro_use]
mod echoing;
#[macro_use]
mod ending;
#[macro_use]
mod files;
#[macro_use]
mod gathering;
#[macro_use]
mod leases;
#[macro_use]
mod receiving;
#[macro_use]
mod resources;
#[macro_use]
mod send_chunks;
#[macro_use]
mod sending;
#[macro_use]
mod spreading;

level!(epoll = EPOLL: accepting bulk clock connecting echoing ending files gathering leases receiving resources send_chunks sending spreading datagram_bounds datagram_ending datagram_errors datagram_network datagram_receiving datagram_sending datagram_sockets);
level!(uring = URING: accepting bulk clock connecting echoing ending files gathering leases receiving resources send_chunks sending spreading datagram_bounds datagram_ending datagram_errors datagram_network datagram_receiving datagram_sending datagram_sockets);

level!(uring_oldest = OLDEST: accepting clock connecting echoing ending files gathering leases receiving resources send_chunks sending spreading datagram_bounds datagram_ending datagram_errors datagram_receiving datagram_sending datagram_sockets);
level!(uring_without_multishot_receive = WITHOUT_MULTISHOT_RECEIVE: echoing ending leases receiving datagram_bounds datagram_ending datagram_receiving datagram_sending);
level!(uring_without_receive_budget = WITHOUT_RECEIVE_BUDGET: clock echoing ending leases receiving);
level!(uring_without_buffer_ring = WITHOUT_BUFFER_RING: echoing ending leases receiving datagram_ending datagram_receiving datagram_sending);
level!(uring_without_multishot_accept = WITHOUT_MULTISHOT_ACCEPT: accepting resources spreading);
level!(uring_without_deferred_work = WITHOUT_DEFER_TASKRUN: accepting clock connecting echoing ending files gathering send_chunks sending datagram_ending datagram_receiving datagram_sending);
level!(uring_zero_copy = ZERO_COPY: echoing ending files gathering receiving send_chunks sending);
level!(uring_zero_copy_registered = ZERO_COPY_REGISTERED: echoing ending files gathering receiving send_chunks sending);
level!(uring_kernel_poll = KERNEL_POLL: accepting clock connecting echoing ending files gathering leases receiving resources send_chunks sending datagram_bounds datagram_ending datagram_errors datagram_receiving datagram_sending datagram_sockets);
level!(uring_registered = REGISTERED: datagram_receiving datagram_sending);
level!(uring_tiny_queues = TINY_QUEUES: accepting connecting echoing ending files gathering receiving resources send_chunks sending datagram_bounds datagram_ending datagram_receiving datagram_sending datagram_sockets);
level!(uring_tiny_pool = TINY_POOL: echoing ending files send_chunks sending);
level!(epoll_tiny_pool = EPOLL_TINY_POOL: echoing ending files send_chunks sending);
level!(epoll_tiny_turns = EPOLL_TINY_TURNS: accepting echoing ending files gathering leases receiving send_chunks sending datagram_bounds datagram_ending datagram_errors datagram_receiving datagram_sending datagram_sockets);
