//! Completion-based network transport for Linux.

pub mod address;
mod affinity;
mod chunks;
pub mod command;
mod config;
pub mod counters;
pub mod engine;
mod errno;
pub mod event;
mod event_loop;
pub mod features;
mod footprint;
mod handler;
pub mod host;
pub mod id;
pub mod listen;
mod outbound;
pub mod pool;
mod remote;
mod runtime;
mod selected;
pub mod sys;
mod timers;
mod wake;

pub use address::Address;
pub use affinity::{available_cpus, pin_current_thread};
pub use command::{
    AttachOptions, Command, ConnectOptions, FileRange, Keepalive, Payload, RawBytes, StreamOptions,
};
pub use config::{Config, ConfigError, EngineChoice};
pub use counters::Counters;
pub use engine::EngineKind;
pub use errno::Errno;
pub use event::{CloseReason, Event, Events, Refusal};
pub use event_loop::{Accept, ListenerOptions, Loop, LoopMemory, TurnError};
pub use features::{Feature, FeatureSet};
pub use footprint::Footprint;
pub use handler::Handler;
pub use id::{ConnectionId, ListenerId, LoopIndex, Token};
pub use listen::{ListenError, ListenOptions, ListenSocket};
pub use pool::Lease;
pub use remote::{PostError, Remote};
pub use runtime::{Drainer, Listen, Runtime, RuntimeConfig, Spread};
pub use selected::{AnyEngine, StartError, try_uring};
