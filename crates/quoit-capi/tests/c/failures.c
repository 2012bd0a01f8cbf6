/*
 * What is told of, and goes on: files that are too short or cannot be read, and accepting without descriptors, through
 * the C ABI. Usage: failures ENGINE
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

/* What the process may have; the accept that is under way keeps the limit of its start. */
#define DESCRIPTORS 128

static const char *engine;

static quoit_socket *bound(void)
{
    quoit_socket *socket;
    check("bind", quoit_socket_bind("127.0.0.1:0", 11, NULL, &socket));
    return socket;
}

static uint64_t listening(quoit_loop *loop, uint32_t tell_failures)
{
    uint64_t listener;
    quoit_listen_options options;
    options.size = sizeof options;
    check("quoit_listen_options_default", quoit_listen_options_default(&options));
    must("nothing is told by default", options.tell_failures, 0);
    options.tell_failures = tell_failures;
    check("quoit_listen", quoit_listen(loop, bound(), &options, &listener));
    return listener;
}

static void connect_to(quoit_loop *loop, uint64_t listener, int client)
{
    char text[64];
    struct sockaddr_storage storage;
    int length;
    check("quoit_listener_address", quoit_listener_address(loop, listener, text, sizeof text));
    length = (int)check(text, quoit_sockaddr_parse(text, strlen(text), &storage, sizeof storage));
    must("connect", connect(client, (struct sockaddr *)&storage, (socklen_t)length), 0);
}

static int tcp(void)
{
    return (int)check("socket", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

/* The next event that is of another kind than `ignored`. */
static quoit_event next(quoit_loop *loop, const quoit_command *commands, size_t count, uint16_t ignored)
{
    quoit_event event;
    int round;
    for (round = 0; round < 1000; round++) {
        long filled = check("quoit_turn", quoit_turn(loop, commands, count, &event, 1, 10000000));
        count = 0;
        if (filled == 1 && event.kind != ignored)
            return event;
    }
    fail("something happens", 0);
    return event;
}

/* A descriptor of a file of so many bytes, for reading or not. */
static int file_of(const char *bytes, int is_readable)
{
    char path[] = "/tmp/quoit-failures-XXXXXX";
    int other, file = (int)check("mkstemp", mkstemp(path));
    must("write", (long)write(file, bytes, strlen(bytes)), (long)strlen(bytes));
    other = (int)check("open", open(path, (is_readable ? O_RDONLY : O_WRONLY) | O_CLOEXEC));
    unlink(path);
    close(file);
    return other;
}

static quoit_command send_file(uint64_t connection, int file, uint32_t length, uint64_t token, uint16_t flags)
{
    quoit_command command;
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_SEND_FILE;
    command.target = connection;
    command.descriptor = file;
    command.length = length;
    command.token = token;
    command.flags = flags;
    return command;
}

static quoit_command send_text(uint64_t connection, const char *text)
{
    quoit_command command;
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_SEND;
    command.target = connection;
    command.data = text;
    command.length = (uint32_t)strlen(text);
    return command;
}

static void files(void)
{
    quoit_config config = config_of(engine);
    quoit_loop *loop = loop_with(&config, 0);
    uint64_t listener = listening(loop, 0), connection;
    int client = tcp();
    char bytes[32];
    quoit_event event;
    quoit_command commands[3];

    connect_to(loop, listener, client);
    event = next(loop, NULL, 0, 0);
    must("it is accepted", event.kind, QUOIT_EVENT_ACCEPTED);
    connection = event.connection;

    commands[0] = send_file(connection, file_of("head", 1), 10, 7, QUOIT_FLAG_TELL_SHORT);
    commands[1] = send_file(connection, file_of("unseen", 0), 6, 0, QUOIT_FLAG_TELL_SHORT);
    commands[2] = send_text(connection, "tail");
    event = next(loop, commands, 3, 0);
    must("a short file is told of", event.kind, QUOIT_EVENT_FILE_SHORT);
    expect(event.connection == connection && event.token == 7, "it is this one");
    must("bytes are missing", event.length, 6);
    must("it has ended", event.error, 0);
    event = next(loop, NULL, 0, 0);
    must("so is one that cannot be read", event.kind, QUOIT_EVENT_FILE_SHORT);
    expect(event.connection == connection && event.token == 0, "also without a token");
    must("all is missing", event.length, 6);
    must("it cannot be read", event.error, -EBADF);
    commands[0] = send_file(connection, file_of("!", 1), 1, 8, QUOIT_FLAG_TELL_SHORT);
    event = next(loop, commands, 1, 0);
    must("a whole one is sent", event.kind, QUOIT_EVENT_SENT);
    must("as always", (long)event.token, 8);
    must("the peer has all there was", (long)recv(client, bytes, 9, MSG_WAITALL), 9);
    expect(memcmp(bytes, "headtail!", 9) == 0, "in order");

    commands[0] = send_file(connection, file_of("head", 1), 4, 9, 32);
    event = next(loop, commands, 1, 0);
    must("an unknown flag is refused", event.kind, QUOIT_EVENT_REFUSED);
    must("as invalid", event.error, -EINVAL);

    commands[0] = send_file(connection, file_of("head", 1), 10, 10, 0);
    event = next(loop, commands, 1, 0);
    must("not told of, it ends the connection", event.kind, QUOIT_EVENT_CLOSED);
    must("with the reason", event.error, -ENODATA);
    close(client);
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

static void options(void)
{
    quoit_config config = config_of(engine);
    quoit_loop *loop = loop_with(&config, 0);
    quoit_listen_options options;
    uint64_t listener;
    options.size = sizeof options;
    check("quoit_listen_options_default", quoit_listen_options_default(&options));
    options.tell_failures = 2;
    must("told or not", quoit_listen(loop, bound(), &options, &listener), -EINVAL);
    options.tell_failures = 1;
    options.reserved_too = 1;
    must("a reserve", quoit_listen(loop, bound(), &options, &listener), -EINVAL);
    /* Of a program that was made before there were these. */
    options.size = offsetof(quoit_listen_options, tell_failures);
    check("the first size", quoit_listen(loop, bound(), &options, &listener));
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

static void descriptors(void)
{
    quoit_config config = config_of(engine);
    struct rlimit limit = { DESCRIPTORS, DESCRIPTORS };
    quoit_loop *loop;
    uint64_t listener;
    int taken[DESCRIPTORS], count = 0, client;
    quoit_event event;

    must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit), 0);
    loop = loop_with(&config, 0);
    listener = listening(loop, 1);
    client = tcp();
    while ((taken[count] = dup(client)) >= 0)
        count++;
    must("there are no more", errno, EMFILE);
    connect_to(loop, listener, client);
    event = next(loop, NULL, 0, 0);
    must("it is told of", event.kind, QUOIT_EVENT_ACCEPT_FAILED);
    expect(event.listener == listener, "with its listener");
    must("and the reason", event.error, -EMFILE);
    while (count > 0)
        close(taken[--count]);
    event = next(loop, NULL, 0, QUOIT_EVENT_ACCEPT_FAILED);
    must("and then it is accepted", event.kind, QUOIT_EVENT_ACCEPTED);
    close(client);
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: failures uring|epoll\n");
        return 2;
    }
    check("quoit_abi_check", quoit_abi_check(QUOIT_ABI_VERSION));
    engine = argv[1];
    files();
    options();
    descriptors();
    return 0;
}
