//! The program `quoit` as its users run it: real processes, real sockets, both engines.

mod doctor;
mod draining;
mod http;
mod http_limits;
mod large;
mod loading;
mod serving;
mod support;
mod usage;
