/*
 * Listening sockets of every origin, ways to share one among loops, and what a probe tells, through the C ABI, case by
 * case. Usage: listeners ENGINE FOLDER
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

#define CLIENTS 8
#define EVENTS 32
/* Bytes, more than the sockets hold. */
#define LONG ((size_t)16 << 20)
/* SD_LISTEN_FDS_START of sd_listen_fds(3). */
#define PASSED 3

static const char *engine;

static quoit_socket *bound(const char *address, uint32_t flags)
{
    quoit_socket *socket;
    quoit_bind_options options;
    options.size = sizeof options;
    check("quoit_bind_options_default", quoit_bind_options_default(&options));
    options.flags = flags;
    check(address, quoit_socket_bind(address, strlen(address), &options, &socket));
    return socket;
}

static uint64_t listening(quoit_loop *loop, quoit_socket *socket, uint32_t accept, const quoit_remote *const *remotes,
                          uint32_t count)
{
    uint64_t listener;
    quoit_listen_options options;
    options.size = sizeof options;
    check("quoit_listen_options_default", quoit_listen_options_default(&options));
    options.accept = accept;
    options.remotes = remotes;
    options.remote_count = count;
    check("quoit_listen", quoit_listen(loop, socket, &options, &listener));
    return listener;
}

/* A client of the kernel's own, connected to an address as text. */
static int client_of(const char *text)
{
    struct sockaddr_storage storage;
    int client, length = (int)check(text, quoit_sockaddr_parse(text, strlen(text), &storage, sizeof storage));
    client = (int)check("socket", socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must("connect", connect(client, (struct sockaddr *)&storage, (socklen_t)length), 0);
    return client;
}

/* Turns the loops in turn until `wanted` connections were accepted, and counts those of each. */
static void accept_all(quoit_loop **loops, int count, int wanted, int *accepted)
{
    quoit_event events[EVENTS];
    int index, round, total = 0;
    for (index = 0; index < count; index++)
        accepted[index] = 0;
    for (round = 0; total < wanted; round++) {
        expect(round < 1000, "all are accepted");
        for (index = 0; index < count; index++) {
            long event, filled = check("quoit_turn", quoit_turn(loops[index], NULL, 0, events, EVENTS, 10000000));
            for (event = 0; event < filled; event++) {
                expect(events[event].kind == QUOIT_EVENT_ACCEPTED, "nothing else happens");
                accepted[index]++;
                total++;
            }
        }
    }
}

static void expect_next(quoit_loop *loop, const quoit_command *commands, size_t count, uint16_t kind,
                        quoit_event *event)
{
    int round;
    for (round = 0; round < 1000; round++) {
        long filled = check("quoit_turn", quoit_turn(loop, commands, count, event, 1, 10000000));
        count = 0;
        if (filled == 1) {
            if (event->kind != kind)
                fail("another event", event->kind);
            return;
        }
    }
    expect(0, "something happens");
}

/* A socket's file that outlives its listener. */
static int dead_socket(const char *path)
{
    struct sockaddr_un address;
    int dead = (int)check("socket", socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    memset(&address, 0, sizeof address);
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    must("bind", bind(dead, (struct sockaddr *)&address, sizeof address), 0);
    return close(dead);
}

/* A file and a name: made, connected to by a command, talked over, and gone again. */
static void unix_sockets(const char *folder)
{
    char path[256], name[256], text[256], bytes[8];
    const char *addresses[2];
    int index;
    snprintf(path, sizeof path, "unix:%s/server", folder);
    snprintf(name, sizeof name, "unix:@quoit-listeners-%d", (int)getpid());
    addresses[0] = path;
    addresses[1] = name;
    for (index = 0; index < 2; index++) {
        quoit_loop *loop = make_loop(engine, 1, 0);
        quoit_socket *socket = bound(addresses[index], 0), *other;
        quoit_connect_options connect;
        quoit_command command;
        quoit_event event;
        uint64_t listener, ours, theirs;
        struct stat found;
        int client;
        check("quoit_socket_address", quoit_socket_address(socket, text, sizeof text));
        expect(strcmp(text, addresses[index]) == 0, "its address");
        must("in use", quoit_socket_bind(addresses[index], strlen(addresses[index]), NULL, &other), -EADDRINUSE);
        listener = listening(loop, socket, QUOIT_ACCEPT_CONNECTIONS, NULL, 0);
        client = client_of(addresses[index]);
        expect_next(loop, NULL, 0, QUOIT_EVENT_ACCEPTED, &event);
        expect(event.listener == listener, "of this listener");
        theirs = event.connection;
        check("quoit_peer_address", quoit_peer_address(loop, theirs, text, sizeof text));
        expect(strcmp(text, "unix:") == 0, "of a client without a name");
        must("write", write(client, "ping", 4), 4);
        expect_next(loop, NULL, 0, QUOIT_EVENT_DATA, &event);
        expect(event.length == 4 && memcmp(event.data, "ping", 4) == 0, "the bytes");
        memset(&command, 0, sizeof command);
        command.kind = QUOIT_COMMAND_SEND_LEASE;
        command.target = theirs;
        command.lease = event.lease;
        command.length = 4;
        command.token = 3;
        expect_next(loop, &command, 1, QUOIT_EVENT_SENT, &event);
        must("read", read(client, bytes, sizeof bytes), 4);

        /* The loop's own connection to it. */
        connect.size = sizeof connect;
        check("quoit_connect_options_default", quoit_connect_options_default(&connect));
        connect.address = addresses[index];
        connect.address_length = (uint32_t)strlen(addresses[index]);
        memset(&command, 0, sizeof command);
        command.kind = QUOIT_COMMAND_CONNECT;
        command.data = &connect;
        command.length = sizeof connect;
        command.token = 9;
        expect_next(loop, &command, 1, QUOIT_EVENT_CONNECTING, &event);
        ours = event.connection;
        {
            int opened = 0, accepted = 0, round;
            for (round = 0; round < 1000 && !(opened && accepted); round++)
                if (check("quoit_turn", quoit_turn(loop, NULL, 0, &event, 1, 10000000)) == 1) {
                    opened |= event.kind == QUOIT_EVENT_OPENED && event.connection == ours && event.token == 9;
                    accepted |= event.kind == QUOIT_EVENT_ACCEPTED;
                }
            expect(opened && accepted, "both ends");
        }
        check("quoit_peer_address", quoit_peer_address(loop, ours, text, sizeof text));
        expect(strcmp(text, addresses[index]) == 0, "connected there");
        close(client);
        check("quoit_loop_destroy", quoit_loop_destroy(loop));
        expect(index == 1 || stat(path + 5, &found) != 0, "the file went with its listener");
    }

    /* A file on which nobody listens is in the way, unless it may be removed. */
    {
        quoit_socket *socket;
        int left = open(path + 5, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        close(left);
        must("a file that is no socket", quoit_socket_bind(path, strlen(path), NULL, &socket), -EADDRINUSE);
        must("unlink", unlink(path + 5), 0);
        must("close", dead_socket(path + 5), 0);
        must("a dead one", quoit_socket_bind(path, strlen(path), NULL, &socket), -EADDRINUSE);
        quoit_socket_close(bound(path, QUOIT_BIND_UNLINK_EXISTING));
    }
}

/* Sockets that a service manager passed: found by the environment, and accepted from. */
static void inherited(void)
{
    quoit_loop *loop = make_loop(engine, 1, 0);
    quoit_socket *passed = bound("127.0.0.1:0", 0), *sockets[2];
    char process[32], text[64], name[32];
    quoit_event event;
    int client;
    snprintf(process, sizeof process, "%d", (int)getpid());
    must("dup2", dup2(quoit_socket_fd(passed), PASSED), PASSED);
    quoit_socket_close(passed);
    must("none without the environment", quoit_socket_inherited(sockets, 2), 0);
    setenv("LISTEN_PID", process, 1);
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_FDNAMES", "web", 1);
    must("only asked", quoit_socket_inherited(NULL, 0), 1);
    must("one", quoit_socket_inherited(sockets, 2), 1);
    check("quoit_socket_name", quoit_socket_name(sockets[0], name, sizeof name));
    expect(strcmp(name, "web") == 0, "its name");
    check("quoit_socket_address", quoit_socket_address(sockets[0], text, sizeof text));
    must("again", quoit_socket_inherited(sockets + 1, 1), 1);
    quoit_socket_close(sockets[1]);
    listening(loop, sockets[0], QUOIT_ACCEPT_CONNECTIONS, NULL, 0);
    client = client_of(text);
    expect_next(loop, NULL, 0, QUOIT_EVENT_ACCEPTED, &event);
    setenv("LISTEN_PID", "1", 1);
    must("meant for another process", quoit_socket_inherited(sockets, 2), 0);
    unsetenv("LISTEN_PID");
    close(client);
    close(PASSED);
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

/* How two loops share what comes to one address. */
static void spread(void)
{
    static const char *const modes[] = {"hand over", "shared", "a port each"};
    int mode, index;
    for (mode = 0; mode < 3; mode++) {
        quoit_loop *loops[2];
        const quoit_remote *remotes[2];
        quoit_socket *first, *second = NULL;
        char text[64];
        int clients[CLIENTS], accepted[2];
        for (index = 0; index < 2; index++) {
            loops[index] = make_loop(engine, (uint32_t)index + 4, 0);
            check("quoit_loop_remote", quoit_loop_remote(loops[index], &remotes[index]));
        }
        first = bound("127.0.0.1:0", mode == 2 ? QUOIT_BIND_REUSE_PORT : 0);
        check("quoit_socket_address", quoit_socket_address(first, text, sizeof text));
        if (mode == 1)
            check("quoit_socket_clone", quoit_socket_clone(first, &second));
        if (mode == 2) {
            quoit_socket *third;
            second = bound(text, QUOIT_BIND_REUSE_PORT);
            must("who does not share", quoit_socket_bind(text, strlen(text), NULL, &third), -EADDRINUSE);
        }
        if (mode == 0)
            listening(loops[0], first, QUOIT_ACCEPT_SPREAD, remotes, 2);
        else
            listening(loops[0], first, QUOIT_ACCEPT_CONNECTIONS, NULL, 0);
        if (second != NULL)
            listening(loops[1], second, QUOIT_ACCEPT_CONNECTIONS, NULL, 0);
        for (index = 0; index < CLIENTS; index++)
            clients[index] = client_of(text);
        accept_all(loops, 2, CLIENTS, accepted);
        expect(accepted[0] + accepted[1] == CLIENTS, modes[mode]);
        if (mode == 0) {
            expect(accepted[0] == CLIENTS / 2, "each has as many as the other");
            must("quoit_remote_connections", quoit_remote_connections(remotes[1]), CLIENTS / 2);
        }
        for (index = 0; index < CLIENTS; index++)
            close(clients[index]);
        for (index = 0; index < 2; index++) {
            quoit_remote_release(remotes[index]);
            check("quoit_loop_destroy", quoit_loop_destroy(loops[index]));
        }
    }
    {
        quoit_loop *loop = make_loop(engine, 6, 0);
        quoit_listen_options options;
        uint64_t listener;
        options.size = sizeof options;
        check("quoit_listen_options_default", quoit_listen_options_default(&options));
        options.accept = QUOIT_ACCEPT_SPREAD;
        must("to nobody", quoit_listen(loop, bound("127.0.0.1:0", 0), &options, &listener), -EINVAL);
        options.accept = 9;
        must("in no way", quoit_listen(loop, bound("127.0.0.1:0", 0), &options, &listener), -EINVAL);
        check("quoit_loop_destroy", quoit_loop_destroy(loop));
    }
}

/* Who connects to a paused listener waits in the kernel; and a long send is told of as the peer takes it. */
static void pausing_and_progress(void)
{
    static char bytes[LONG], received[LONG];
    quoit_loop *loop = make_loop(engine, 7, 0);
    quoit_command command;
    quoit_event event;
    struct iovec pieces[2];
    char text[64];
    uint64_t listener = listening(loop, bound("127.0.0.1:0", 0), QUOIT_ACCEPT_CONNECTIONS, NULL, 0), token = 0;
    int64_t before;
    size_t read_bytes = 0;
    int client, round;
    check("quoit_listener_address", quoit_listener_address(loop, listener, text, sizeof text));
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_PAUSE_LISTENING;
    command.target = listener;
    must("pausing", quoit_turn(loop, &command, 1, &event, 1, 0), 0);
    client = client_of(text);
    for (round = 0; round < 5; round++)
        must("nobody is accepted", quoit_turn(loop, NULL, 0, &event, 1, 1000000), 0);
    command.kind = QUOIT_COMMAND_RESUME_LISTENING;
    expect_next(loop, &command, 1, QUOIT_EVENT_ACCEPTED, &event);
    must("taken by nobody", quoit_taken_by_peer(loop, 12345), -ENOENT);
    before = quoit_taken_by_peer(loop, event.connection);
    check("quoit_taken_by_peer", before);
    memset(bytes, 'q', sizeof bytes);
    pieces[0].iov_base = bytes;
    pieces[0].iov_len = LONG / 2;
    pieces[1].iov_base = bytes + LONG / 2;
    pieces[1].iov_len = LONG / 2;
    command.kind = QUOIT_COMMAND_SEND_GATHERED;
    command.target = event.connection;
    command.data = pieces;
    command.length = 2;
    command.flags = QUOIT_FLAG_PROGRESS;
    command.token = LONG - 1;
    expect_next(loop, &command, 1, QUOIT_EVENT_REFUSED, &event);
    must("too small a token", event.error, -EINVAL);
    command.token = LONG + 5;
    expect_next(loop, &command, 1, QUOIT_EVENT_SENT, &event);
    expect(event.token > 5 && event.token < LONG + 5, "a part is told of");
    must("queued by nobody", quoit_queued(loop, 12345), -ENOENT);
    must("the rest is queued", quoit_queued(loop, command.target), (int64_t)(LONG + 5 - event.token));
    for (token = event.token; read_bytes < LONG || token < LONG + 5;) {
        ssize_t count = recv(client, received, sizeof received, MSG_DONTWAIT);
        if (count > 0)
            read_bytes += (size_t)count;
        if (check("quoit_turn", quoit_turn(loop, NULL, 0, &event, 1, 1000000)) == 1) {
            /* The send has passed the high-water mark. */
            if (event.kind == QUOIT_EVENT_WRITABLE)
                continue;
            expect(event.kind == QUOIT_EVENT_SENT && event.token > token, "more of it is told of");
            token = event.token;
        }
        expect(read_bytes + 5 <= LONG + 5, "no more than that");
    }
    expect(token == LONG + 5, "all of it is told of");
    must("nothing is queued", quoit_queued(loop, command.target), 0);
    expect(quoit_taken_by_peer(loop, command.target) != before, "the peer has taken it");
    close(client);
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

/* What io_uring can do here, and that a feature that is switched off is missing for the reason that it was. */
static void adopting(void)
{
    quoit_socket *socket = bound("127.0.0.1:0", 0);
    int descriptor = dup(quoit_socket_fd(socket));

    expect(descriptor >= 0, "a copy of its descriptor");
    must("nowhere to put it", quoit_socket_adopt(descriptor, NULL), -EINVAL);
    expect(fcntl(descriptor, F_GETFD) < 0, "what was not adopted is closed");
    quoit_socket_close(socket);
}

static void capabilities(void)
{
    quoit_capabilities *found, *less;
    quoit_capability one;
    quoit_config config;
    char text[512];
    uint64_t bits = 0, optional = 0;
    uint32_t index;
    int usable;
    config.size = sizeof config;
    check("quoit_config_default", quoit_config_default(&config));
    check("quoit_capabilities_probe", quoit_capabilities_probe(NULL, &found));
    usable = quoit_capabilities_usable(found);
    expect(check("quoit_capabilities_reason", quoit_capabilities_reason(found, text, sizeof text)) > 0, "a reason");
    expect(usable || strcmp(engine, "uring") != 0, "the engine runs, so the probe must say so");
    for (index = 0;; index++) {
        int code;
        one.size = sizeof one;
        code = quoit_capabilities_get(found, index, &one);
        if (code == -ENOENT)
            break;
        check("quoit_capabilities_get", code);
        expect(one.size == sizeof one && one.bit != 0 && !(one.bit & bits), "each has a bit of its own");
        expect(*one.name != '\0' && *one.about != '\0' && *one.minimum_kernel != '\0', "and texts");
        expect(one.usable || *one.reason != '\0', "what is not usable says why");
        bits |= one.bit;
        if (one.usable && strcmp(one.name, "buffer-ring") == 0)
            optional = one.bit;
    }
    expect(index > 3, "there are several");
    if (optional != 0) {
        config.without = optional;
        check("quoit_capabilities_probe", quoit_capabilities_probe(&config, &less));
        must("still usable", quoit_capabilities_usable(less), 1);
        for (index = 0; one.size = sizeof one, quoit_capabilities_get(less, index, &one) == 0; index++)
            expect(one.bit != optional || (!one.usable && *one.reason != '\0'), "switched off, and said so");
        quoit_capabilities_free(less);
    }
    config.without = ~bits;
    must("features that nobody knows", quoit_capabilities_probe(&config, &less), -EINVAL);
    config.without = 0;
    config.wait = 9;
    must("no way to wait", quoit_capabilities_probe(&config, &less), -EINVAL);
    must("nowhere to put it", quoit_capabilities_probe(NULL, NULL), -EINVAL);
    quoit_capabilities_free(found);
    quoit_capabilities_free(NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: listeners uring|epoll FOLDER\n");
        return 2;
    }
    check("quoit_abi_check", quoit_abi_check(QUOIT_ABI_VERSION));
    /* The place of the first descriptor that is passed on: nothing of the library's must come to lie there. */
    must("dup2", dup2(STDERR_FILENO, PASSED), PASSED);
    engine = argv[1];
    unix_sockets(argv[2]);
    inherited();
    adopting();
    spread();
    pausing_and_progress();
    capabilities();
    return 0;
}
