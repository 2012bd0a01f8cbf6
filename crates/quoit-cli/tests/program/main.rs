//! The program `quoit` as its users run it: real processes, real sockets, both engines.

#![allow(clippy::unwrap_used, reason = "a failure of a test may panic anywhere in it")]

mod cable;
mod container;
mod datagrams;
mod dns;
mod doctor;
mod draining;
mod echo_loops;
mod faults;
mod hand_over;
mod hand_over_given_up;
mod http;
mod http_limits;
mod idle;
mod kubernetes;
mod lab;
mod lab_datagrams;
mod lab_network;
mod lab_remote;
mod lab_run;
mod lab_unwritten;
mod large;
mod loading;
mod manager;
mod many_machines;
mod network_faults;
mod observed;
mod output;
mod probes;
mod profiles;
mod proxy_protocol;
mod rivals;
mod rpc;
mod serving;
mod support;
mod traffic;
mod units;
mod usage;
