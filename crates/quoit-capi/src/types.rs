//! The structures and constants of `quoit.h`. What each means is said there and in `docs/c-abi.md`.

use std::ffi::{CStr, c_char, c_void};
use std::mem::{offset_of, size_of};

use crate::memory::{Plain, Sized32};

/// A structure of the header.
#[derive(Debug)]
pub(crate) struct Structure {
    pub(crate) name: &'static str,
    pub(crate) size: usize,
    pub(crate) alignment: usize,
    pub(crate) fields: &'static [Field],
}

/// A field of one.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) offset: usize,
    pub(crate) size: usize,
}

/// A constant of the header.
#[derive(Debug)]
pub(crate) struct Constant {
    pub(crate) name: &'static str,
    pub(crate) value: u64,
}

/// The version of this ABI: the major number in the upper 16 bits, the minor one in the lower.
pub(crate) const ABI_VERSION: u32 = QUOIT_ABI_MAJOR << 16 | QUOIT_ABI_MINOR;

macro_rules! constants {
    ($($name:ident: $type:ty = $value:expr;)*) => {
        $(pub(crate) const $name: $type = $value;)*

        /// All of them, for the layout.
        pub(crate) const CONSTANTS: &[Constant] = &[$(Constant {
            name: stringify!($name),
            value: $name as u64,
        },)*];
    };
}

constants! {
    QUOIT_ABI_MAJOR: u32 = 1;
    QUOIT_ABI_MINOR: u32 = 15;

    QUOIT_UNSET: u32 = u32::MAX;

    QUOIT_ENGINE_AUTO: u32 = 0;
    QUOIT_ENGINE_URING: u32 = 1;
    QUOIT_ENGINE_EPOLL: u32 = 2;

    QUOIT_WAIT_BLOCK: u32 = 0;
    QUOIT_WAIT_SPIN: u32 = 1;
    QUOIT_WAIT_POLL: u32 = 2;
    QUOIT_WAIT_COALESCE: u32 = 3;

    QUOIT_COMMAND_CONNECT: u16 = 1;
    QUOIT_COMMAND_ATTACH: u16 = 2;
    QUOIT_COMMAND_SEND: u16 = 3;
    QUOIT_COMMAND_SEND_LEASE: u16 = 4;
    QUOIT_COMMAND_SEND_FILE: u16 = 5;
    QUOIT_COMMAND_SHUTDOWN: u16 = 6;
    QUOIT_COMMAND_CLOSE: u16 = 7;
    QUOIT_COMMAND_ABORT: u16 = 8;
    QUOIT_COMMAND_PAUSE: u16 = 9;
    QUOIT_COMMAND_RESUME: u16 = 10;
    QUOIT_COMMAND_SET_DEADLINE: u16 = 11;
    QUOIT_COMMAND_SET_TIMER: u16 = 12;
    QUOIT_COMMAND_CANCEL_TIMER: u16 = 13;
    QUOIT_COMMAND_STOP_LISTENING: u16 = 14;
    QUOIT_COMMAND_DRAIN: u16 = 15;
    QUOIT_COMMAND_RETURN_LEASE: u16 = 16;
    QUOIT_COMMAND_OPEN_DATAGRAM: u16 = 17;
    QUOIT_COMMAND_SEND_DATAGRAMS: u16 = 18;
    QUOIT_COMMAND_PAUSE_DATAGRAMS: u16 = 19;
    QUOIT_COMMAND_RESUME_DATAGRAMS: u16 = 20;
    QUOIT_COMMAND_JOIN_MULTICAST: u16 = 21;
    QUOIT_COMMAND_LEAVE_MULTICAST: u16 = 22;
    QUOIT_COMMAND_CLOSE_DATAGRAM: u16 = 23;
    QUOIT_COMMAND_SEND_GATHERED: u16 = 24;
    QUOIT_COMMAND_PAUSE_LISTENING: u16 = 25;
    QUOIT_COMMAND_RESUME_LISTENING: u16 = 26;

    QUOIT_FLAG_BORROWED: u16 = 1;
    QUOIT_FLAG_PAUSED: u16 = 2;
    QUOIT_FLAG_ECN: u16 = 4;
    QUOIT_FLAG_PROGRESS: u16 = 8;
    QUOIT_FLAG_TELL_SHORT: u16 = 16;

    QUOIT_EVENT_ACCEPTED: u16 = 1;
    QUOIT_EVENT_ACCEPTED_DESCRIPTOR: u16 = 2;
    QUOIT_EVENT_CONNECTING: u16 = 3;
    QUOIT_EVENT_OPENED: u16 = 4;
    QUOIT_EVENT_DATA: u16 = 5;
    QUOIT_EVENT_END_OF_STREAM: u16 = 6;
    QUOIT_EVENT_SENT: u16 = 7;
    QUOIT_EVENT_WRITABLE: u16 = 8;
    QUOIT_EVENT_PRESSURE: u16 = 9;
    QUOIT_EVENT_DEADLINE: u16 = 10;
    QUOIT_EVENT_CLOSED: u16 = 11;
    QUOIT_EVENT_LISTENER_CLOSED: u16 = 12;
    QUOIT_EVENT_REFUSED: u16 = 13;
    QUOIT_EVENT_TIMER: u16 = 14;
    QUOIT_EVENT_WOKEN: u16 = 15;
    QUOIT_EVENT_DRAINING: u16 = 16;
    QUOIT_EVENT_DRAINED: u16 = 17;
    QUOIT_EVENT_DATAGRAM_OPENED: u16 = 18;
    QUOIT_EVENT_DATAGRAMS: u16 = 19;
    QUOIT_EVENT_DATAGRAM_SENT: u16 = 20;
    QUOIT_EVENT_DATAGRAM_ERROR: u16 = 21;
    QUOIT_EVENT_DATAGRAM_WRITABLE: u16 = 22;
    QUOIT_EVENT_DATAGRAM_PRESSURE: u16 = 23;
    QUOIT_EVENT_DATAGRAM_CLOSED: u16 = 24;
    QUOIT_EVENT_DATAGRAM_REFUSED: u16 = 25;
    QUOIT_EVENT_FILE_SHORT: u16 = 26;
    QUOIT_EVENT_ACCEPT_FAILED: u16 = 27;
    QUOIT_EVENT_SEND_FAILED: u16 = 28;

    QUOIT_CLOSED_LOCAL: u16 = 1;
    QUOIT_CLOSED_PEER: u16 = 2;
    QUOIT_CLOSED_RESET: u16 = 3;
    QUOIT_CLOSED_TIMEOUT: u16 = 4;
    QUOIT_CLOSED_LIMIT: u16 = 5;
    QUOIT_CLOSED_ERROR: u16 = 6;

    QUOIT_REFUSED_STALE: u16 = 1;
    QUOIT_REFUSED_FULL: u16 = 2;
    QUOIT_REFUSED_TOO_LARGE: u16 = 3;
    QUOIT_REFUSED_CLOSING: u16 = 4;
    QUOIT_REFUSED_LIMIT: u16 = 5;
    QUOIT_REFUSED_ERROR: u16 = 6;

    QUOIT_DATAGRAM_ERROR_NETWORK: u16 = 1;
    QUOIT_DATAGRAM_ERROR_TOO_LARGE: u16 = 2;
    QUOIT_DATAGRAM_ERROR_SEND: u16 = 3;
    QUOIT_DATAGRAM_ERROR_CONTROL_TRUNCATED: u16 = 4;
    QUOIT_DATAGRAM_ERROR_RECEIVE: u16 = 5;
    QUOIT_DATAGRAM_ERROR_UNREACHABLE: u16 = 6;

    QUOIT_DATAGRAMS_TRUNCATED: u32 = 1;
    QUOIT_DATAGRAMS_ECN: u32 = 2;

    QUOIT_ACCEPT_CONNECTIONS: u32 = 0;
    QUOIT_ACCEPT_PAUSED: u32 = 1;
    QUOIT_ACCEPT_DESCRIPTORS: u32 = 2;
    QUOIT_ACCEPT_SPREAD: u32 = 3;

    QUOIT_BIND_REUSE_PORT: u32 = 1;
    QUOIT_BIND_IPV6_ONLY: u32 = 2;
    QUOIT_BIND_UNLINK_EXISTING: u32 = 4;

    QUOIT_DATAGRAM_REUSE_PORT: u32 = 1;
    QUOIT_DATAGRAM_REUSE_ADDRESS: u32 = 2;
    QUOIT_DATAGRAM_BROADCAST: u32 = 4;
    QUOIT_DATAGRAM_IPV6_ONLY: u32 = 8;
    QUOIT_DATAGRAM_TELL_ECN: u32 = 16;
    QUOIT_DATAGRAM_TELL_TIME: u32 = 32;
    QUOIT_DATAGRAM_TELL_LOCAL: u32 = 64;
    QUOIT_DATAGRAM_FORCE_RECEIVE_BUFFER: u32 = 128;
    QUOIT_DATAGRAM_PAUSED: u32 = 256;
    QUOIT_DATAGRAM_TELL_UNREACHABLE: u32 = 512;

    QUOIT_GRO_OFF: u32 = 0;
    QUOIT_GRO_TRANSPARENT: u32 = 1;
    QUOIT_GRO_RAW: u32 = 2;

    QUOIT_STEERING_HASH: u32 = 0;
    QUOIT_STEERING_CPU: u32 = 1;

    QUOIT_FIGURE_COUNTER: u32 = 0;
    QUOIT_FIGURE_GAUGE: u32 = 1;
}

macro_rules! structures {
    ($($(#[$($traits:ident)+])? $rust:ident is $c:literal { $($field:ident: $type:ty,)* })*) => {
        $(
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub(crate) struct $rust {
                $(pub(crate) $field: $type,)*
            }

            structures!(@plain $rust $($($traits)+)?);
        )*

        /// All but the counters, for the layout.
        pub(crate) const STRUCTURES: &[Structure] = &[$(Structure {
            name: $c,
            size: size_of::<$rust>(),
            alignment: align_of::<$rust>(),
            fields: &[$(Field {
                name: stringify!($field),
                offset: offset_of!($rust, $field),
                size: size_of::<$type>(),
            },)*],
        },)*];
    };
    (@plain $rust:ident) => {
        // SAFETY: integers and pointers only, which every pattern of bits is a value of.
        unsafe impl Plain for $rust {}
    };
    (@plain $rust:ident sized) => {
        structures!(@plain $rust);

        // SAFETY: the first field is the size.
        unsafe impl Sized32 for $rust {
            const FIRST_SIZE: usize = size_of::<Self>();
        }
    };
    // Structures that have grown since the first version of the ABI: the first field that was added.
    (@plain $rust:ident sized until $added:ident) => {
        structures!(@plain $rust);

        // SAFETY: the first field is the size.
        unsafe impl Sized32 for $rust {
            const FIRST_SIZE: usize = offset_of!($rust, $added);
        }
    };
}

structures! {
    Command is "quoit_command" {
        kind: u16,
        flags: u16,
        descriptor: i32,
        target: u64,
        token: u64,
        data: *const c_void,
        length: u32,
        reserved: u32,
        offset: u64,
        lease: u64,
        time_ns: i64,
    }

    Event is "quoit_event" {
        kind: u16,
        reason: u16,
        error: i32,
        descriptor: i32,
        length: u32,
        connection: u64,
        listener: u64,
        token: u64,
        data: *const c_void,
        lease: u64,
        reserved: u64,
    }

    StreamOptions is "quoit_stream_options" {
        no_delay: u32,
        receive_buffer: u32,
        send_buffer: u32,
        keepalive_idle_s: u32,
        keepalive_interval_s: u32,
        keepalive_probes: u32,
        reserved: [u32; 2],
    }

    #[sized until datagram_sockets]
    Config is "quoit_config" {
        size: u32,
        engine: u32,
        without: u64,
        connections: u32,
        listeners: u32,
        timers: u32,
        receive_slots: u32,
        receive_slot_size: u32,
        leases_per_connection: u32,
        close_at_lease_limit: u32,
        high_water: u32,
        low_water: u32,
        send_pieces: u32,
        send_chunk_size: u32,
        send_chunks: u32,
        zero_copy_threshold: u32,
        submission_queue: u32,
        completion_queue: u32,
        buffer_ring: u32,
        register_pool: u32,
        completions_per_turn: u32,
        receives_per_turn: u32,
        inbox: u32,
        kernel_poll_ns: i64,
        connect_timeout_ns: i64,
        close_deadline_ns: i64,
        ring_memory_patience_ns: i64,
        datagram_sockets: u32,
        wait: u32,
        spin_ns: i64,
        pollable: u32,
        reserved: u32,
        stall_limit_ns: i64,
    }

    #[sized]
    ConnectOptions is "quoit_connect_options" {
        size: u32,
        address_length: u32,
        address: *const c_char,
        local: *const c_char,
        local_length: u32,
        reserved: u32,
        timeout_ns: i64,
        stream: StreamOptions,
    }

    #[sized]
    BindOptions is "quoit_bind_options" {
        size: u32,
        flags: u32,
        backlog: u32,
        receive_buffer: u32,
        send_buffer: u32,
        reserved: u32,
    }

    #[sized until tell_failures]
    ListenOptions is "quoit_listen_options" {
        size: u32,
        accept: u32,
        // Of `quoit_remote`, which is opaque: what it holds needs these structures, so they do not know it.
        remotes: *const *const c_void,
        remote_count: u32,
        reserved: u32,
        stream: StreamOptions,
        tell_failures: u32,
        reserved_too: u32,
    }

    MulticastGroup is "quoit_multicast_group" {
        address: [u8; 16],
        address_length: u32,
        interface: u32,
    }

    #[sized]
    DatagramOptions is "quoit_datagram_options" {
        size: u32,
        flags: u32,
        max_datagram: u32,
        slots: u32,
        gro: u32,
        high_water: u32,
        low_water: u32,
        queued_sends: u32,
        receive_buffer: u32,
        send_buffer: u32,
        multicast_loop: u32,
        multicast_hops: u32,
        groups: *const MulticastGroup,
        group_count: u32,
        peer_length: u32,
        peer: *const c_char,
    }

    #[sized]
    Datagrams is "quoit_datagrams" {
        size: u32,
        flags: u32,
        data: *const c_void,
        length: u32,
        count: u32,
        segment_size: u32,
        peer_length: u32,
        peer: *const c_void,
        timestamp_ns: i64,
        interface: u32,
        local_length: u8,
        ecn: u8,
        reserved: u16,
        local: [u8; 16],
    }

    DatagramSend is "quoit_datagram_send" {
        data: *const c_void,
        length: u32,
        flags: u16,
        segment_size: u16,
        token: u64,
        lease: u64,
        to: *const c_void,
        to_length: u32,
        interface: u32,
        source: [u8; 16],
        source_length: u8,
        ecn: u8,
        reserved: [u8; 14],
    }

    #[sized]
    DatagramCounters is "quoit_datagram_counters" {
        size: u32,
        reserved: u32,
        received: u64,
        received_bytes: u64,
        received_buffers: u64,
        receive_batches: u64,
        largest_batch: u64,
        kernel_drops: u64,
        pauses: u64,
        truncated: u64,
        control_truncated: u64,
        arms: u64,
        receive_errors: u64,
        sent: u64,
        sent_bytes: u64,
        sends: u64,
        send_batches: u64,
        sends_refused: u64,
        send_errors: u64,
        segmentation_refused: u64,
        slots: u64,
        slots_leased: u64,
        slots_low_water: u64,
        queued_bytes: u64,
        direct_sends: u64,
    }

    #[sized]
    Capability is "quoit_capability" {
        size: u32,
        usable: u32,
        bit: u64,
        name: *const c_char,
        about: *const c_char,
        minimum_kernel: *const c_char,
        reason: *const c_char,
    }

    #[sized]
    CounterInfo is "quoit_counter_info" {
        size: u32,
        kind: u32,
        offset: u32,
        reserved: u32,
        name: *const c_char,
        about: *const c_char,
    }
}

const _: () = assert!(size_of::<Command>() == 64 && size_of::<Event>() == 64);
const _: () = assert!(size_of::<DatagramSend>() == 80);

/// What the counters are called, for exporters.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) kind: u32,
    pub(crate) name: &'static CStr,
    pub(crate) about: &'static CStr,
    pub(crate) offset: usize,
}

/// A text that ends in NUL, without the blank that a documentation comment begins with.
const fn text(with_nul: &'static str) -> &'static CStr {
    let bytes = match with_nul.as_bytes() {
        [b' ', rest @ ..] => rest,
        bytes => bytes,
    };
    match CStr::from_bytes_with_nul(bytes) {
        Ok(text) => text,
        Err(_) => panic!("the descriptions hold no NUL"),
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $figure:ident $name:ident,)+) => {
        #[derive(Clone, Copy, Debug)]
        #[repr(C)]
        pub(crate) struct Counters {
            pub(crate) size: u32,
            pub(crate) reserved: u32,
            $(pub(crate) $name: u64,)+
        }

        // SAFETY: integers only.
        unsafe impl Plain for Counters {}

        // SAFETY: the first field is the size. The first version of the ABI ends with `surplus_events`.
        unsafe impl Sized32 for Counters {
            const FIRST_SIZE: usize = offset_of!(Counters, surplus_events) + size_of::<u64>();
        }

        impl From<&quoit::Counters> for Counters {
            fn from(counters: &quoit::Counters) -> Self {
                Self {
                    size: size_of::<Self>() as u32,
                    reserved: 0,
                    $($name: counters.$name,)+
                }
            }
        }

        /// The counters' structure, for the layout.
        pub(crate) const COUNTERS: Structure = Structure {
            name: "quoit_counters",
            size: size_of::<Counters>(),
            alignment: align_of::<Counters>(),
            fields: &[
                Field { name: "size", offset: offset_of!(Counters, size), size: size_of::<u32>() },
                Field { name: "reserved", offset: offset_of!(Counters, reserved), size: size_of::<u32>() },
                $(Field {
                    name: stringify!($name),
                    offset: offset_of!(Counters, $name),
                    size: size_of::<u64>(),
                },)+
            ],
        };

        /// What each counter is.
        pub(crate) const FIGURES: &[Figure] = &[$(Figure {
            kind: counters!(@kind $figure),
            name: text(concat!(stringify!($name), "\0")),
            about: text(concat!($($doc,)+ "\0")),
            offset: offset_of!(Counters, $name),
        },)+];
    };
    (@kind Counter) => { QUOIT_FIGURE_COUNTER };
    (@kind Gauge) => { QUOIT_FIGURE_GAUGE };
}

quoit::each_counter!(counters);
