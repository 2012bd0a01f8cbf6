/*
 * A datagram echo server through the C ABI. Usage: datagram_echo ENGINE MODE
 *
 * MODE is how it waits: `block` in quoit_turn, `epoll` on quoit_fd in an epoll set of its own. A single datagram is
 * copied into its answer; joined ones go back as they came, from the memory that they were received in. It ends with
 * the datagram `stop`, which is answered as well.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "check.h"

#define EVENTS 64

struct server {
    quoit_loop *loop;
    uint64_t socket;
    /* The answers of one turn, and the leases to be returned once they were copied. */
    quoit_datagram_send sends[EVENTS];
    quoit_command commands[EVENTS + 2];
    uint32_t answers;
    size_t count;
    uint64_t received;
    int stops;
    int closed;
};

static quoit_command *command(struct server *server, uint16_t kind)
{
    quoit_command *command = &server->commands[server->count++];
    memset(command, 0, sizeof *command);
    command->kind = kind;
    command->target = server->socket;
    return command;
}

static void answer(struct server *server, const quoit_event *event)
{
    const quoit_datagrams *datagrams = (const quoit_datagrams *)event->data;
    quoit_datagram_send *send = &server->sends[server->answers++];
    expect(event->connection == server->socket, "it is of the only socket");
    expect(datagrams->size >= sizeof *datagrams && datagrams->length == event->length, "the view is whole");
    expect(datagrams->local_length == 4 && datagrams->local[0] == 127, "it was sent to loopback");
    expect(datagrams->interface != 0, "the interface is told");
    memset(send, 0, sizeof *send);
    send->data = datagrams->data;
    send->length = datagrams->length;
    send->to = datagrams->peer;
    send->to_length = datagrams->peer_length;
    memcpy(send->source, datagrams->local, sizeof send->source);
    send->source_length = datagrams->local_length;
    if (datagrams->count > 1) {
        send->segment_size = (uint16_t)datagrams->segment_size;
        send->lease = event->lease;
    } else {
        command(server, QUOIT_COMMAND_RETURN_LEASE)->lease = event->lease;
    }
    server->received += datagrams->count;
    if (datagrams->length == 4 && memcmp(datagrams->data, "stop", 4) == 0)
        server->stops = 1;
}

static void handle(struct server *server, const quoit_event *event)
{
    switch (event->kind) {
    case QUOIT_EVENT_DATAGRAM_OPENED:
        expect(event->token == 5, "the token of opening comes back");
        break;
    case QUOIT_EVENT_DATAGRAMS:
        answer(server, event);
        break;
    case QUOIT_EVENT_DATAGRAM_CLOSED:
        expect(server->stops && event->error == 0 && event->token == 5, "it was closed by command");
        server->closed = 1;
        break;
    case QUOIT_EVENT_DATAGRAM_WRITABLE:
    case QUOIT_EVENT_DATAGRAM_PRESSURE:
        break;
    default:
        fprintf(stderr, "event %d, reason %d, error %d\n", event->kind, event->reason, event->error);
        exit(1);
    }
}

/* Answers go first: they are copied while the leases are held. */
static size_t finish_commands(struct server *server)
{
    size_t count = server->count;
    if (server->answers > 0) {
        quoit_command *send = &server->commands[0];
        memset(send, 0, sizeof *send);
        send->kind = QUOIT_COMMAND_SEND_DATAGRAMS;
        send->target = server->socket;
        send->data = server->sends;
        send->length = server->answers;
        if (server->stops)
            command(server, QUOIT_COMMAND_CLOSE_DATAGRAM);
        count = server->count;
    } else {
        expect(count == 1, "leases come with answers");
        count = 0;
    }
    server->answers = 0;
    server->count = 1;
    return count;
}

static void turn(struct server *server, int64_t timeout)
{
    quoit_event events[EVENTS];
    size_t count = finish_commands(server);
    long index, filled;
    filled = check("quoit_turn", quoit_turn(server->loop, server->commands, count, events, EVENTS, timeout));
    for (index = 0; index < filled; index++) {
        expect(events[index].reserved == 0, "the reserve is zero");
        handle(server, &events[index]);
    }
}

static void serve_in_a_foreign_loop(struct server *server)
{
    struct epoll_event event;
    int set = epoll_create1(EPOLL_CLOEXEC);
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    check("epoll_create1", set);
    check("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, (int)check("quoit_fd", quoit_fd(server->loop)), &event));
    while (!server->closed) {
        int64_t limit;
        turn(server, 0);
        if (server->answers > 0)
            continue;
        limit = check("quoit_next_deadline", quoit_next_deadline(server->loop));
        if (limit != 0 && !server->closed) {
            int milliseconds = limit > 1000000000 ? -1 : (int)(limit / 1000000) + 1;
            /* A signal of the kernel's own may end the wait. */
            if (epoll_wait(set, &event, 1, milliseconds) < 0 && errno != EINTR)
                fail("epoll_wait", -errno);
        }
    }
    close(set);
}

static void open_on_loopback(struct server *server)
{
    static const char address[] = "0.0.0.0:0";
    char text[128];
    quoit_datagram_socket *socket;
    quoit_datagram_options options;
    options.size = sizeof options;
    check("quoit_datagram_options_default", quoit_datagram_options_default(&options));
    options.flags = QUOIT_DATAGRAM_TELL_LOCAL;
    options.gro = QUOIT_GRO_TRANSPARENT;
    check("binding", quoit_datagram_socket_bind(address, sizeof address - 1, &options, &socket));
    check("quoit_open_datagram", quoit_open_datagram(server->loop, socket, 5, &server->socket));
    check("quoit_datagram_address", quoit_datagram_address(server->loop, server->socket, text, sizeof text));
    printf("%s\n", text);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct server server;
    quoit_counters counters;
    if (argc != 3) {
        fprintf(stderr, "usage: datagram_echo uring|epoll block|epoll\n");
        return 2;
    }
    check("quoit_abi_check", quoit_abi_check(QUOIT_ABI_VERSION));
    server.count = 1;
    server.loop = make_loop(argv[1], 1, strcmp(argv[2], "epoll") == 0);
    open_on_loopback(&server);
    if (strcmp(argv[2], "epoll") == 0)
        serve_in_a_foreign_loop(&server);
    else
        while (!server.closed)
            turn(&server, -1);
    expect(server.received > 0, "something was echoed");
    counters.size = sizeof counters;
    check("quoit_loop_counters", quoit_loop_counters(server.loop, &counters));
    must("asking a socket that is gone", quoit_datagram_fd(server.loop, server.socket), -ENOENT);
    check("quoit_loop_destroy", quoit_loop_destroy(server.loop));
    return 0;
}
