/*
 * Spins the C ABI: calls in random order with random ids, sizes, descriptors and orders, valid and not, from several
 * threads. Usage: spin ENGINE SEED CALLS
 *
 * What must hold: nothing crashes or leaks (the sanitizer or valgrind sees to that), every failure is an errno that is
 * documented and has a text, and a thread that is not the loop's is kept out.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <quoit.h>

#define KEPT 256
#define COMMANDS 16
#define EVENTS 32
#define BYTES 4096
#define SENDS 4
#define PIECES 6
/* Descriptors beyond those that this process ever has. */
#define NO_DESCRIPTOR 1000000

/* Lent to sends, so never changed. */
static char lent[BYTES];

struct shared {
    quoit_loop *loop;
    const quoit_remote *remote;
    uint64_t seed;
    long calls;
    /* To be used and released by whoever takes it. */
    _Atomic(const quoit_direct_sender *) sender;
    _Atomic(const quoit_direct_datagram_sender *) datagram_sender;
    atomic_int turned;
    atomic_int done;
};

/* xorshift64*, Vigna 2016. */
static uint64_t next(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 2685821657736338717u;
}

static uint64_t below(uint64_t *state, uint64_t limit)
{
    return next(state) % limit;
}

static void stop(const char *what, long code)
{
    char text[256];
    quoit_error_text(text, sizeof text);
    fprintf(stderr, "%s returned %ld: %s\n", what, code, text);
    abort();
}

/* Any success, or any error but that of a fault in the library. */
static long sound(const char *what, long code)
{
    char text[8];
    if (code == -ENOTRECOVERABLE || code < -4095)
        stop(what, code);
    if (code < 0 && quoit_error_text(text, sizeof text) <= 0)
        stop(what, code);
    return code;
}

static void must(const char *what, long code, long expected)
{
    if (code != expected)
        stop(what, code);
}

/* Values seen, to be used again, rightly or not. */
struct kept {
    uint64_t values[KEPT];
    size_t count;
};

static void keep(struct kept *kept, uint64_t value)
{
    kept->values[kept->count++ % KEPT] = value;
}

static uint64_t any(const struct kept *kept, uint64_t *random)
{
    switch (below(random, 8)) {
    case 0: return next(random);
    case 1: return below(random, 1u << 20);
    default: return kept->values[below(random, KEPT)];
    }
}

/* An open stream socket whose peer is closed sooner or later, or no descriptor at all. */
static int some_descriptor(uint64_t *random, struct kept *peers)
{
    int pair[2];
    if (below(random, 4) == 0)
        return below(random, 2) ? -1 : NO_DESCRIPTOR;
    if (below(random, 4) == 0)
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return -1;
    fcntl(pair[1], F_SETFL, O_NONBLOCK);
    if (below(random, 2)) {
        ssize_t written = write(pair[1], lent, 1 + below(random, BYTES));
        (void)written;
    }
    if (peers->count >= KEPT)
        close((int)peers->values[peers->count % KEPT]);
    keep(peers, (uint64_t)pair[1]);
    return pair[0];
}

struct random_state {
    uint64_t random;
    struct kept connections;
    struct kept leases;
    struct kept peers;
    quoit_connect_options connect;
    /* What one turn's commands point at. */
    quoit_datagram_send sends[COMMANDS][SENDS];
    struct iovec pieces[COMMANDS][PIECES];
    quoit_multicast_group groups[COMMANDS];
    struct sockaddr_in nowhere;
};

/* Options of datagram sockets, some of which make no sense. */
static void random_options(uint64_t *random, quoit_datagram_options *options)
{
    static const char peer[] = "127.0.0.1:9";
    options->size = sizeof *options;
    quoit_datagram_options_default(options);
    options->slots = 1 + (uint32_t)below(random, 8);
    options->max_datagram = 1 + (uint32_t)below(random, 2000);
    options->gro = (uint32_t)below(random, 3);
    options->high_water = 1 + (uint32_t)below(random, 2 * BYTES);
    options->low_water = 0;
    options->queued_sends = 1 + (uint32_t)below(random, 8);
    options->flags = (uint32_t)below(random, 2 * QUOIT_DATAGRAM_PAUSED);
    options->flags &= ~(uint32_t)QUOIT_DATAGRAM_FORCE_RECEIVE_BUFFER;
    if (below(random, 4) == 0) {
        options->peer = peer;
        options->peer_length = sizeof peer - 1;
    }
    switch (below(random, 16)) {
    case 0: options->flags = (uint32_t)next(random); break;
    case 1: options->size = (uint32_t)below(random, sizeof *options); break;
    case 2: options->gro = 9; break;
    case 3: options->slots = (uint32_t)next(random); break;
    case 4: options->multicast_hops = (uint32_t)next(random); break;
    default: break;
    }
}

static quoit_datagram_socket *random_datagram_socket(uint64_t *random)
{
    static const char *const addresses[] = {"127.0.0.1:0", "[::]:0", "unix:", "0.0.0.0:0", "nonsense"};
    const char *address = addresses[below(random, 5)];
    quoit_datagram_socket *socket = NULL;
    quoit_datagram_options options;
    random_options(random, &options);
    if (sound("quoit_datagram_socket_bind",
              quoit_datagram_socket_bind(address, strlen(address), below(random, 8) ? &options : NULL, &socket)) < 0)
        return NULL;
    return socket;
}

/* `place` is the command's among those of its turn. */
static void random_sends(struct random_state *state, quoit_command *command, size_t place)
{
    uint64_t *random = &state->random;
    size_t index;
    command->length = (uint32_t)below(random, SENDS + 1);
    command->data = below(random, 32) ? state->sends[place] : NULL;
    for (index = 0; index < SENDS; index++) {
        quoit_datagram_send *send = &state->sends[place][index];
        memset(send, 0, sizeof *send);
        send->data = below(random, 16) ? lent : NULL;
        send->length = (uint32_t)below(random, below(random, 8) ? 200 : BYTES + 1);
        send->to = below(random, 8) ? (const void *)&state->nowhere : NULL;
        send->to_length = below(random, 8) ? sizeof state->nowhere : (uint32_t)below(random, sizeof state->nowhere);
        send->token = below(random, 8);
        send->segment_size = below(random, 4) ? 0 : (uint16_t)below(random, 600);
        if (send->to == NULL)
            send->to_length = 0;
        if (below(random, 3) == 0)
            send->flags |= QUOIT_FLAG_BORROWED;
        if (below(random, 6) == 0) {
            send->flags |= QUOIT_FLAG_ECN;
            send->ecn = (uint8_t)below(random, 4);
        }
        if (below(random, 4) == 0) {
            send->lease = any(&state->leases, random);
            send->length = below(random, 2) ? 0 : send->length;
        }
        switch (below(random, 64)) {
        case 0: send->flags = (uint16_t)next(random); break;
        case 1: send->source_length = (uint8_t)next(random); break;
        case 2: send->reserved[below(random, 14)] = 1; break;
        case 3: send->interface = (uint32_t)below(random, 8); break;
        default: break;
        }
    }
}

/* A port that nobody has. */
static struct sockaddr_in loopback(void)
{
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(9);
    return address;
}

/* What a command that was not taken leaves in the caller's hands. */
static void keep_own(const quoit_command *command)
{
    if (command->descriptor >= 0 && command->descriptor != NO_DESCRIPTOR)
        close(command->descriptor);
    if (command->kind == QUOIT_COMMAND_OPEN_DATAGRAM)
        quoit_datagram_socket_close((quoit_datagram_socket *)(uintptr_t)command->data);
}

static void random_connect(struct random_state *state, quoit_command *command)
{
    static const char *const addresses[] = {"127.0.0.1:1", "unix:@quoit-spin-nobody", "[::1]:1", "nonsense", ""};
    quoit_connect_options *options = &state->connect;
    const char *address = addresses[below(&state->random, 5)];
    options->size = sizeof *options;
    quoit_connect_options_default(options);
    options->address = address;
    options->address_length = (uint32_t)strlen(address);
    options->timeout_ns = (int64_t)below(&state->random, 1000000);
    if (below(&state->random, 8) == 0)
        options->size = (uint32_t)below(&state->random, sizeof *options);
    if (below(&state->random, 8) == 0)
        options->stream.no_delay = 7;
    command->data = below(&state->random, 16) ? options : NULL;
    command->length = sizeof *options;
}

static void random_pieces(struct random_state *state, quoit_command *command, size_t place)
{
    uint64_t *random = &state->random;
    size_t index;
    for (index = 0; index < PIECES; index++) {
        struct iovec *piece = &state->pieces[place][index];
        piece->iov_base = lent;
        piece->iov_len = (size_t)below(random, below(random, 4) ? 100 : BYTES + 1);
        if (below(random, 64) == 0)
            piece->iov_base = NULL;
        if (below(random, 64) == 0)
            piece->iov_len = (size_t)1 << 32;
    }
    command->data = below(random, 16) ? state->pieces[place] : NULL;
    /* More than may be are refused before they are read. */
    command->length = (uint32_t)(below(random, 16) ? below(random, PIECES + 1) : 1025 + below(random, 4000000000u));
}

static void random_command(struct random_state *state, quoit_command *command, size_t place)
{
    uint64_t *random = &state->random;
    memset(command, 0, sizeof *command);
    command->kind = (uint16_t)below(random, LAST_COMMAND + 3);
    command->target = any(&state->connections, random);
    command->token = below(random, 8);
    command->lease = any(&state->leases, random);
    command->descriptor = -1;
    command->time_ns = (int64_t)below(random, 2000000) - 1000;
    command->data = lent;
    command->length = (uint32_t)below(random, BYTES + 1);
    command->offset = below(random, 4) ? 0 : next(random);
    if (below(random, 16) == 0)
        command->flags = (uint16_t)next(random);
    if (below(random, 32) == 0)
        command->reserved = (uint32_t)next(random);
    switch (command->kind) {
    case QUOIT_COMMAND_CONNECT:
        random_connect(state, command);
        break;
    case QUOIT_COMMAND_ATTACH:
        command->target = below(random, 4) ? 0 : command->target;
        command->descriptor = some_descriptor(random, &state->peers);
        break;
    case QUOIT_COMMAND_SEND_FILE:
        command->descriptor = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        break;
    case QUOIT_COMMAND_SEND:
        if (below(random, 3) == 0)
            command->flags |= QUOIT_FLAG_BORROWED;
        if (below(random, 16) == 0)
            command->data = NULL;
        break;
    case QUOIT_COMMAND_SEND_GATHERED:
        random_pieces(state, command, place);
        break;
    case QUOIT_COMMAND_OPEN_DATAGRAM:
        command->data = random_datagram_socket(random);
        break;
    case QUOIT_COMMAND_SEND_DATAGRAMS:
        random_sends(state, command, place);
        break;
    case QUOIT_COMMAND_JOIN_MULTICAST:
    case QUOIT_COMMAND_LEAVE_MULTICAST: {
        quoit_multicast_group *group = &state->groups[place];
        memset(group, 0, sizeof *group);
        group->address[0] = below(random, 4) ? 239 : 10;
        group->address_length = below(random, 8) ? 4 : (uint32_t)below(random, 20);
        group->interface = (uint32_t)below(random, 3);
        command->data = below(random, 8) ? group : NULL;
        break;
    }
    case QUOIT_COMMAND_DRAIN:
        /* Would end the fun: left to the end. */
        command->kind = QUOIT_COMMAND_RETURN_LEASE;
        break;
    default:
        break;
    }
}

static void take_events(struct random_state *state, const quoit_event *events, long count)
{
    unsigned char sum = 0, peers = 0;
    long index;
    for (index = 0; index < count; index++) {
        const quoit_event *event = &events[index];
        uint32_t byte;
        if (event->kind < QUOIT_EVENT_ACCEPTED || event->kind > LAST_EVENT || event->reserved != 0)
            stop("an event of a kind that is not known", event->kind);
        if (event->connection != 0)
            keep(&state->connections, event->connection);
        if (event->kind == QUOIT_EVENT_DATA) {
            for (byte = 0; byte < event->length; byte++)
                sum ^= ((const unsigned char *)event->data)[byte];
            keep(&state->leases, event->lease);
        }
        if (event->kind == QUOIT_EVENT_DATAGRAMS) {
            const quoit_datagrams *view = (const quoit_datagrams *)event->data;
            for (byte = 0; byte < view->length; byte++)
                sum ^= ((const unsigned char *)view->data)[byte];
            for (byte = 0; byte < view->peer_length; byte++)
                peers ^= ((const unsigned char *)view->peer)[byte];
            keep(&state->leases, event->lease);
        }
        if (event->descriptor >= 0)
            close(event->descriptor);
    }
    if (sum != 0)
        stop("bytes that nobody sent", sum);
    /* Read to be checked by the sanitizer only. */
    (void)peers;
}

static void random_turn(struct shared *shared, struct random_state *state)
{
    quoit_command commands[COMMANDS];
    quoit_event events[EVENTS];
    size_t count = below(&state->random, COMMANDS + 1), capacity = below(&state->random, EVENTS + 1), index;
    long filled;
    memset(commands, 0, sizeof commands);
    for (index = 0; index < count; index++)
        random_command(state, &commands[index], index);
    filled = quoit_turn(shared->loop, commands, count, events, capacity, (int64_t)below(&state->random, 10000));
    if (capacity == 0) {
        must("a turn without room", filled, -EINVAL);
        for (index = 0; index < count; index++)
            keep_own(&commands[index]);
        return;
    }
    if (sound("quoit_turn", filled) < 0)
        stop("quoit_turn", filled);
    take_events(state, events, filled);
}

static void random_question(struct shared *shared, struct random_state *state)
{
    char text[64];
    uint64_t id = any(&state->connections, &state->random);
    size_t room = below(&state->random, sizeof text + 1);
    quoit_counters counters;
    memset(&counters, 0, sizeof counters);
    switch (below(&state->random, 22)) {
    case 12: sound("quoit_datagram_address", quoit_datagram_address(shared->loop, id, text, room)); break;
    case 13: sound("quoit_datagram_fd", quoit_datagram_fd(shared->loop, id)); break;
    case 14: {
        quoit_datagram_counters counts;
        memset(&counts, 0, sizeof counts);
        counts.size = (uint32_t)below(&state->random, sizeof counts + 1);
        sound("quoit_datagram_counters_read", quoit_datagram_counters_read(shared->loop, id, &counts));
        break;
    }
    case 15: {
        uint64_t opened;
        quoit_datagram_socket *socket = random_datagram_socket(&state->random);
        /* Half of them are sent to by the random sends. */
        if (socket != NULL && below(&state->random, 2)) {
            socklen_t length = sizeof state->nowhere;
            struct sockaddr_storage address;
            memset(&address, 0, sizeof address);
            if (quoit_datagram_socket_address(socket, text, sizeof text) > 0 && strncmp(text, "127", 3) == 0
                && quoit_sockaddr_parse(text, strlen(text), &address, sizeof address) == (int)length)
                memcpy(&state->nowhere, &address, length);
        }
        if (sound("quoit_open_datagram",
                  quoit_open_datagram(shared->loop, socket, below(&state->random, 8), &opened)) == 0)
            keep(&state->connections, opened);
        break;
    }
    case 16: {
        quoit_datagram_socket *socket;
        quoit_datagram_options options;
        random_options(&state->random, &options);
        if (sound("quoit_datagram_socket_adopt",
                  quoit_datagram_socket_adopt(some_descriptor(&state->random, &state->peers), &options, &socket)) == 0)
            quoit_datagram_socket_close(socket);
        break;
    }
    case 0: sound("quoit_local_address", quoit_local_address(shared->loop, id, text, room)); break;
    case 1: sound("quoit_peer_address", quoit_peer_address(shared->loop, id, text, room)); break;
    case 18: sound("quoit_taken_by_peer", quoit_taken_by_peer(shared->loop, id) < 0 ? -1 : 0); break;
    case 19: sound("quoit_queued", quoit_queued(shared->loop, id) < 0 ? -1 : 0); break;
    case 2: sound("quoit_connection_fd", quoit_connection_fd(shared->loop, id)); break;
    case 3: sound("quoit_listener_address", quoit_listener_address(shared->loop, id, text, room)); break;
    case 4: sound("quoit_engine_reason", quoit_engine_reason(shared->loop, text, room)); break;
    case 5:
        counters.size = (uint32_t)below(&state->random, sizeof counters + 1);
        sound("quoit_loop_counters", quoit_loop_counters(shared->loop, &counters));
        break;
    case 17: {
        char piece[64] = {0};
        const struct iovec pieces[] = {{piece, below(&state->random, sizeof piece + 1)}, {NULL, 1}};
        sound("quoit_try_send", (long)quoit_try_send(shared->loop, id, pieces, below(&state->random, 3)));
        break;
    }
    case 20: {
        const quoit_direct_sender *sender;
        if (sound("quoit_loop_direct_sender", quoit_loop_direct_sender(shared->loop, id, &sender)) == 0)
            quoit_direct_sender_release(atomic_exchange(&shared->sender, sender));
        break;
    }
    case 21: {
        const quoit_direct_datagram_sender *sender;
        if (sound("quoit_loop_direct_datagram_sender", quoit_loop_direct_datagram_sender(shared->loop, id, &sender)) == 0)
            quoit_direct_datagram_sender_release(atomic_exchange(&shared->datagram_sender, sender));
        break;
    }
    case 6: sound("quoit_next_deadline", (long)quoit_next_deadline(shared->loop)); break;
    case 7: sound("quoit_fd", quoit_fd(shared->loop)); break;
    case 8: must("a turn of no loop", quoit_turn(NULL, NULL, 0, NULL, 0, 0), -EINVAL); break;
    case 9: must("a turn without events", quoit_turn(shared->loop, NULL, 0, NULL, 4, 0), -EINVAL); break;
    case 10: {
        quoit_socket *socket;
        int descriptor = some_descriptor(&state->random, &state->peers);
        must("adopting what does not listen", quoit_socket_adopt(descriptor, &socket) < 0, 1);
        break;
    }
    default: {
        uint64_t listener;
        quoit_socket *socket;
        quoit_listen_options options;
        memset(&options, 0, sizeof options);
        options.size = sizeof options;
        options.accept = (uint32_t)below(&state->random, 6);
        options.remotes = &shared->remote;
        options.remote_count = (uint32_t)below(&state->random, 2);
        if (quoit_socket_bind("127.0.0.1:0", 11, NULL, &socket) < 0)
            break;
        if (sound("quoit_listen", quoit_listen(shared->loop, socket, &options, &listener)) == 0)
            keep(&state->connections, listener);
        break;
    }
    }
}

/* Another thread: may use the remote, and nothing of the loop. */
static void *interfere(void *argument)
{
    struct shared *shared = (struct shared *)argument;
    struct random_state *state = (struct random_state *)calloc(1, sizeof *state);
    quoit_event event;
    long call;
    state->random = shared->seed * 31 + 17;
    state->nowhere = loopback();
    while (!atomic_load(&shared->turned))
        sched_yield();
    for (call = 0; call < shared->calls || !atomic_load(&shared->done); call++) {
        quoit_command commands[4];
        size_t count = below(&state->random, 5), index;
        long code;
        memset(commands, 0, sizeof commands);
        switch (below(&state->random, 8)) {
        case 0:
            must("a turn on another thread", quoit_turn(shared->loop, NULL, 0, &event, 1, 0), -EPERM);
            break;
        case 1:
            must("destroying on another thread", quoit_loop_destroy(shared->loop), -EPERM);
            break;
        case 2:
            sound("quoit_remote_wake", quoit_remote_wake(shared->remote));
            break;
        case 3: {
            /* Numbers that were given to nobody, or to the other thread. */
            uint64_t lease = below(&state->random, 64) | below(&state->random, 4) << 16;
            if (below(&state->random, 2))
                lease = 1ull << 63 | below(&state->random, 4) << 26 | below(&state->random, 8);
            sound("quoit_remote_return_leases", (long)quoit_remote_return_leases(shared->remote, &lease, 1));
            break;
        }
        case 4:
            must("retaining", quoit_remote_retain(shared->remote), 0);
            quoit_remote_release(shared->remote);
            sound("quoit_remote_connections", quoit_remote_connections(shared->remote));
            break;
        case 5: {
            const quoit_direct_sender *sender = atomic_exchange(&shared->sender, NULL);
            char piece[64] = {0};
            const struct iovec pieces[] = {{piece, below(&state->random, sizeof piece + 1)}, {NULL, 1}};
            if (sender != NULL)
                sound("quoit_direct_sender_try_send",
                      (long)quoit_direct_sender_try_send(sender, pieces, below(&state->random, 3)));
            quoit_direct_sender_release(sender);
            break;
        }
        case 6: {
            const quoit_direct_datagram_sender *sender = atomic_exchange(&shared->datagram_sender, NULL);
            const char bytes[64] = {0};
            struct sockaddr_in to;
            memset(&to, 0, sizeof to);
            to.sin_family = AF_INET;
            to.sin_port = (in_port_t)next(&state->random);
            to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            if (sender != NULL)
                sound("quoit_direct_datagram_sender_try_send",
                      quoit_direct_datagram_sender_try_send(sender, &to,
                                                            below(&state->random, 2) ? sizeof to
                                                                                     : below(&state->random, sizeof to),
                                                            bytes, below(&state->random, sizeof bytes + 1)));
            quoit_direct_datagram_sender_release(sender);
            break;
        }
        default:
            for (index = 0; index < count; index++)
                random_command(state, &commands[index], index);
            code = sound("quoit_remote_post", (long)quoit_remote_post(shared->remote, commands, count));
            for (index = code < 0 ? 0 : (size_t)code; index < count; index++)
                keep_own(&commands[index]);
        }
        if (call >= shared->calls)
            sched_yield();
    }
    for (call = 0; call < KEPT && call < (long)state->peers.count; call++)
        close((int)state->peers.values[call]);
    free(state);
    return NULL;
}

static void drain(struct shared *shared, struct random_state *state)
{
    quoit_event events[EVENTS];
    quoit_command command;
    int drained = 0;
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_DRAIN;
    while (!drained) {
        int posted = command.kind == 0;
        long index, filled;
        /* The inbox may be full until the next turn. */
        if (!posted && sound("quoit_remote_post", (long)quoit_remote_post(shared->remote, &command, 1)) == 1)
            command.kind = 0;
        filled = quoit_turn(shared->loop, NULL, 0, events, EVENTS, posted ? 1000000000 : 0);
        if (filled < 0)
            stop("quoit_turn", filled);
        take_events(state, events, filled);
        for (index = 0; index < filled; index++)
            drained |= events[index].kind == QUOIT_EVENT_DRAINED;
    }
}

int main(int argc, char **argv)
{
    static struct shared shared;
    static struct random_state state;
    quoit_config config;
    pthread_t other;
    quoit_command command;
    size_t index;
    long call;
    if (argc != 4)
        return 2;
    shared.seed = state.random = strtoull(argv[2], NULL, 10) * 2 + 1;
    shared.calls = atol(argv[3]);
    state.nowhere = loopback();
    config.size = sizeof config;
    must("quoit_config_default", quoit_config_default(&config), 0);
    config.engine = strcmp(argv[1], "uring") == 0 ? QUOIT_ENGINE_URING : QUOIT_ENGINE_EPOLL;
    config.connections = 64;
    config.receive_slots = 64;
    config.receive_slot_size = 512;
    config.buffer_ring = 16;
    config.leases_per_connection = 4;
    config.inbox = 16;
    config.pollable = 1;
    config.datagram_sockets = 8;
    must("a loop numbered too high", quoit_loop_create(&config, 4096, &shared.loop), -EINVAL);
    must("quoit_loop_create", quoit_loop_create(&config, 9, &shared.loop), 0);
    must("quoit_loop_remote", quoit_loop_remote(shared.loop, &shared.remote), 0);
    must("pthread_create", pthread_create(&other, NULL, interfere, &shared), 0);
    for (call = 0; call < shared.calls; call++) {
        if (below(&state.random, 4))
            random_turn(&shared, &state);
        else if (call > 0)
            random_question(&shared, &state);
        if (call == 8) {
            quoit_event event;
            /* The random turns may all have had no room, and then the loop is nobody's yet. */
            long filled = quoit_turn(shared.loop, NULL, 0, &event, 1, 0);
            if (filled < 0)
                stop("quoit_turn", filled);
            take_events(&state, &event, filled);
            atomic_store(&shared.turned, 1);
        }
    }
    atomic_store(&shared.done, 1);
    must("pthread_join", pthread_join(other, NULL), 0);
    drain(&shared, &state);
    must("quoit_loop_destroy", quoit_loop_destroy(shared.loop), 0);

    /* The remote outlives it, and so do leases. */
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_PAUSE;
    must("posting to a loop that is gone", (long)quoit_remote_post(shared.remote, &command, 1), -ESHUTDOWN);
    must("waking a loop that is gone", quoit_remote_wake(shared.remote), 0);
    for (index = 0; index < KEPT; index++)
        quoit_remote_return_leases(shared.remote, &state.leases.values[index], 1);
    quoit_remote_release(shared.remote);
    quoit_direct_sender_release(atomic_load(&shared.sender));
    quoit_direct_datagram_sender_release(atomic_load(&shared.datagram_sender));
    for (index = 0; index < KEPT && index < state.peers.count; index++)
        close((int)state.peers.values[index]);
    return 0;
}
