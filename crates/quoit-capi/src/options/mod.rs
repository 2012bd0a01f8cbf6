//! C's options and configuration, and those of the core.

use std::time::Duration;

use quoit::{EngineChoice, EngineKind, Feature, FeatureSet, Keepalive, WaitMode};

use crate::error::Failure;
use crate::memory;
use crate::numbers::{duration, engine_number, feature_bit, nanoseconds};
use crate::types::*;

pub(crate) mod datagrams;

/// The defaults of the core, as `quoit.h` has them.
pub(crate) fn default_stream_options() -> StreamOptions {
    let options = quoit::StreamOptions::default();
    StreamOptions {
        no_delay: u32::from(options.no_delay),
        receive_buffer: options.receive_buffer.unwrap_or(0),
        send_buffer: options.send_buffer.unwrap_or(0),
        ..memory::zeroes()
    }
}

pub(crate) fn default_connect_options() -> ConnectOptions {
    ConnectOptions {
        timeout_ns: -1,
        stream: default_stream_options(),
        ..memory::zeroes()
    }
}

pub(crate) fn switch(value: u32, name: &str) -> Result<bool, Failure> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Failure::invalid(format_args!(
            "`{name}` is {value}, but only 0 and 1 are meant"
        ))),
    }
}

/// The core's options of a stream socket.
pub(crate) fn stream_options(options: &StreamOptions) -> Result<quoit::StreamOptions, Failure> {
    if options.reserved != [0; 2] {
        return Err(Failure::invalid("`stream.reserved` is not zero"));
    }
    let keepalive = (options.keepalive_idle_s != 0).then(|| Keepalive {
        idle: Duration::from_secs(options.keepalive_idle_s.into()),
        interval: Duration::from_secs(options.keepalive_interval_s.into()),
        probes: options.keepalive_probes,
    });
    let size = |bytes: u32| (bytes != 0).then_some(bytes);
    Ok(quoit::StreamOptions {
        no_delay: switch(options.no_delay, "stream.no_delay")?,
        keepalive,
        receive_buffer: size(options.receive_buffer),
        send_buffer: size(options.send_buffer),
    })
}

/// A number that may be left unset.
fn optional(value: u32) -> Option<u32> {
    (value != QUOIT_UNSET).then_some(value)
}

/// C's structure for a configuration of the core.
pub(crate) fn config_for_c(config: &quoit::Config) -> Config {
    Config {
        size: size_of::<Config>() as u32,
        engine: match config.engine {
            EngineChoice::Auto => QUOIT_ENGINE_AUTO,
            EngineChoice::Require(kind) => engine_number(kind),
        },
        without: config
            .without
            .iter()
            .fold(0, |bits, feature| bits | feature_bit(feature)),
        connections: config.connections,
        listeners: config.listeners,
        timers: config.timers.unwrap_or(QUOIT_UNSET),
        receive_slots: config.receive_slots,
        receive_slot_size: config.receive_slot_size,
        leases_per_connection: config.leases_per_connection.into(),
        close_at_lease_limit: config.close_at_lease_limit.into(),
        high_water: config.high_water,
        low_water: config.low_water,
        send_pieces: config.send_pieces,
        send_chunk_size: config.send_chunk_size,
        send_chunks: config.send_chunks,
        zero_copy_threshold: config.zero_copy_threshold.unwrap_or(QUOIT_UNSET),
        submission_queue: config.submission_queue,
        completion_queue: config.completion_queue,
        buffer_ring: config.buffer_ring,
        register_pool: config.register_pool.into(),
        completions_per_turn: config.completions_per_turn,
        receives_per_turn: config.receives_per_turn,
        inbox: config.inbox,
        kernel_poll_ns: config.kernel_poll.map_or(-1, nanoseconds),
        connect_timeout_ns: nanoseconds(config.connect_timeout),
        close_deadline_ns: nanoseconds(config.close_deadline),
        ring_memory_patience_ns: nanoseconds(config.ring_memory_patience),
        datagram_sockets: config.datagram_sockets,
        wait: match config.wait {
            WaitMode::Block => QUOIT_WAIT_BLOCK,
            WaitMode::Spin(_) => QUOIT_WAIT_SPIN,
            WaitMode::Poll => QUOIT_WAIT_POLL,
            WaitMode::Coalesce(_) => QUOIT_WAIT_COALESCE,
        },
        spin_ns: match config.wait {
            WaitMode::Spin(time) | WaitMode::Coalesce(time) => nanoseconds(time),
            WaitMode::Block | WaitMode::Poll => 0,
        },
        pollable: config.pollable.into(),
        reserved: 0,
        stall_limit_ns: nanoseconds(config.stall_limit),
    }
}

/// The core's configuration for C's structure; its own check of the ranges is still to come.
pub(crate) fn config(config: &Config) -> Result<quoit::Config, Failure> {
    let engine = match config.engine {
        QUOIT_ENGINE_AUTO => EngineChoice::Auto,
        QUOIT_ENGINE_URING => EngineChoice::Require(EngineKind::Uring),
        QUOIT_ENGINE_EPOLL => EngineChoice::Require(EngineKind::Epoll),
        other => {
            return Err(Failure::invalid(format_args!(
                "`engine` is {other}, which is not a known engine"
            )));
        }
    };
    let known = Feature::ALL
        .iter()
        .fold(0, |bits, &feature| bits | feature_bit(feature));
    if config.without & !known != 0 {
        return Err(Failure::invalid(
            "`without` names features that this version does not know",
        ));
    }
    let without: FeatureSet = Feature::ALL
        .iter()
        .copied()
        .filter(|&feature| config.without & feature_bit(feature) != 0)
        .collect();
    let leases_per_connection = u16::try_from(config.leases_per_connection)
        .map_err(|_| Failure::invalid("`leases_per_connection` must be at most 65,535"))?;
    let time = |value: i64, name: &str| {
        duration(value).ok_or_else(|| Failure::invalid(format_args!("`{name}` is negative")))
    };
    Ok(quoit::Config {
        engine,
        without,
        connections: config.connections,
        listeners: config.listeners,
        timers: optional(config.timers),
        receive_slots: config.receive_slots,
        receive_slot_size: config.receive_slot_size,
        leases_per_connection,
        close_at_lease_limit: switch(config.close_at_lease_limit, "close_at_lease_limit")?,
        high_water: config.high_water,
        low_water: config.low_water,
        send_pieces: config.send_pieces,
        send_chunk_size: config.send_chunk_size,
        send_chunks: config.send_chunks,
        zero_copy_threshold: optional(config.zero_copy_threshold),
        submission_queue: config.submission_queue,
        completion_queue: config.completion_queue,
        buffer_ring: config.buffer_ring,
        kernel_poll: duration(config.kernel_poll_ns),
        register_pool: switch(config.register_pool, "register_pool")?,
        pollable: switch(config.pollable, "pollable")?,
        completions_per_turn: config.completions_per_turn,
        receives_per_turn: config.receives_per_turn,
        inbox: config.inbox,
        connect_timeout: time(config.connect_timeout_ns, "connect_timeout_ns")?,
        close_deadline: time(config.close_deadline_ns, "close_deadline_ns")?,
        stall_limit: time(config.stall_limit_ns, "stall_limit_ns")?,
        ring_memory_patience: time(config.ring_memory_patience_ns, "ring_memory_patience_ns")?,
        datagram_sockets: config.datagram_sockets,
        wait: match config.wait {
            QUOIT_WAIT_BLOCK => WaitMode::Block,
            QUOIT_WAIT_SPIN => WaitMode::Spin(time(config.spin_ns, "spin_ns")?),
            QUOIT_WAIT_POLL => WaitMode::Poll,
            QUOIT_WAIT_COALESCE => WaitMode::Coalesce(time(config.spin_ns, "spin_ns")?),
            other => {
                return Err(Failure::invalid(format_args!(
                    "`wait` is {other}, which is not a known way to wait"
                )));
            }
        },
    })
}
