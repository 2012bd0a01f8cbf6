/*
 * No connection keeps others from being served, whatever it does. Usage: fairness ENGINE
 *
 * The peers are sockets of the same thread, so that it is known what each has sent and read when the loop makes a turn.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

/* Turns in which a well-behaved connection is answered, whatever the others do. */
#define TURNS 200
/* What one connection is sent at once in a turn, but for the last call's bytes (docs/execution.md). */
#define SHARE_OF_TURN (4u << 20)
/* One call of the endless response: what a kernel that has room takes at once, however short of memory its sockets are, as
 * the crowd's unread bytes make them. After a call that is taken in part the loop may ask no more in its turn, and its own
 * limit would not be seen. */
#define PIECE (16u << 10)
/* Bytes that an echo leaves unacknowledged before it stops receiving: the default of quoit_config.high_water. */
#define OUTSTANDING (256u << 10)
/* Bytes of a socket's buffer with which little is on the way, and what matters is what the loop holds. */
#define SMALL 4096
/* Bytes that each connection of a crowd, and its peer, have to send from. The kernel's memory for TCP is common to all (tcp_mem,
 * tcp(7)): a crowd with as many as the kernel thinks best uses up that of a small machine, where then nobody sends any more. */
#define OF_A_CROWD (128 << 10)
/* What a connection sends first. Others are sent back what they send. */
#define ENDLESS '!'    /* for a response that has no end */
#define UNFINISHED '?' /* for a request that is never complete, and is held until it is */
/* The token of the endless response's sends that wait in the loop's queue; no echo goes so far. */
#define QUEUED UINT64_MAX
#define CONNECTIONS 256
#define EVENTS 64
#define COMMANDS 16384
/* A connection has at most 64 leases, and what arrived past that. */
#define HELD 256
#define MILLISECONDS 1000000

struct connection {
    uint64_t id; /* 0: none */
    /* Bytes so far. Each send has as its token how many there are with it. */
    uint64_t sent, acknowledged;
    int paused;
    /* Received and not sent yet. */
    quoit_event held[HELD];
    size_t held_count;
};

static struct connection connections[CONNECTIONS];
static quoit_command commands[COMMANDS];
static size_t count;
static quoit_loop *loop;

/* The response without end: written by as many calls as are taken, to a peer that reads as fast as it is written. */
static struct {
    uint64_t id; /* 0: none, or no more */
    int peer;
    int queued;       /* the last piece found no room, and waits in the loop's queue */
    long shares_used; /* turns in which the loop took no more of it */
} endless;
static char piece[PIECE];

/* ---- Peers ---- */

static struct sockaddr_in server;

/* With so many bytes to receive into and to send from; 0: as many as the kernel thinks best. */
static int connected(int receive_buffer, int send_buffer)
{
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect(peer >= 0, "there is a socket");
    if (receive_buffer > 0)
        must("setsockopt", setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer), 0);
    if (send_buffer > 0)
        must("setsockopt", setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer), 0);
    must("connect", connect(peer, (struct sockaddr *)&server, sizeof server), 0);
    must("fcntl", fcntl(peer, F_SETFL, O_NONBLOCK), 0);
    return peer;
}

/* Sends as often as that, or until the kernel takes no more. */
static void flood(int peer, int calls, const char *bytes, size_t length)
{
    int call;
    for (call = 0; call < calls; call++) {
        if (send(peer, bytes, length, MSG_NOSIGNAL) < 0) {
            expect(errno == EAGAIN, "it takes no more");
            return;
        }
    }
}

/* Reads all that is there, and returns how much; it is all made of `byte`. */
static size_t drained(int peer, char byte)
{
    static char bytes[PIECE];
    size_t total = 0;
    ssize_t length;
    while ((length = recv(peer, bytes, sizeof bytes, 0)) > 0) {
        expect(bytes[0] == byte && memcmp(bytes, bytes + 1, (size_t)length - 1) == 0, "nobody gets another's bytes");
        total += (size_t)length;
    }
    return total;
}

/* ---- The server ---- */

static struct connection *connection_of(uint64_t id)
{
    size_t index;
    for (index = 0; index < CONNECTIONS; index++)
        if (connections[index].id == id)
            return &connections[index];
    return NULL;
}

static quoit_command *command(uint16_t kind, uint64_t target)
{
    quoit_command *command = &commands[count++];
    expect(count < COMMANDS, "there is room for the commands of a turn");
    memset(command, 0, sizeof *command);
    command->kind = kind;
    command->target = target;
    return command;
}

/* Sends back what was received, as long as the peer takes it; then receives no more until it does. */
static void echo(struct connection *connection)
{
    size_t index;
    for (index = 0; index < connection->held_count && connection->sent - connection->acknowledged < OUTSTANDING;
         index++) {
        const quoit_event *data = &connection->held[index];
        quoit_command *send = command(QUOIT_COMMAND_SEND_LEASE, connection->id);
        send->lease = data->lease;
        send->length = data->length;
        send->token = connection->sent += data->length;
    }
    connection->held_count -= index;
    memmove(connection->held, connection->held + index, connection->held_count * sizeof connection->held[0]);
    if (connection->paused != (connection->sent - connection->acknowledged >= OUTSTANDING)) {
        connection->paused = !connection->paused;
        command(connection->paused ? QUOIT_COMMAND_PAUSE : QUOIT_COMMAND_RESUME, connection->id);
    }
}

static void forget(struct connection *connection)
{
    while (connection->held_count > 0)
        command(QUOIT_COMMAND_RETURN_LEASE, 0)->lease = connection->held[--connection->held_count].lease;
    memset(connection, 0, sizeof *connection);
}

static void handle(const quoit_event *event)
{
    struct connection *connection = connection_of(event->kind == QUOIT_EVENT_ACCEPTED ? 0 : event->connection);
    switch (event->kind) {
    case QUOIT_EVENT_ACCEPTED:
        expect(connection != NULL, "there is room for the connection");
        connection->id = event->connection;
        break;
    case QUOIT_EVENT_DATA:
        expect(connection->held_count < HELD, "no connection has more leases than it may");
        connection->held[connection->held_count++] = *event;
        if (*(const char *)event->data == ENDLESS)
            endless.id = event->connection;
        else if (*(const char *)event->data != UNFINISHED)
            echo(connection);
        break;
    case QUOIT_EVENT_SENT:
        if (event->token == QUEUED) {
            endless.queued = 0;
            break;
        }
        connection->acknowledged = event->token;
        echo(connection);
        break;
    case QUOIT_EVENT_END_OF_STREAM:
        command(QUOIT_COMMAND_CLOSE, event->connection)->time_ns = -1;
        break;
    case QUOIT_EVENT_CLOSED:
        if (event->connection == endless.id)
            endless.id = 0;
        forget(connection);
        break;
    case QUOIT_EVENT_REFUSED:
        expect(event->reason == QUOIT_REFUSED_CLOSING || event->reason == QUOIT_REFUSED_STALE ||
                   (event->reason == QUOIT_REFUSED_ERROR && (event->error == -ECONNRESET || event->error == -EPIPE)),
               "no byte is lost");
        break;
    case QUOIT_EVENT_SEND_FAILED:
        /* One that is paused until it can send has nothing else to wait for. */
        command(QUOIT_COMMAND_ABORT, event->connection);
        break;
    case QUOIT_EVENT_PRESSURE:
    case QUOIT_EVENT_WRITABLE:
        break;
    default:
        fprintf(stderr, "event %d, reason %d, error %d\n", event->kind, event->reason, event->error);
        exit(1);
    }
}

/* Reads what comes to the endless response's peer until the kernel has room for more of it, however little that is, or the
 * connection has broken. */
static void until_there_is_room(void)
{
    struct pollfd sockets[2] = {{0, POLLOUT, 0}, {0, POLLIN, 0}};
    sockets[0].fd = quoit_connection_fd(loop, endless.id);
    if (sockets[0].fd < 0)
        return; /* It is closed, which the next call tells. */
    sockets[1].fd = endless.peer;
    do {
        drained(endless.peer, piece[0]);
        expect(poll(sockets, 2, -1) > 0, "one of both comes");
    } while (sockets[0].revents == 0);
}

/* Writes as much of the response as is taken. The kernel has room at each call, so that only the loop ends this. */
static void respond(void)
{
    const struct iovec pieces = {piece, sizeof piece};
    uint64_t total = 0;
    long taken;
    quoit_command *send;
    if (endless.id == 0)
        return;
    if (endless.queued) {
        drained(endless.peer, piece[0]);
        return;
    }
    for (;;) {
        until_there_is_room();
        taken = quoit_try_send(loop, endless.id, &pieces, 1);
        if (taken <= 0)
            break;
        expect(total < SHARE_OF_TURN, "the loop goes on with others");
        total += (uint64_t)taken;
    }
    if (taken == -EPIPE) {
        /* Its peer has gone, which CLOSED tells later. */
        endless.id = 0;
        return;
    }
    check("quoit_try_send", taken);
    expect(total >= SHARE_OF_TURN, "it has its share of the turn");
    endless.shares_used++;
    send = command(QUOIT_COMMAND_SEND, endless.id);
    send->flags = QUOIT_FLAG_BORROWED;
    send->data = piece;
    send->length = sizeof piece;
    send->token = QUEUED;
    endless.queued = 1;
}

static void turn(int64_t timeout)
{
    quoit_event events[EVENTS];
    size_t given = count;
    long index, filled;
    count = 0;
    filled = check("quoit_turn", quoit_turn(loop, commands, given, events, EVENTS, timeout));
    for (index = 0; index < filled; index++)
        handle(&events[index]);
    respond();
}

static quoit_counters counters(void)
{
    quoit_counters counters;
    counters.size = sizeof counters;
    check("quoit_loop_counters", quoit_loop_counters(loop, &counters));
    return counters;
}

/* Turns until nothing happens any more. */
static void until_quiet(void)
{
    uint64_t before;
    do {
        before = counters().completions;
        turn(20 * MILLISECONDS);
    } while (count > 0 || counters().completions != before);
}

/* Turns until the loop has no connection and holds nothing. */
static void until_all_is_back(void)
{
    for (;;) {
        quoit_counters now = counters();
        if (now.connections + now.pool_leased + now.leases_copied_now + now.queued_bytes + now.send_chunks_used == 0)
            return;
        turn(20 * MILLISECONDS);
    }
}

static void listen_on_loopback(uint32_t send_buffer)
{
    static const char address[] = "127.0.0.1:0";
    uint64_t listener;
    quoit_socket *socket;
    quoit_listen_options options;
    socklen_t length = sizeof server;
    options.size = sizeof options;
    check("quoit_listen_options_default", quoit_listen_options_default(&options));
    options.stream.send_buffer = send_buffer;
    check("quoit_socket_bind", quoit_socket_bind(address, sizeof address - 1, NULL, &socket));
    must("getsockname", getsockname(quoit_socket_fd(socket), (struct sockaddr *)&server, &length), 0);
    check("quoit_listen", quoit_listen(loop, socket, &options, &listener));
}

/* ---- The cases ---- */

/* Lets a peer send a message, and expects it back soon. */
static void echoes(int peer, char byte, size_t length)
{
    static char message[16384];
    size_t back = 0;
    int round;
    memset(message, byte, length);
    must("send", send(peer, message, length, MSG_NOSIGNAL), (long)length);
    for (round = 0; round < TURNS && back < length; round++) {
        turn(100 * MILLISECONDS);
        back += drained(peer, byte);
    }
    expect(back == length, "a well-behaved connection is answered soon");
}

struct crowd {
    int size;
    /* What each sends, in so many rounds of so many calls. */
    int rounds, calls;
    char byte;
    size_t length;
};

/* A crowd that makes the server hold memory, and one peer that reads whatever is sent. */
static void nobody_is_held_up(const quoit_config *config, struct crowd crowd)
{
    static char bytes[65536];
    int rude[200];
    int index, round, good;
    quoit_counters now;
    memset(bytes, crowd.byte, sizeof bytes);
    loop = loop_with(config, 1);
    listen_on_loopback(OF_A_CROWD);
    for (index = 0; index < crowd.size; index++)
        rude[index] = connected(SMALL, OF_A_CROWD);
    for (round = 0; round < crowd.rounds; round++) {
        for (index = 0; index < crowd.size; index++)
            flood(rude[index], crowd.calls, bytes, crowd.length);
        until_quiet();
    }
    now = counters();
    expect(now.leases_copied > 0 && now.pool_leased < now.pool_slots, "they hold what they may, and not all");

    good = connected(0, 0);
    for (round = 0; round < 10; round++)
        echoes(good, 'g', 17);
    endless.peer = connected(0, 0);
    endless.queued = 0;
    endless.shares_used = 0;
    memset(piece, ENDLESS, sizeof piece);
    must("send", send(endless.peer, piece, 1, MSG_NOSIGNAL), 1);
    while (endless.shares_used < 3)
        turn(100 * MILLISECONDS);
    for (round = 0; round < 10; round++)
        echoes(good, 'g', 17);
    echoes(good, 'h', 10000);

    for (index = 0; index < crowd.size; index++)
        close(rude[index]);
    close(endless.peer);
    endless.peer = -1;
    close(good);
    until_all_is_back();
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

/* While memory is short, a connection whose peer takes nothing is closed, and one that reads is not. */
static void who_takes_nothing_is_closed(const char *engine)
{
    enum { SILENT = 20, GOOD = SILENT, ALL };
    int peers[ALL];
    uint64_t ids[ALL];
    uint64_t closed = 0;
    int index, piece_index;
    quoit_counters now;
    quoit_config config = config_of(engine);
    config.send_chunks = 64;
    config.stall_limit_ns = 0;
    memset(piece, 's', sizeof piece);
    loop = loop_with(&config, 2);
    listen_on_loopback(SMALL);
    for (index = 0; index < ALL; index++) {
        quoit_event event;
        long filled;
        peers[index] = connected(index == GOOD ? 0 : SMALL, 0);
        /* It may return 0 early. */
        do
            filled = check("quoit_turn", quoit_turn(loop, NULL, 0, &event, 1, 60000ll * MILLISECONDS));
        while (filled == 0);
        must("what it brings", event.kind, QUOIT_EVENT_ACCEPTED);
        ids[index] = event.connection;
    }
    /* The sockets are filled, and the loop's memory too. */
    while (closed == 0) {
        quoit_event events[EVENTS];
        long filled;
        count = 0;
        for (index = 0; index < ALL; index++)
            for (piece_index = 0; piece_index < 4; piece_index++) {
                quoit_command *send = command(QUOIT_COMMAND_SEND, ids[index]);
                send->data = piece;
                send->length = 4096;
            }
        filled = check("quoit_turn", quoit_turn(loop, commands, count, events, EVENTS, 10 * MILLISECONDS));
        drained(peers[GOOD], piece[0]);
        for (index = 0; index < filled; index++) {
            if (events[index].kind != QUOIT_EVENT_CLOSED)
                continue;
            expect(events[index].reason == QUOIT_CLOSED_LIMIT, "it was a limit");
            expect(events[index].connection != ids[GOOD], "who reads is not closed");
            closed++;
        }
    }
    now = counters();
    /* An event of it may be kept for the next turn. */
    expect(now.stalled_closed >= closed && now.closed_limit == now.stalled_closed, "it is counted");
    count = 0;
    for (index = 0; index < ALL; index++) {
        close(peers[index]);
        command(QUOIT_COMMAND_ABORT, ids[index]);
    }
    do {
        quoit_event events[EVENTS];
        check("quoit_turn", quoit_turn(loop, commands, count, events, EVENTS, 20 * MILLISECONDS));
        count = 0;
    } while (counters().connections > 0);
    now = counters();
    expect(now.queued_bytes == 0 && now.send_chunks_used == 0, "nothing is held any more");
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

int main(int argc, char **argv)
{
    static const struct crowd UNREAD = {40, 6, 100, 'a', 65536};
    static const struct crowd HELD_BACK = {200, 5, 1, UNFINISHED, 94};
    quoit_config config;
    if (argc != 2) {
        fprintf(stderr, "usage: fairness uring|epoll\n");
        return 2;
    }
    /* Longer than anything here takes. */
    alarm(240);
    check("quoit_abi_check", quoit_abi_check(QUOIT_ABI_VERSION));
    config = config_of(argv[1]);
    /* For connections that were reset while they were paused, with bytes that this program has not seen. */
    config.close_deadline_ns = 100 * MILLISECONDS;
    nobody_is_held_up(&config, UNREAD);
    config.receive_slots = 64;
    config.buffer_ring = 16;
    nobody_is_held_up(&config, HELD_BACK);
    who_takes_nothing_is_closed(argv[1]);
    return 0;
}
