package io.quoit.netty;

/**
 * What {@code quoit.h} says, as far as this package uses it: offsets in bytes, and values. A test compares every field
 * with {@code quoit-layout.txt}, by its name; that text is compared with the library's own when it is loaded.
 */
final class Abi {
    /** The ABI that this package was written for: major and minor version. */
    static final int VERSION = 1 << 16 | 15;

    static final int UNSET = 0xFFFF_FFFF;

    static final int ENGINE_AUTO = 0;
    static final int ENGINE_URING = 1;
    static final int ENGINE_EPOLL = 2;

    static final int WAIT_SPIN = 1;
    static final int WAIT_COALESCE = 3;

    static final int COMMAND_CONNECT = 1;
    static final int COMMAND_ATTACH = 2;
    static final int COMMAND_SEND = 3;
    static final int COMMAND_SHUTDOWN = 6;
    static final int COMMAND_CLOSE = 7;
    static final int COMMAND_ABORT = 8;
    static final int COMMAND_PAUSE = 9;
    static final int COMMAND_RESUME = 10;
    static final int COMMAND_STOP_LISTENING = 14;
    static final int COMMAND_RETURN_LEASE = 16;
    static final int COMMAND_SEND_DATAGRAMS = 18;
    static final int COMMAND_PAUSE_DATAGRAMS = 19;
    static final int COMMAND_RESUME_DATAGRAMS = 20;
    static final int COMMAND_CLOSE_DATAGRAM = 23;
    static final int COMMAND_SEND_GATHERED = 24;
    static final int COMMAND_PAUSE_LISTENING = 25;
    static final int COMMAND_RESUME_LISTENING = 26;

    static final int FLAG_BORROWED = 1;
    static final int FLAG_PAUSED = 2;
    static final int FLAG_PROGRESS = 8;

    static final int EVENT_ACCEPTED_DESCRIPTOR = 2;
    static final int EVENT_CONNECTING = 3;
    static final int EVENT_OPENED = 4;
    static final int EVENT_DATA = 5;
    static final int EVENT_END_OF_STREAM = 6;
    static final int EVENT_SENT = 7;
    static final int EVENT_WRITABLE = 8;
    static final int EVENT_CLOSED = 11;
    static final int EVENT_LISTENER_CLOSED = 12;
    static final int EVENT_REFUSED = 13;
    static final int EVENT_DATAGRAM_OPENED = 18;
    static final int EVENT_DATAGRAMS = 19;
    static final int EVENT_DATAGRAM_SENT = 20;
    static final int EVENT_DATAGRAM_ERROR = 21;
    static final int EVENT_DATAGRAM_CLOSED = 24;
    static final int EVENT_DATAGRAM_REFUSED = 25;
    static final int EVENT_ACCEPT_FAILED = 27;
    static final int EVENT_SEND_FAILED = 28;

    static final int CLOSED_LOCAL = 1;
    static final int CLOSED_PEER = 2;
    static final int CLOSED_RESET = 3;
    static final int CLOSED_TIMEOUT = 4;
    static final int CLOSED_LIMIT = 5;
    static final int CLOSED_ERROR = 6;

    static final int REFUSED_STALE = 1;
    static final int REFUSED_FULL = 2;
    static final int REFUSED_TOO_LARGE = 3;
    static final int REFUSED_CLOSING = 4;
    static final int REFUSED_LIMIT = 5;
    static final int REFUSED_ERROR = 6;

    static final int ACCEPT_DESCRIPTORS = 2;

    static final int DATAGRAM_ERROR_UNREACHABLE = 6;

    static final int DATAGRAM_PAUSED = 256;
    static final int DATAGRAM_TELL_UNREACHABLE = 512;

    static final int GRO_OFF = 0;
    static final int GRO_TRANSPARENT = 1;

    static final int FIGURE_GAUGE = 1;

    private Abi() {}

    /** Offsets in {@code quoit_command}. */
    static final class Command {
        static final int SIZE = 64;
        static final int KIND = 0;
        static final int FLAGS = 2;
        static final int DESCRIPTOR = 4;
        static final int TARGET = 8;
        static final int TOKEN = 16;
        static final int DATA = 24;
        static final int LENGTH = 32;
        static final int RESERVED = 36;
        static final int OFFSET = 40;
        static final int LEASE = 48;
        static final int TIME_NS = 56;

        private Command() {}
    }

    /** Offsets in {@code quoit_event}. */
    static final class Event {
        static final int SIZE = 64;
        static final int KIND = 0;
        static final int REASON = 2;
        static final int ERROR = 4;
        static final int DESCRIPTOR = 8;
        static final int LENGTH = 12;
        static final int CONNECTION = 16;
        static final int LISTENER = 24;
        static final int TOKEN = 32;
        static final int DATA = 40;
        static final int LEASE = 48;

        private Event() {}
    }

    /** Offsets in {@code quoit_stream_options}. */
    static final class StreamOptions {
        static final int SIZE = 32;
        static final int NO_DELAY = 0;
        static final int RECEIVE_BUFFER = 4;
        static final int SEND_BUFFER = 8;

        private StreamOptions() {}
    }

    /** Offsets in {@code quoit_config}. */
    static final class Config {
        static final int STRUCT_SIZE = 160;
        static final int ENGINE = 4;
        static final int WITHOUT = 8;
        static final int CONNECTIONS = 16;
        static final int RECEIVE_SLOTS = 28;
        static final int RECEIVE_SLOT_SIZE = 32;
        static final int LEASES_PER_CONNECTION = 36;
        static final int HIGH_WATER = 44;
        static final int LOW_WATER = 48;
        static final int ZERO_COPY_THRESHOLD = 64;
        static final int SUBMISSION_QUEUE = 68;
        static final int COMPLETION_QUEUE = 72;
        static final int BUFFER_RING = 76;
        static final int COMPLETIONS_PER_TURN = 84;
        static final int KERNEL_POLL_NS = 96;
        static final int CLOSE_DEADLINE_NS = 112;
        static final int DATAGRAM_SOCKETS = 128;
        static final int WAIT = 132;
        static final int SPIN_NS = 136;
        static final int STALL_LIMIT_NS = 152;

        private Config() {}
    }

    /** Offsets in {@code quoit_connect_options}. */
    static final class ConnectOptions {
        static final int STRUCT_SIZE = 72;
        static final int ADDRESS_LENGTH = 4;
        static final int ADDRESS = 8;
        static final int LOCAL = 16;
        static final int LOCAL_LENGTH = 24;
        static final int TIMEOUT_NS = 32;
        static final int STREAM = 40;

        private ConnectOptions() {}
    }

    /** Offsets in {@code quoit_listen_options}. */
    static final class ListenOptions {
        static final int STRUCT_SIZE = 64;
        static final int ACCEPT = 4;
        static final int TELL_FAILURES = 56;

        private ListenOptions() {}
    }

    /** Offsets in {@code quoit_datagram_options}. */
    static final class DatagramOptions {
        static final int STRUCT_SIZE = 72;
        static final int FLAGS = 4;
        static final int MAX_DATAGRAM = 8;
        static final int SLOTS = 12;
        static final int GRO = 16;
        static final int HIGH_WATER = 20;
        static final int LOW_WATER = 24;
        static final int QUEUED_SENDS = 28;

        private DatagramOptions() {}
    }

    /** Offsets in {@code quoit_datagrams}. */
    static final class Datagrams {
        static final int DATA = 8;
        static final int LENGTH = 16;
        static final int COUNT = 20;
        static final int SEGMENT_SIZE = 24;
        static final int PEER_LENGTH = 28;
        static final int PEER = 32;

        private Datagrams() {}
    }

    /** Offsets in {@code quoit_datagram_send}. */
    static final class DatagramSend {
        static final int STRUCT_SIZE = 80;
        static final int DATA = 0;
        static final int LENGTH = 8;
        static final int FLAGS = 12;
        static final int SEGMENT_SIZE = 14;
        static final int TOKEN = 16;
        static final int TO = 32;
        static final int TO_LENGTH = 40;

        private DatagramSend() {}
    }

    /** Offsets in {@code quoit_capability}. */
    static final class Capability {
        static final int STRUCT_SIZE = 48;
        static final int USABLE = 4;
        static final int BIT = 8;
        static final int NAME = 16;
        static final int ABOUT = 24;
        static final int MINIMUM_KERNEL = 32;
        static final int REASON = 40;

        private Capability() {}
    }

    /** Offsets in {@code quoit_counter_info}. */
    static final class CounterInfo {
        static final int STRUCT_SIZE = 32;
        static final int KIND = 4;
        static final int OFFSET = 8;
        static final int NAME = 16;
        static final int ABOUT = 24;

        private CounterInfo() {}
    }

    /** Offsets in {@code quoit_counters}. */
    static final class Counters {
        static final int STRUCT_SIZE = 560;
        static final int SUBMISSIONS = 32;
        static final int COMPLETIONS = 40;
        static final int QUEUED_BYTES = 288;

        private Counters() {}
    }
}
