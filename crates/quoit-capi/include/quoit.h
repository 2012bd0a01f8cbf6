/*
 * quoit.h: the C ABI of Quoit, a network transport for Linux on io_uring and on epoll.
 *
 * docs/c-abi.md has a section for every call; docs/execution.md the rules of threads, ownership and lifetime in one
 * place. In short:
 *
 * - A loop serves its connections and datagram sockets on one thread: that of its first quoit_turn. Calls from another
 *   thread are refused with -EPERM. What any thread may use is the loop's remote, sockets, and the calls on plain
 *   descriptors.
 * - Errors are negative errno values; quoit_error_text has the text of the calling thread's last one.
 * - Structures whose first field is `size` may grow at their end: set it to sizeof before the call. Commands and
 *   events are 64 bytes for good. Reserved fields are zero.
 * - Ids are 64 bits, never 0. One that names nothing any more is refused, never taken for another.
 * - Texts that are passed have a length and no NUL; texts that come back end in NUL, are cut to the buffer, and
 *   the call returns their whole length without the NUL, as snprintf does.
 * - No call calls back, and nothing is thrown through one. A fault inside the library returns -ENOTRECOVERABLE,
 *   and its loop can only be destroyed.
 */
#ifndef QUOIT_H
#define QUOIT_H

#include <stddef.h>
#include <stdint.h>

#if !defined(__linux__) || UINTPTR_MAX != UINT64_MAX
#error "quoit.h describes libquoit for 64-bit Linux"
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this ABI. A library of the same major and of this or a later minor version can be used. */
#define QUOIT_ABI_MAJOR 1
#define QUOIT_ABI_MINOR 15
#define QUOIT_ABI_VERSION ((uint32_t)QUOIT_ABI_MAJOR << 16 | (uint32_t)QUOIT_ABI_MINOR)

/* For fields of 32 bits that may be left unset. */
#define QUOIT_UNSET UINT32_MAX

/* Opaque. */
typedef struct quoit_loop quoit_loop;
typedef struct quoit_remote quoit_remote;
typedef struct quoit_socket quoit_socket;
typedef struct quoit_capabilities quoit_capabilities;
typedef struct quoit_datagram_socket quoit_datagram_socket;
typedef struct quoit_direct_sender quoit_direct_sender;
typedef struct quoit_direct_datagram_sender quoit_direct_datagram_sender;

/* Engines: quoit_config.engine, quoit_engine. */
enum {
    QUOIT_ENGINE_AUTO = 0,  /* io_uring where it is usable, otherwise epoll; quoit_engine_reason says why */
    QUOIT_ENGINE_URING = 1, /* io_uring, or fail with the reason */
    QUOIT_ENGINE_EPOLL = 2
};

/* How a loop waits until something happens: quoit_config.wait. */
enum {
    QUOIT_WAIT_BLOCK = 0, /* sleeps in the kernel */
    QUOIT_WAIT_SPIN = 1,  /* looks again and again for quoit_config.spin_ns, then sleeps */
    QUOIT_WAIT_POLL = 2,  /* never sleeps */
    QUOIT_WAIT_COALESCE = 3 /* sleeps, for quoit_config.spin_ns not for the first event but for many, where the loop
                             * finds that this saves processor time. Since 1.5 */
};
#define QUOIT_WAIT_GATHER QUOIT_WAIT_COALESCE /* its name before the first release */

/* Commands: quoit_command.kind. In brackets: the fields that are read beside `kind`. */
enum {
    /* [data, length, token, flags] Connect. `data` is a quoit_connect_options, `length` its size. Answered by
     * CONNECTING, then OPENED, all with the token; or REFUSED; or CLOSED. Flag: PAUSED. */
    QUOIT_COMMAND_CONNECT = 1,
    /* [descriptor, target, token, flags] Make a connected stream socket a connection of this loop. The descriptor is
     * the library's from now on, even if the command is refused. `target`: 0, or the listener to report it as
     * ACCEPTED by, instead of as OPENED. Flag: PAUSED. */
    QUOIT_COMMAND_ATTACH = 2,
    /* [target, data, length, token, flags] Send bytes. They are copied during the call; with the flag BORROWED they
     * are lent instead, and must stay unchanged until SENT with this or a later token, CLOSED, or REFUSED. Lent with
     * token 0 only CLOSED tells. */
    QUOIT_COMMAND_SEND = 3,
    /* [target, lease, offset, length, token] Send `length` bytes of received data from `offset` on, without a copy.
     * The lease is used up, even if the command is refused. */
    QUOIT_COMMAND_SEND_LEASE = 4,
    /* [target, descriptor, offset, length, token, flags] Send a range of a file. The descriptor is the library's from now
     * on, even if the command is refused. A file that is too short closes the connection with -ENODATA, and one that cannot
     * be read with its error. With the flag TELL_SHORT (since ABI 1.9) the connection goes on instead with what is queued
     * behind it, and FILE_SHORT comes in place of SENT. */
    QUOIT_COMMAND_SEND_FILE = 5,
    /* [target] End the sending direction after all that is queued. */
    QUOIT_COMMAND_SHUTDOWN = 6,
    /* [target, time_ns] Close gracefully; reset when the time is over. Negative: as long as the peer takes something, see
     * quoit_config.close_deadline_ns. */
    QUOIT_COMMAND_CLOSE = 7,
    /* [target] Close now; the peer sees a reset. */
    QUOIT_COMMAND_ABORT = 8,
    /* [target] Deliver nothing until RESUME. Refused for a connection that is ending: what came before is on the way. */
    QUOIT_COMMAND_PAUSE = 9,
    /* [target] Deliver again. */
    QUOIT_COMMAND_RESUME = 10,
    /* [target, time_ns] Set or move the connection's deadline, from now; negative clears it. */
    QUOIT_COMMAND_SET_DEADLINE = 11,
    /* [token, time_ns] Set or move the timer that the token names, from now. */
    QUOIT_COMMAND_SET_TIMER = 12,
    /* [token] Clear the timer that the token names. */
    QUOIT_COMMAND_CANCEL_TIMER = 13,
    /* [target] Stop the listener `target`: LISTENER_CLOSED follows when what is queued was accepted. */
    QUOIT_COMMAND_STOP_LISTENING = 14,
    /* [time_ns] Stop all listeners, report DRAINING, abort what is left after the time, report DRAINED. */
    QUOIT_COMMAND_DRAIN = 15,
    /* [lease] Return received memory. */
    QUOIT_COMMAND_RETURN_LEASE = 16,
    /* [data, token] Open the quoit_datagram_socket `data` on this loop. It is the library's from now on, even if the
     * command is refused. Answered by DATAGRAM_OPENED. */
    QUOIT_COMMAND_OPEN_DATAGRAM = 17,
    /* [target, data, length, token] Send the `length` quoit_datagram_send at `data`, which are read during the call.
     * If one of them makes no sense, none is sent, and DATAGRAM_REFUSED has the command's token; what the socket
     * refuses is told with the token of each. */
    QUOIT_COMMAND_SEND_DATAGRAMS = 18,
    /* [target] Deliver no datagrams until RESUME_DATAGRAMS. */
    QUOIT_COMMAND_PAUSE_DATAGRAMS = 19,
    /* [target] Deliver again. */
    QUOIT_COMMAND_RESUME_DATAGRAMS = 20,
    /* [target, data] Become a member of the quoit_multicast_group `data`. */
    QUOIT_COMMAND_JOIN_MULTICAST = 21,
    /* [target, data] Be none any more. */
    QUOIT_COMMAND_LEAVE_MULTICAST = 22,
    /* [target] Deliver nothing more, send what is queued, and close, at the latest after
     * quoit_config.close_deadline_ns. */
    QUOIT_COMMAND_CLOSE_DATAGRAM = 23,
    /* [target, data, length, token, flags] Lend the memory of the `length` struct iovec (sys/uio.h) at `data`, as one send:
     * at most 1,024, none with a null address, each of less than 4 GiB. The list is read during the call, the memory until
     * SENT. One command and one acknowledgement cost a fraction of as many borrowed sends. Since ABI 1.3. With the flag
     * PROGRESS, SENT also tells of parts as the kernel takes them, with the token less the bytes that are still to go; the
     * token must be no less than the bytes of all. What leaves by a zero-copy send is told of with all. Since ABI 1.8. */
    QUOIT_COMMAND_SEND_GATHERED = 24,
    /* [target] Accept nothing more on the listener `target` until RESUME_LISTENING: who connects waits in the kernel's
     * backlog. What the kernel has accepted already is still reported. Since ABI 1.8. */
    QUOIT_COMMAND_PAUSE_LISTENING = 25,
    /* [target] Accept again. Since ABI 1.8. */
    QUOIT_COMMAND_RESUME_LISTENING = 26
};

/* quoit_command.flags and quoit_datagram_send.flags */
enum {
    QUOIT_FLAG_BORROWED = 1, /* SEND, quoit_datagram_send: the bytes are lent, not copied */
    QUOIT_FLAG_PAUSED = 2,   /* CONNECT, ATTACH: deliver nothing until RESUME */
    QUOIT_FLAG_ECN = 4,      /* quoit_datagram_send: `ecn` is set */
    QUOIT_FLAG_PROGRESS = 8, /* SEND_GATHERED: SENT tells of parts, too */
    QUOIT_FLAG_TELL_SHORT = 16 /* SEND_FILE: the connection goes on if the file is too short. Since 1.9 */
};

/* Events: quoit_event.kind. In brackets: the fields that are set beside `kind`; all others are 0, and `descriptor`
 * is -1. */
enum {
    /* [listener, connection] */
    QUOIT_EVENT_ACCEPTED = 1,
    /* [listener, descriptor] A connected socket that belongs to no loop yet; it is the caller's to attach or close. */
    QUOIT_EVENT_ACCEPTED_DESCRIPTOR = 2,
    /* [connection, token] CONNECT was taken; the id can be used to queue sends, or to close. */
    QUOIT_EVENT_CONNECTING = 3,
    /* [connection, token] */
    QUOIT_EVENT_OPENED = 4,
    /* [connection, data, length, lease] Bytes, at least one, readable until the lease is returned or sent. */
    QUOIT_EVENT_DATA = 5,
    /* [connection] The peer's FIN: no DATA follows. */
    QUOIT_EVENT_END_OF_STREAM = 6,
    /* [connection, token] All lent sends of the connection up to this token are done; their memory is free. Of one with
     * PROGRESS, whose token is greater, all but as many bytes of it as that is greater. */
    QUOIT_EVENT_SENT = 7,
    /* [connection] The queue had been full, and is at its low-water mark. */
    QUOIT_EVENT_WRITABLE = 8,
    /* [connection] Receiving waits for leases to be returned: the connection's, or with connection 0 the pool's. */
    QUOIT_EVENT_PRESSURE = 9,
    /* [connection] The time of SET_DEADLINE has come. */
    QUOIT_EVENT_DEADLINE = 10,
    /* [connection, token, reason, error] The last event of each connection. `reason` is one of QUOIT_CLOSED_*. */
    QUOIT_EVENT_CLOSED = 11,
    /* [listener, error] `error` is 0 if it was stopped. */
    QUOIT_EVENT_LISTENER_CLOSED = 12,
    /* [connection, token, reason, error] A command did nothing. `reason` is one of QUOIT_REFUSED_*. */
    QUOIT_EVENT_REFUSED = 13,
    /* [token] The time of SET_TIMER has come. */
    QUOIT_EVENT_TIMER = 14,
    /* quoit_remote_wake was called, once or more often. */
    QUOIT_EVENT_WOKEN = 15,
    QUOIT_EVENT_DRAINING = 16,
    QUOIT_EVENT_DRAINED = 17,
    /* Of datagram sockets; `connection` is the socket's id. */
    /* [connection, token] */
    QUOIT_EVENT_DATAGRAM_OPENED = 18,
    /* [connection, data, length, lease] One buffer: a datagram, or several that the kernel has joined. `data` is a
     * quoit_datagrams, and `length` the bytes of all; both are readable until the lease is returned or sent. */
    QUOIT_EVENT_DATAGRAMS = 19,
    /* [connection, token, length, error] What became of a datagram that was sent with a token: its bytes, which the
     * kernel has taken, or the error. Memory that was lent for it is free. */
    QUOIT_EVENT_DATAGRAM_SENT = 20,
    /* [connection, reason, error, data, length] Something went wrong, and the socket goes on. `reason` is one of
     * QUOIT_DATAGRAM_ERROR_*, `length` the bytes of the datagram that was to be sent. With
     * QUOIT_DATAGRAM_ERROR_UNREACHABLE `data` is the receiver's struct sockaddr and `length` its bytes, readable until
     * the loop's next quoit_turn. */
    QUOIT_EVENT_DATAGRAM_ERROR = 21,
    /* [connection] The queue had been full, and is at its low-water mark. */
    QUOIT_EVENT_DATAGRAM_WRITABLE = 22,
    /* [connection] All of the socket's slots are held: receiving waits for leases to be returned. */
    QUOIT_EVENT_DATAGRAM_PRESSURE = 23,
    /* [connection, token, error] The last event of each datagram socket. `token` is that of its opening; `error` is 0
     * if it was closed. */
    QUOIT_EVENT_DATAGRAM_CLOSED = 24,
    /* [connection, token, reason, error] A command for a datagram socket, or one send of it, did nothing. `reason` is
     * one of QUOIT_REFUSED_*. */
    QUOIT_EVENT_DATAGRAM_REFUSED = 25,
    /* [connection, token, length, error] Of SEND_FILE with TELL_SHORT: `length` bytes of the range were not sent. `error` is
     * 0 if the file has ended, otherwise what reading it failed with: -EINVAL for one that sendfile(2) does not take.
     * It comes in place of SENT, also with token 0, and says nothing of sends before it. Since ABI 1.9. */
    QUOIT_EVENT_FILE_SHORT = 26,
    /* [listener, error] With quoit_listen_options.tell_failures: accepting failed, mostly for want of descriptors or memory.
     * It is tried again by itself, and at once after PAUSE_LISTENING and RESUME_LISTENING. Since ABI 1.9. */
    QUOIT_EVENT_ACCEPT_FAILED = 27,
    /* [connection, error] The socket takes no more: -ECONNRESET, -EPIPE and the like. What was queued is dropped, and later
     * sends are refused with this error. What the peer sent before is still delivered, then CLOSED follows: for a paused
     * connection not before it is resumed or ended. Where there is nothing to deliver, CLOSED comes at once, and this does
     * not. Since ABI 1.11. */
    QUOIT_EVENT_SEND_FAILED = 28
};

/* quoit_event.reason of QUOIT_EVENT_CLOSED */
enum {
    QUOIT_CLOSED_LOCAL = 1,   /* this end closed, aborted or ended its direction first */
    QUOIT_CLOSED_PEER = 2,    /* the peer ended its direction first */
    QUOIT_CLOSED_RESET = 3,   /* the peer reset it */
    QUOIT_CLOSED_TIMEOUT = 4, /* a time was over: of connecting, of closing, or the kernel's */
    QUOIT_CLOSED_LIMIT = 5,   /* quoit_config.close_at_lease_limit */
    QUOIT_CLOSED_ERROR = 6    /* `error` says which */
};

/* quoit_event.reason of QUOIT_EVENT_REFUSED and QUOIT_EVENT_DATAGRAM_REFUSED */
enum {
    QUOIT_REFUSED_STALE = 1,     /* the id or the lease names nothing (any more) on this loop */
    QUOIT_REFUSED_FULL = 2,      /* the outbound queue is full; WRITABLE follows */
    QUOIT_REFUSED_TOO_LARGE = 3, /* one copied send of more than the high-water mark */
    QUOIT_REFUSED_CLOSING = 4,   /* the connection is closing, or this end has ended its direction */
    QUOIT_REFUSED_LIMIT = 5,     /* connections, listeners or timers */
    QUOIT_REFUSED_ERROR = 6      /* `error` says which: -EINVAL for a command that makes no sense; of a send that with
                                  * which an earlier one failed */
};

/* quoit_event.reason of QUOIT_EVENT_DATAGRAM_ERROR */
enum {
    QUOIT_DATAGRAM_ERROR_NETWORK = 1,   /* an earlier datagram did not arrive; only connected sockets are told so */
    QUOIT_DATAGRAM_ERROR_TOO_LARGE = 2, /* -EMSGSIZE: `length` bytes cannot be sent in one piece */
    QUOIT_DATAGRAM_ERROR_SEND = 3,      /* `length` bytes could not be sent */
    QUOIT_DATAGRAM_ERROR_CONTROL_TRUNCATED = 4, /* a datagram was dropped: an option was set that tells too much */
    QUOIT_DATAGRAM_ERROR_RECEIVE = 5,   /* want of the kernel's memory; tried again */
    QUOIT_DATAGRAM_ERROR_UNREACHABLE = 6 /* with TELL_UNREACHABLE: a datagram to `data` did not arrive */
};

/* quoit_datagrams.flags */
enum {
    QUOIT_DATAGRAMS_TRUNCATED = 1, /* it was longer than there was room, and the rest is lost */
    QUOIT_DATAGRAMS_ECN = 2        /* `ecn` is told */
};

/* What becomes of accepted connections: quoit_listen_options.accept. */
enum {
    QUOIT_ACCEPT_CONNECTIONS = 0, /* connections of this loop, which receive at once */
    QUOIT_ACCEPT_PAUSED = 1,      /* connections of this loop, paused */
    QUOIT_ACCEPT_DESCRIPTORS = 2, /* plain descriptors: QUOIT_EVENT_ACCEPTED_DESCRIPTOR */
    QUOIT_ACCEPT_SPREAD = 3       /* handed to the loop of `remotes` that has the fewest connections */
};

/* quoit_bind_options.flags */
enum {
    QUOIT_BIND_REUSE_PORT = 1,     /* SO_REUSEPORT: a second server gets no error, and closing resets what is queued */
    QUOIT_BIND_IPV6_ONLY = 2,      /* IPV6_V6ONLY */
    QUOIT_BIND_UNLINK_EXISTING = 4 /* remove a Unix socket's file on which nobody listens */
};

/* quoit_datagram_options.flags */
enum {
    QUOIT_DATAGRAM_REUSE_PORT = 1,    /* SO_REUSEPORT: several sockets of one user on one port */
    QUOIT_DATAGRAM_REUSE_ADDRESS = 2, /* SO_REUSEADDR: a port that others receive multicast on */
    QUOIT_DATAGRAM_BROADCAST = 4,     /* SO_BROADCAST: may send to broadcast addresses */
    QUOIT_DATAGRAM_IPV6_ONLY = 8,     /* IPV6_V6ONLY: without it, [::] takes IPv4 as well */
    QUOIT_DATAGRAM_TELL_ECN = 16,     /* tell each datagram's congestion notification */
    QUOIT_DATAGRAM_TELL_TIME = 32,    /* tell when the kernel received it */
    QUOIT_DATAGRAM_TELL_LOCAL = 64,   /* tell the address that it was sent to, and the interface */
    QUOIT_DATAGRAM_FORCE_RECEIVE_BUFFER = 128, /* `receive_buffer` past the system's cap; needs CAP_NET_ADMIN */
    QUOIT_DATAGRAM_PAUSED = 256,      /* deliver nothing until RESUME_DATAGRAMS */
    QUOIT_DATAGRAM_TELL_UNREACHABLE = 512 /* tell whose datagram did not arrive (IP_RECVERR), connected or not */
};

/* Whether the kernel may join datagrams of one sender (UDP_GRO): quoit_datagram_options.gro. */
enum {
    QUOIT_GRO_OFF = 0,
    QUOIT_GRO_TRANSPARENT = 1, /* joined; quoit_datagrams.count says how many there are */
    QUOIT_GRO_RAW = 2          /* joined, and counted as one */
};

/* Which socket of a group gets a datagram: quoit_datagram_socket_bind_group. */
enum {
    QUOIT_STEERING_HASH = 0, /* by the addresses and ports */
    QUOIT_STEERING_CPU = 1   /* by the processor that handled the packet */
};

/* quoit_counter_info.kind */
enum {
    QUOIT_FIGURE_COUNTER = 0, /* only grows */
    QUOIT_FIGURE_GAUGE = 1    /* the present value */
};

/* One request to a loop: 64 bytes, for good. Fields that a kind does not read are ignored, but for `flags` and
 * `reserved`, which must be 0. */
typedef struct quoit_command {
    uint16_t kind;      /* QUOIT_COMMAND_* */
    uint16_t flags;     /* QUOIT_FLAG_* */
    int32_t descriptor;
    uint64_t target;    /* a connection, a listener or a datagram socket */
    uint64_t token;     /* the caller's; comes back with the outcome. 0: none is wanted where one can do without */
    const void *data;
    uint32_t length;    /* bytes; SEND_DATAGRAMS, SEND_GATHERED: elements */
    uint32_t reserved;
    uint64_t offset;    /* bytes */
    uint64_t lease;
    int64_t time_ns;
} quoit_command;

/* One thing that happened: 64 bytes, for good. */
typedef struct quoit_event {
    uint16_t kind;      /* QUOIT_EVENT_* */
    uint16_t reason;    /* QUOIT_CLOSED_*, QUOIT_REFUSED_* or QUOIT_DATAGRAM_ERROR_* */
    int32_t error;      /* a negative errno, or 0 */
    int32_t descriptor;
    uint32_t length;    /* bytes at `data` */
    uint64_t connection; /* or a datagram socket */
    uint64_t listener;
    uint64_t token;
    const void *data;
    uint64_t lease;
    uint64_t reserved;
} quoit_event;

/* Options of a stream socket; those for TCP are ignored for Unix sockets. Part of others, so it cannot grow. */
typedef struct quoit_stream_options {
    uint32_t no_delay;       /* TCP_NODELAY, 0 or 1. Default 1 */
    uint32_t receive_buffer; /* SO_RCVBUF in bytes. Default 0: the kernel sizes it */
    uint32_t send_buffer;    /* SO_SNDBUF in bytes. Default 0: the kernel sizes it */
    uint32_t keepalive_idle_s;     /* seconds before the first probe. Default 0: no keepalive */
    uint32_t keepalive_interval_s; /* seconds between probes */
    uint32_t keepalive_probes;     /* unanswered ones after which the connection is reset */
    uint32_t reserved[2];
} quoit_stream_options;

/* The limits of one loop. quoit_config_default has the defaults; the core's `Config` documents each with its
 * reason. */
typedef struct quoit_config {
    uint32_t size;
    uint32_t engine;                /* QUOIT_ENGINE_*. Default AUTO */
    uint64_t without;               /* bits of quoit_capability: features of io_uring not to use. Default none */
    uint32_t connections;           /* at once, at most 2^20. Default 16,384 */
    uint32_t listeners;             /* at once. Default 64 */
    uint32_t timers;                /* at once. Default UNSET: two per connection and 1,024 more */
    uint32_t receive_slots;         /* of the receive pool, at most 2^15. Default 1,024 */
    uint32_t receive_slot_size;     /* bytes. Default 16 KiB */
    uint32_t leases_per_connection; /* past which its receiving pauses. Default 64 */
    uint32_t close_at_lease_limit;  /* 1: close there instead. Default 0 */
    uint32_t high_water;            /* bytes queued past which sends are refused. Default 256 KiB */
    uint32_t low_water;             /* bytes at which WRITABLE follows. Default 64 KiB */
    uint32_t send_pieces;           /* queued on one connection. Default 16,384 */
    uint32_t send_chunk_size;       /* bytes of a chunk for copied sends. Default 4 KiB */
    uint32_t send_chunks;           /* Default 16,384 */
    uint32_t zero_copy_threshold;   /* bytes from which sends are lent to the kernel. Default UNSET: never */
    uint32_t submission_queue;      /* entries, a power of two. Default 512 */
    uint32_t completion_queue;      /* entries, a power of two. Default 4,096 */
    uint32_t buffer_ring;           /* slots that the kernel holds, a power of two. Default 256 */
    uint32_t register_pool;         /* 1: register the pool's memory with the ring. Default 0 */
    uint32_t completions_per_turn;  /* about. Default 64 */
    uint32_t receives_per_turn;     /* for one connection, on epoll. Default 16 */
    uint32_t inbox;                 /* commands posted and not yet taken. Default 4,096 */
    int64_t kernel_poll_ns;         /* idle time of the kernel's polling thread. Default -1: none */
    int64_t connect_timeout_ns;     /* Default 30 s */
    int64_t close_deadline_ns;      /* how long a graceful close goes on with a peer that takes nothing. Default 10 s */
    int64_t ring_memory_patience_ns; /* how long making a ring is tried again on ENOMEM. Default 2 s */
    uint32_t datagram_sockets;      /* at once, at most 1,024. Default 64 */
    uint32_t wait;                  /* QUOIT_WAIT_*. Default BLOCK */
    int64_t spin_ns;                /* with WAIT_SPIN: how long before it sleeps; with WAIT_COALESCE: 1 us to 100 ms */
    uint32_t pollable;              /* 1: for a foreign poller, with quoit_fd. Default 0. Since 1.6 */
    uint32_t reserved;
    int64_t stall_limit_ns;         /* while memory is short, one that takes nothing is reset then. Default 30 s. Since 1.7 */
} quoit_config;

/* For QUOIT_COMMAND_CONNECT. Addresses are text: 127.0.0.1:80, [::1]:80, unix:/run/app.sock, unix:@abstract. */
typedef struct quoit_connect_options {
    uint32_t size;
    uint32_t address_length;
    const char *address;
    const char *local;     /* an address to bind to first */
    uint32_t local_length; /* 0: none */
    uint32_t reserved;
    int64_t timeout_ns;    /* negative: quoit_config.connect_timeout_ns */
    quoit_stream_options stream;
} quoit_connect_options;

/* For quoit_socket_bind. */
typedef struct quoit_bind_options {
    uint32_t size;
    uint32_t flags;          /* QUOIT_BIND_*. Default 0 */
    uint32_t backlog;        /* Default 4,096 */
    uint32_t receive_buffer; /* SO_RCVBUF in bytes, inherited by connections. Default 0: the kernel sizes it */
    uint32_t send_buffer;    /* SO_SNDBUF likewise */
    uint32_t reserved;
} quoit_bind_options;

/* For quoit_listen. */
typedef struct quoit_listen_options {
    uint32_t size;
    uint32_t accept;                     /* QUOIT_ACCEPT_*. Default CONNECTIONS */
    const quoit_remote *const *remotes;  /* with SPREAD: of the loops to hand to; they stay the caller's */
    uint32_t remote_count;
    uint32_t reserved;
    quoit_stream_options stream;         /* of accepted connections */
    uint32_t tell_failures;              /* 1: ACCEPT_FAILED tells of accepting that fails. Default 0. Since 1.9 */
    uint32_t reserved_too;
} quoit_listen_options;

/* A multicast group to be a member of. Part of others, so it cannot grow. */
typedef struct quoit_multicast_group {
    uint8_t address[16];     /* the first `address_length` bytes, in the order of the network */
    uint32_t address_length; /* 4: IPv4, 16: IPv6 */
    uint32_t interface;      /* by number (if_nametoindex(3)); 0: the kernel chooses */
} quoit_multicast_group;

/* How to set up a datagram socket. Options that its family does not have are ignored. */
typedef struct quoit_datagram_options {
    uint32_t size;
    uint32_t flags;          /* QUOIT_DATAGRAM_*. Default 0 */
    uint32_t max_datagram;   /* bytes received of one, at most 65,527; no effect with GRO. Default 65,527 */
    uint32_t slots;          /* of its own receive memory, at most 32,768. Default 64 */
    uint32_t gro;            /* QUOIT_GRO_*. Default OFF */
    uint32_t high_water;     /* bytes queued past which sends are refused. Default 256 KiB */
    uint32_t low_water;      /* bytes at which DATAGRAM_WRITABLE follows. Default 64 KiB */
    uint32_t queued_sends;   /* past which sends are refused, at most 65,536. Default 512 */
    uint32_t receive_buffer; /* SO_RCVBUF in bytes. Default 0: the system's */
    uint32_t send_buffer;    /* SO_SNDBUF in bytes. Default 0: the system's */
    uint32_t multicast_loop; /* 0 or 1: this host gets what is sent to a group. Default UNSET: the kernel's, 1 */
    uint32_t multicast_hops; /* that multicast may go, at most 255. Default UNSET: the kernel's, 1 */
    const quoit_multicast_group *groups; /* to join */
    uint32_t group_count;
    uint32_t peer_length;    /* bytes of `peer`. Default 0: not connected */
    const char *peer;        /* the only peer, an address as text */
} quoit_datagram_options;

/* What one buffer brought: `count` datagrams of one peer. With more than one, each has `segment_size` bytes, and only
 * the last one may be shorter. The library may append fields: `size` says how far it knows them. */
typedef struct quoit_datagrams {
    uint32_t size;
    uint32_t flags;         /* QUOIT_DATAGRAMS_* */
    const void *data;       /* the bytes of all, in their order */
    uint32_t length;        /* how many, possibly none */
    uint32_t count;         /* datagrams, at least 1 */
    uint32_t segment_size;  /* of joined ones; 0: it came alone */
    uint32_t peer_length;   /* bytes of `peer`; 0 for a Unix socket without a name */
    const void *peer;       /* who sent it: a struct sockaddr */
    int64_t timestamp_ns;   /* with TELL_TIME: when the kernel received it, since 1970; of joined ones the first */
    uint32_t interface;     /* with TELL_LOCAL: that it came by, by number; otherwise 0 */
    uint8_t local_length;   /* of `local`: 4, 16, or 0 if it is not told */
    uint8_t ecn;            /* the two bits of RFC 3168, if the flag says so */
    uint16_t reserved;
    uint8_t local[16];      /* with TELL_LOCAL: the IP address that it was sent to, in the order of the network */
} quoit_datagrams;

/* One datagram to be sent, or several of one size to one peer: 80 bytes, for good. `reserved` must be 0. */
typedef struct quoit_datagram_send {
    const void *data;       /* with `lease`: within the bytes of that */
    uint32_t length;        /* bytes, possibly none */
    uint16_t flags;         /* QUOIT_FLAG_BORROWED: the bytes are not copied during the call, but lent until
                             * DATAGRAM_SENT or DATAGRAM_REFUSED with the token, or DATAGRAM_CLOSED. QUOIT_FLAG_ECN */
    uint16_t segment_size;  /* cut into datagrams of this many bytes; 0: one datagram */
    uint64_t token;         /* comes back with DATAGRAM_SENT; 0: only failures are told, by DATAGRAM_ERROR */
    uint64_t lease;         /* not 0: received memory to send without a copy. It is used up, even if refused */
    const void *to;         /* a struct sockaddr; as in quoit_datagrams.peer, or from quoit_sockaddr_parse */
    uint32_t to_length;     /* bytes of `to`; 0: the peer that the socket is connected to */
    uint32_t interface;     /* to leave by, by number; 0: the kernel chooses */
    uint8_t source[16];     /* an IP address of this host, in the order of the network */
    uint8_t source_length;  /* 4, 16, or 0: the kernel chooses */
    uint8_t ecn;            /* with QUOIT_FLAG_ECN: 0 to 3; otherwise 0 */
    uint8_t reserved[14];
} quoit_datagram_send;

/* What a datagram socket has done since it was opened. */
typedef struct quoit_datagram_counters {
    uint32_t size;
    uint32_t reserved;
    uint64_t received;             /* datagrams delivered, joined ones one by one */
    uint64_t received_bytes;
    uint64_t received_buffers;     /* that they came in: received / received_buffers is the GRO ratio */
    uint64_t receive_batches;      /* turns that brought any */
    uint64_t largest_batch;        /* the most buffers that one turn brought */
    uint64_t kernel_drops;         /* buffers that the kernel dropped because the socket's memory was full */
    uint64_t pauses;               /* times that receiving paused because all slots were held */
    uint64_t truncated;            /* datagrams longer than max_datagram */
    uint64_t control_truncated;    /* datagrams dropped because their control messages came cut */
    uint64_t arms;                 /* receives that were armed */
    uint64_t receive_errors;       /* those of earlier sends (ICMP) included */
    uint64_t sent;                 /* datagrams that the kernel took, segments one by one */
    uint64_t sent_bytes;
    uint64_t sends;                /* that they took: sent / sends is the GSO ratio */
    uint64_t send_batches;         /* operations that those sends left in */
    uint64_t sends_refused;        /* because the queue was full */
    uint64_t send_errors;
    uint64_t segmentation_refused; /* sends in segments that were made one by one instead */
    uint64_t slots;
    uint64_t slots_leased;         /* held now */
    uint64_t slots_low_water;      /* the fewest not held at any moment */
    uint64_t queued_bytes;         /* for sending, now */
    uint64_t direct_sends;         /* of the sends, those of other threads while the loop slept. Since ABI 1.15 */
} quoit_datagram_counters;

/* A feature of io_uring. The texts live as long as the quoit_capabilities. */
typedef struct quoit_capability {
    uint32_t size;
    uint32_t usable;            /* 0 or 1 */
    uint64_t bit;               /* for quoit_config.without */
    const char *name;
    const char *about;          /* one line */
    const char *minimum_kernel; /* the first mainline one, for messages */
    const char *reason;         /* why it is not usable */
} quoit_capability;

/* What a counter is. The texts live for ever. */
typedef struct quoit_counter_info {
    uint32_t size;
    uint32_t kind;   /* QUOIT_FIGURE_* */
    uint32_t offset; /* in quoit_counters, in bytes; each is a uint64_t */
    uint32_t reserved;
    const char *name;
    const char *about;
} quoit_counter_info;

/* A snapshot of a loop's counters, since it was made. quoit_counter_describe says what each is. */
typedef struct quoit_counters {
    uint32_t size;
    uint32_t reserved;
    uint64_t turns;
    uint64_t enters;
    uint64_t system_calls;
    uint64_t submissions;
    uint64_t completions;
    uint64_t submission_queue_full;
    uint64_t completion_queue_overflows;
    uint64_t in_flight;
    uint64_t connections;
    uint64_t accepted;
    uint64_t accept_arms;
    uint64_t accept_paused_full;
    uint64_t accept_paused_resources;
    uint64_t connected;
    uint64_t closed_local;
    uint64_t closed_peer;
    uint64_t closed_reset;
    uint64_t closed_timeout;
    uint64_t closed_limit;
    uint64_t closed_error;
    uint64_t received_bytes;
    uint64_t received_pieces;
    uint64_t receive_arms;
    uint64_t receive_no_buffers;
    uint64_t receive_overshoot;
    uint64_t lease_cap_reached;
    uint64_t pool_slots;
    uint64_t pool_leased;
    uint64_t pool_low_water;
    uint64_t sends;
    uint64_t send_pieces;
    uint64_t sent_bytes;
    uint64_t sends_coalesced;
    uint64_t short_sends;
    uint64_t sends_refused;
    uint64_t queued_bytes;
    uint64_t send_chunks_used;
    uint64_t zero_copy_sends;
    uint64_t zero_copy_copied;
    uint64_t wake_writes;
    uint64_t posted_commands;
    uint64_t timers_fired;
    uint64_t loop_lag_max_ns;
    uint64_t surplus_events;
    /* Enters by how many operations they submitted, and by how many completions came of them: none, 1, 2 to 3, 4 to 7,
     * and so on, and the last from 256 on. */
    uint64_t enters_submitting_0;
    uint64_t enters_submitting_1;
    uint64_t enters_submitting_2;
    uint64_t enters_submitting_4;
    uint64_t enters_submitting_8;
    uint64_t enters_submitting_16;
    uint64_t enters_submitting_32;
    uint64_t enters_submitting_64;
    uint64_t enters_submitting_128;
    uint64_t enters_submitting_256;
    uint64_t enters_bringing_0;
    uint64_t enters_bringing_1;
    uint64_t enters_bringing_2;
    uint64_t enters_bringing_4;
    uint64_t enters_bringing_8;
    uint64_t enters_bringing_16;
    uint64_t enters_bringing_32;
    uint64_t enters_bringing_64;
    uint64_t enters_bringing_128;
    uint64_t enters_bringing_256;
    /* Since 1.7. */
    uint64_t leases_copied;
    uint64_t leases_copied_now;
    uint64_t stalled_closed;
    /* Since 1.12. */
    uint64_t coalesced_sleeps;
    /* Since 1.13. */
    uint64_t direct_sends;
} quoit_counters;

/* ---- The library. Any thread. ---- */

/* The ABI of the library, as QUOIT_ABI_VERSION. */
uint32_t quoit_abi_version(void);
/* 0 if a program made for the ABI `version` can use the library, or -EPROTONOSUPPORT. Call it first:
 * quoit_abi_check(QUOIT_ABI_VERSION). */
int quoit_abi_check(uint32_t version);
/* The library's own version, such as "0.1.0". */
const char *quoit_version(void);
/* Sizes, offsets and values of all that is above, as in quoit-layout.txt: for bindings that do not read C. */
const char *quoit_layout(void);
/* The text of the calling thread's last failed call. */
int quoit_error_text(char *buffer, size_t capacity);
/* The counter numbered `index`, from 0; -ENOENT after the last. */
int quoit_counter_describe(uint32_t index, quoit_counter_info *info);

/* ---- Defaults. Any thread. Set `size` first. ---- */

int quoit_config_default(quoit_config *config);
int quoit_connect_options_default(quoit_connect_options *options);
int quoit_bind_options_default(quoit_bind_options *options);
int quoit_listen_options_default(quoit_listen_options *options);
int quoit_datagram_options_default(quoit_datagram_options *options);

/* ---- What io_uring can do here. Any thread. ---- */

/* Makes a ring as a loop with `config` (null: the defaults) would, and drops it. */
int quoit_capabilities_probe(const quoit_config *config, quoit_capabilities **out);
/* 1 if such a loop can run on io_uring, 0 if not. */
int quoit_capabilities_usable(const quoit_capabilities *capabilities);
/* What is missing and the remedy, in one line. */
int quoit_capabilities_reason(const quoit_capabilities *capabilities, char *buffer, size_t capacity);
/* The feature numbered `index`, from 0; -ENOENT after the last. */
int quoit_capabilities_get(const quoit_capabilities *capabilities, uint32_t index, quoit_capability *capability);
void quoit_capabilities_free(quoit_capabilities *capabilities);

/* ---- Listening sockets. Any thread, one at a time for each socket. ---- */

/* Makes one. `options` may be null. Port 0 is resolved. */
int quoit_socket_bind(const char *address, size_t length, const quoit_bind_options *options, quoit_socket **out);
/* Takes over a descriptor that listens; it is the library's from now on, even on failure. */
int quoit_socket_adopt(int descriptor, quoit_socket **out);
/* Those that a service manager passed (sd_listen_fds(3)): returns how many, and fills `out` if there is room for all
 * of them. */
int quoit_socket_inherited(quoit_socket **out, size_t capacity);
/* The same socket once more, for another loop to accept from. */
int quoit_socket_clone(const quoit_socket *socket, quoit_socket **out);
/* The descriptor, which stays the socket's. */
int quoit_socket_fd(const quoit_socket *socket);
int quoit_socket_address(const quoit_socket *socket, char *buffer, size_t capacity);
/* The name that the service manager gave it; empty without one. */
int quoit_socket_name(const quoit_socket *socket, char *buffer, size_t capacity);
void quoit_socket_close(quoit_socket *socket);

/* ---- Datagram sockets that no loop has yet. Any thread, one at a time for each socket. ---- */

/* Makes one. `address` as for connections, or unix: for a Unix socket without a name, which can send and not be
 * answered. `options` may be null. Port 0 is resolved. */
int quoit_datagram_socket_bind(const char *address, size_t length, const quoit_datagram_options *options,
                               quoit_datagram_socket **out);
/* Makes `count` on one port, one for each of as many loops, and fills `out` with all of them or none. `steering` is one
 * of QUOIT_STEERING_*. */
int quoit_datagram_socket_bind_group(const char *address, size_t length, const quoit_datagram_options *options,
                                     uint32_t steering, quoit_datagram_socket **out, size_t count);
/* Takes over a datagram socket's descriptor; it is the library's from now on, even on failure. Of the options, those
 * that are set before binding have no effect. */
int quoit_datagram_socket_adopt(int descriptor, const quoit_datagram_options *options, quoit_datagram_socket **out);
/* The descriptor, which stays the socket's. */
int quoit_datagram_socket_fd(const quoit_datagram_socket *socket);
int quoit_datagram_socket_address(const quoit_datagram_socket *socket, char *buffer, size_t capacity);
void quoit_datagram_socket_close(quoit_datagram_socket *socket);

/* ---- Addresses as the kernel has them (struct sockaddr). Any thread. ---- */

/* Fills in the address that a text names, if there is room for it, and returns its length in bytes, at most 128. */
int quoit_sockaddr_parse(const char *address, size_t length, void *buffer, size_t capacity);
/* The text of one of `length` bytes. */
int quoit_sockaddr_text(const void *sockaddr, size_t length, char *buffer, size_t capacity);

/* ---- Plain descriptors, which stay the caller's. Any thread. ---- */

int quoit_fd_local_address(int descriptor, char *buffer, size_t capacity);
/* Also of a peer that has reset the connection. */
int quoit_fd_peer_address(int descriptor, char *buffer, size_t capacity);
int quoit_fd_set_stream_options(int descriptor, const quoit_stream_options *options);

/* ---- Loops. Any one thread before the first turn, then the thread of that. ---- */

/* Makes a loop. `config` may be null. `index`, below 4,096, is what tells the ids of a process's loops apart. */
int quoit_loop_create(const quoit_config *config, uint32_t index, quoit_loop **out);
/* Destroys it, on its thread, or elsewhere once that thread has ended. Waits for what the kernel still does, up to
 * five seconds. Connections end without events. */
int quoit_loop_destroy(quoit_loop *loop);
/* One turn: takes all commands, submits everything at once, waits until something happens or the time is over
 * (negative: for ever, 0: not at all), and fills at most `capacity` events, 4,096 at a time. Returns how many. What
 * found no room is kept, and the next turn does not wait. May return 0 early. The first one makes the calling thread
 * the loop's. */
int quoit_turn(quoit_loop *loop, const quoit_command *commands, size_t count, quoit_event *events, size_t capacity,
               int64_t timeout_ns);
/* A descriptor that is readable when a parked loop has something to do, for a foreign poller, level-triggered. Do not
 * read, write or close it. -EOPNOTSUPP for a loop that was made without quoit_config.pollable. */
int quoit_fd(quoit_loop *loop);
/* Parks the loop for a wait on quoit_fd, and returns how long that may last in nanoseconds: 0: do not wait, make a
 * turn of no time first; INT64_MAX: without end. */
int64_t quoit_next_deadline(quoit_loop *loop);
/* QUOIT_ENGINE_URING or QUOIT_ENGINE_EPOLL. */
int quoit_engine(quoit_loop *loop);
int quoit_engine_reason(quoit_loop *loop, char *buffer, size_t capacity);
/* Accepts from a socket, which is the library's from now on, even on failure. `options` may be null. */
int quoit_listen(quoit_loop *loop, quoit_socket *socket, const quoit_listen_options *options, uint64_t *listener);
int quoit_listener_address(quoit_loop *loop, uint64_t listener, char *buffer, size_t capacity);
int quoit_local_address(quoit_loop *loop, uint64_t connection, char *buffer, size_t capacity);
/* Also of a peer that has reset the connection. */
int quoit_peer_address(quoit_loop *loop, uint64_t connection, char *buffer, size_t capacity);
/* A connection's descriptor, for options; do not read, write or close it. */
int quoit_connection_fd(quoit_loop *loop, uint64_t connection);
/* A number that changes whenever the peer takes some of what was sent, as long as more was sent than it has taken: it tells
 * a slow reader from one that does not read, also once all is in the kernel's hands. A system call. -ENOENT. Since ABI 1.8. */
int64_t quoit_taken_by_peer(quoit_loop *loop, uint64_t connection);
/* Bytes that are queued for sending: turns have taken them, and the kernel has not. -ENOENT. Since ABI 1.10. */
int64_t quoit_queued(quoit_loop *loop, uint64_t connection);
/* Gives the kernel as much of these pieces as it takes at once, behind nothing that is queued; of more than 1,024 the
 * first. Keeps nothing, and returns the bytes taken: 0 where SEND has to be used, on io_uring for all below 8 KiB, and
 * where the connection has had its share of the turn (4 MiB, a call counting as 4 KiB at least).
 * What is not yet given to a turn is not queued. -ENOENT; the error with which this or an earlier send failed; -EPIPE if
 * this end has ended its direction. */
struct iovec;
int64_t quoit_try_send(quoit_loop *loop, uint64_t connection, const struct iovec *pieces, size_t count);
/* Opens a datagram socket, which is the library's from now on, even on failure, and fills in its id. DATAGRAM_OPENED
 * with the token follows. */
int quoit_open_datagram(quoit_loop *loop, quoit_datagram_socket *socket, uint64_t token, uint64_t *id);
int quoit_datagram_address(quoit_loop *loop, uint64_t socket, char *buffer, size_t capacity);
/* A datagram socket's descriptor, for options and names; do not read, write or close it. */
int quoit_datagram_fd(quoit_loop *loop, uint64_t socket);
/* A datagram socket's counters as of now. Set `size` first. */
int quoit_datagram_counters_read(quoit_loop *loop, uint64_t socket, quoit_datagram_counters *counters);
/* The counters as of now. Set `size` first. */
int quoit_loop_counters(quoit_loop *loop, quoit_counters *counters);

/* ---- Remotes. Any thread, also after their loop was destroyed. ---- */

/* The loop's remote, to be released. On the loop's thread. */
int quoit_loop_remote(quoit_loop *loop, const quoit_remote **out);
int quoit_remote_retain(const quoit_remote *remote);
void quoit_remote_release(const quoit_remote *remote);
/* Posts commands, in order, and returns how many; fewer if the inbox is full, and what the others name stays the
 * caller's. -ESHUTDOWN if the loop is gone. Bytes to be copied are copied now; with a token, SENT follows. */
int64_t quoit_remote_post(const quoit_remote *remote, const quoit_command *commands, size_t count);
/* Makes the loop report WOKEN. */
int quoit_remote_wake(const quoit_remote *remote);
/* Returns leases, and returns how many; -ENOENT if some were none, and the others are returned. */
int64_t quoit_remote_return_leases(const quoit_remote *remote, const uint64_t *leases, size_t count);
/* The loop's counters, at any moment. While it runs two of them may be of moments a little apart; connections,
 * pool_leased, pool_low_water, send_chunks_used and leases_copied_now are as they were when it last looked for
 * completions. Set `size` first. */
int quoit_remote_counters(const quoit_remote *remote, quoit_counters *counters);
/* Connections of the loop, a moment ago. */
int quoit_remote_connections(const quoit_remote *remote);

/* ---- Sending from other threads while the loop sleeps. Since ABI 1.14. ---- */

/* What sends on a connection from any thread, to be released. On the loop's thread. -ENOENT; the error with which an
 * earlier send failed; -EPIPE if this end has ended its direction. */
int quoit_loop_direct_sender(quoit_loop *loop, uint64_t connection, const quoit_direct_sender **out);
/* Gives the kernel as much of these pieces as it takes at once, if the loop sleeps and nothing is queued before them; of
 * more than 1,024 the first. Keeps nothing, and returns the bytes taken. The rest is the loop's to send: 0 also where the
 * connection sends no more. The caller keeps the order: it gives the loop nothing meanwhile that is to leave before these
 * bytes, nor anything behind them. Any thread, also after the loop was destroyed. */
int64_t quoit_direct_sender_try_send(const quoit_direct_sender *sender, const struct iovec *pieces, size_t count);
/* Null is fine. No call on it may be under way, or follow. Any thread, also after the loop was destroyed. */
void quoit_direct_sender_release(const quoit_direct_sender *sender);

/* The same for datagrams. Since ABI 1.15. */

/* What sends on a datagram socket from any thread, to be released. On the loop's thread. -ENOENT; -EPIPE if the socket is
 * being closed. */
int quoit_loop_direct_datagram_sender(quoit_loop *loop, uint64_t socket, const quoit_direct_datagram_sender **out);
/* Sends one datagram to a struct sockaddr, or with to_length 0 to whom the socket is connected, if the loop sleeps and has
 * nothing queued for the socket. Never waits, and keeps nothing. 1: it has left; 0: the loop is to be given it, also where
 * it cannot be sent. Any thread, also after the loop was destroyed. */
int quoit_direct_datagram_sender_try_send(const quoit_direct_datagram_sender *sender, const void *to, size_t to_length,
                                          const void *data, size_t length);
/* Null is fine. No call on it may be under way, or follow. Any thread, also after the loop was destroyed. */
void quoit_direct_datagram_sender_release(const quoit_direct_datagram_sender *sender);

#ifdef __cplusplus
}
#endif

#endif
