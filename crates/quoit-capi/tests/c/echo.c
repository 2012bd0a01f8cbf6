/*
 * An echo server through the C ABI. Usage: echo ENGINE MODE CLOSES
 *
 * MODE is how it waits and accepts: `block` in quoit_turn, `epoll` on quoit_fd in an epoll set of its own, `attach`
 * by attaching accepted descriptors. It ends after CLOSES connections have closed, and checks what it is told.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

#define EVENTS 64
/* Each event is answered by two commands at most. */
#define COMMANDS (2 * EVENTS)

/* Lent in pieces, and so never changed. */
static char HELLO[] = "hello";
static char NEW_LINE[] = "\n";

struct server {
    quoit_loop *loop;
    quoit_command commands[COMMANDS];
    size_t count;
    long closes;
    long greeted;
    int attaches;
};

static quoit_command *command(struct server *server, uint16_t kind, uint64_t target)
{
    quoit_command *command = &server->commands[server->count++];
    memset(command, 0, sizeof *command);
    command->kind = kind;
    command->target = target;
    return command;
}

static void greet(struct server *server, uint64_t connection)
{
    /* The list is read by the turn that takes the command. */
    static const struct iovec GREETING[] = {{HELLO, sizeof HELLO - 1}, {NEW_LINE, sizeof NEW_LINE - 1}};
    quoit_command *send = command(server, QUOIT_COMMAND_SEND_GATHERED, connection);
    send->data = GREETING;
    send->length = sizeof GREETING / sizeof GREETING[0];
    send->token = connection;
}

static void echo(struct server *server, const quoit_event *event)
{
    quoit_command *send;
    if (event->length > 512) {
        send = command(server, QUOIT_COMMAND_SEND_LEASE, event->connection);
        send->lease = event->lease;
        send->length = event->length;
        return;
    }
    send = command(server, QUOIT_COMMAND_SEND, event->connection);
    send->data = event->data;
    send->length = event->length;
    command(server, QUOIT_COMMAND_RETURN_LEASE, 0)->lease = event->lease;
}

static void handle(struct server *server, const quoit_event *event)
{
    switch (event->kind) {
    case QUOIT_EVENT_ACCEPTED:
        greet(server, event->connection);
        break;
    case QUOIT_EVENT_ACCEPTED_DESCRIPTOR: {
        char text[128];
        quoit_command *attach = command(server, QUOIT_COMMAND_ATTACH, 0);
        check("quoit_fd_peer_address", quoit_fd_peer_address(event->descriptor, text, sizeof text));
        attach->descriptor = event->descriptor;
        attach->flags = QUOIT_FLAG_PAUSED;
        attach->token = 7;
        break;
    }
    case QUOIT_EVENT_OPENED:
        expect(server->attaches && event->token == 7, "only what was attached is opened");
        greet(server, event->connection);
        command(server, QUOIT_COMMAND_RESUME, event->connection);
        break;
    case QUOIT_EVENT_DATA:
        echo(server, event);
        break;
    case QUOIT_EVENT_SENT:
        expect(event->token == event->connection, "the greeting's token comes back");
        server->greeted++;
        break;
    case QUOIT_EVENT_END_OF_STREAM:
        command(server, QUOIT_COMMAND_CLOSE, event->connection)->time_ns = -1;
        break;
    case QUOIT_EVENT_CLOSED:
        expect(event->reason == QUOIT_CLOSED_PEER && event->error == 0, "the peers close");
        server->closes--;
        break;
    case QUOIT_EVENT_PRESSURE:
    case QUOIT_EVENT_WRITABLE:
        break;
    default:
        fprintf(stderr, "event %d, reason %d, error %d\n", event->kind, event->reason, event->error);
        exit(1);
    }
}

static void turn(struct server *server, int64_t timeout)
{
    quoit_event events[EVENTS];
    size_t count = server->count;
    long index, filled;
    server->count = 0;
    filled = check("quoit_turn", quoit_turn(server->loop, server->commands, count, events, EVENTS, timeout));
    for (index = 0; index < filled; index++) {
        expect(events[index].reserved == 0, "the reserve is zero");
        handle(server, &events[index]);
    }
}

static void serve_blocking(struct server *server)
{
    while (server->closes > 0)
        turn(server, -1);
}

static void serve_in_a_foreign_loop(struct server *server)
{
    struct epoll_event event;
    int set = epoll_create1(EPOLL_CLOEXEC);
    memset(&event, 0, sizeof event);
    event.events = EPOLLIN;
    check("epoll_create1", set);
    check("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, (int)check("quoit_fd", quoit_fd(server->loop)), &event));
    while (server->closes > 0) {
        int64_t limit;
        turn(server, 0);
        if (server->count > 0)
            continue;
        limit = check("quoit_next_deadline", quoit_next_deadline(server->loop));
        if (limit != 0 && server->closes > 0) {
            int milliseconds = limit > 1000000000 ? -1 : (int)(limit / 1000000) + 1;
            /* A signal of the kernel's own may end the wait. */
            if (epoll_wait(set, &event, 1, milliseconds) < 0 && errno != EINTR)
                fail("epoll_wait", -errno);
        }
    }
    close(set);
}

static void listen_on_loopback(struct server *server)
{
    static const char address[] = "127.0.0.1:0";
    char text[128];
    uint64_t listener;
    quoit_socket *socket;
    quoit_listen_options options;
    options.size = sizeof options;
    check("quoit_listen_options_default", quoit_listen_options_default(&options));
    options.accept = server->attaches ? QUOIT_ACCEPT_DESCRIPTORS : QUOIT_ACCEPT_CONNECTIONS;
    check("quoit_socket_bind", quoit_socket_bind(address, sizeof address - 1, NULL, &socket));
    check("quoit_listen", quoit_listen(server->loop, socket, &options, &listener));
    check("quoit_listener_address", quoit_listener_address(server->loop, listener, text, sizeof text));
    printf("%s\n", text);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static struct server server;
    quoit_counters counters;
    long closes;
    if (argc != 4) {
        fprintf(stderr, "usage: echo uring|epoll block|epoll|attach CLOSES\n");
        return 2;
    }
    check("quoit_abi_check", quoit_abi_check(QUOIT_ABI_VERSION));
    closes = server.closes = atol(argv[3]);
    server.loop = make_loop(argv[1], 1, strcmp(argv[2], "epoll") == 0);
    server.attaches = strcmp(argv[2], "attach") == 0;
    listen_on_loopback(&server);
    if (strcmp(argv[2], "epoll") == 0)
        serve_in_a_foreign_loop(&server);
    else
        serve_blocking(&server);

    expect(server.greeted == closes, "every greeting was acknowledged");
    counters.size = sizeof counters;
    check("quoit_loop_counters", quoit_loop_counters(server.loop, &counters));
    expect(counters.size == sizeof counters && counters.closed_peer == (uint64_t)closes, "the counters agree");
    expect(counters.pool_leased == 0, "all leases are back");
    check("quoit_loop_destroy", quoit_loop_destroy(server.loop));
    return 0;
}
