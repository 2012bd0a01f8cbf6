//! The C ABI: `libquoit.so` and `libquoit.a`, described by `include/quoit.h`.
//!
//! This crate adds no behaviour of its own. It turns C's commands, events, options and errors into those of the core
//! and back, checks what C cannot (threads, stale leases, sizes), and lets no panic out. `docs/c-abi.md` has a
//! section for every call.
//!
//! | module | what it holds | unsafe |
//! |---|---|---|
//! | `types` | structures and constants, as in the header | |
//! | `layout` | their sizes and offsets as text, which every binding checks | |
//! | `error` | errno and text, and the fence against panics | |
//! | `memory` | reading and writing what the caller points at | yes |
//! | `handle` | the loop behind a pointer: one call at a time, on one thread | yes |
//! | `leases` | leases by number, returned from any thread | yes |
//! | `thread` | which thread this is, and whether that one has ended | |
//! | `commands` | commands, as the core's | yes |
//! | `events` | events, from the core's | |
//! | `options` | options and configuration to and from the core's | yes |
//! | `numbers` | the numbers for the core's values | |
//! | `receivers` | the addresses that a turn's errors name | in tests |
//! | `remote` | what C holds of a loop, to reach it from any thread | |
//! | `calls` | the exported functions | yes |

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the C ABI is laid out for 64-bit Linux");

mod calls;
mod commands;
mod error;
mod events;
mod handle;
mod layout;
mod leases;
mod memory;
mod numbers;
mod options;
mod receivers;
mod remote;
mod thread;
mod types;

pub use layout::layout;
