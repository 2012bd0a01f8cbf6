/*
 * Another thread sends on a connection, and then datagrams, while the loop sleeps, through the C ABI. Usage: direct ENGINE
 */
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"

#define MESSAGES 200
#define EVENTS 8

/* What the sending thread is given, and what it has sent by. */
struct sending {
    const quoit_direct_sender *sender;
    const quoit_direct_datagram_sender *datagram_sender;
    const quoit_remote *remote;
    uint64_t target; /* the connection, or the datagram socket */
    int peer;
    struct sockaddr_in peer_address;
};

static int64_t try_send(const quoit_direct_sender *sender, char *bytes, size_t length)
{
    const struct iovec pieces[] = {{bytes, length / 2}, {bytes + length / 2, length - length / 2}};
    return check("quoit_direct_sender_try_send", (long)quoit_direct_sender_try_send(sender, pieces, 2));
}

/* Sends by itself, and reads at the other end what has come; then has the loop end the connection. */
static void *send_directly(void *argument)
{
    const struct sending *sending = (const struct sending *)argument;
    quoit_command command;
    int message;
    for (message = 1; message <= MESSAGES; message++) {
        char bytes[MESSAGES], received[MESSAGES];
        size_t sent = 0;
        memset(bytes, message, sizeof bytes);
        /* The loop may not sleep yet, or be awake for another reason. */
        while (sent < (size_t)message) {
            sent += (size_t)try_send(sending->sender, bytes + sent, (size_t)message - sent);
            sched_yield();
        }
        must("recv", recv(sending->peer, received, (size_t)message, MSG_WAITALL), message);
        expect(memcmp(bytes, received, (size_t)message) == 0, "what was sent has come");
    }
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_ABORT;
    command.target = sending->target;
    must("quoit_remote_post", (long)quoit_remote_post(sending->remote, &command, 1), 1);
    return NULL;
}

static int send_datagram(const struct sending *sending, const void *bytes, size_t length)
{
    const struct sockaddr_in *to = &sending->peer_address;
    return quoit_direct_datagram_sender_try_send(sending->datagram_sender, to, sizeof *to, bytes, length);
}

/* The same with datagrams, and the socket is closed. */
static void *send_datagrams(void *argument)
{
    const struct sending *sending = (const struct sending *)argument;
    quoit_command command;
    uint32_t message, received;
    for (message = 1; message <= MESSAGES; message++) {
        while (check("send_datagram", send_datagram(sending, &message, sizeof message)) == 0)
            sched_yield();
        must("recv", recv(sending->peer, &received, sizeof received, 0), sizeof received);
        expect(received == message, "what was sent has come");
    }
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_CLOSE_DATAGRAM;
    command.target = sending->target;
    must("quoit_remote_post", (long)quoit_remote_post(sending->remote, &command, 1), 1);
    return NULL;
}

/* Turns until there is an event of this kind. */
static void await(quoit_loop *loop, uint32_t kind)
{
    quoit_event events[EVENTS];
    for (;;) {
        long index, filled = check("quoit_turn", quoit_turn(loop, NULL, 0, events, EVENTS, -1));
        for (index = 0; index < filled; index++) {
            if (events[index].kind == kind)
                return;
        }
    }
}

static void with_datagrams(quoit_loop *loop, const quoit_remote *remote)
{
    quoit_datagram_socket *socket_;
    quoit_datagram_counters counters;
    struct sending sending;
    socklen_t length = sizeof sending.peer_address;
    pthread_t thread;
    uint64_t opened;
    memset(&sending, 0, sizeof sending);
    sending.remote = remote;
    must("of no loop", quoit_loop_direct_datagram_sender(NULL, 1, &sending.datagram_sender), -EINVAL);
    must("of no socket", quoit_loop_direct_datagram_sender(loop, 1, &sending.datagram_sender), -ENOENT);
    must("by nothing", send_datagram(&sending, "x", 1), -EINVAL);
    quoit_direct_datagram_sender_release(NULL);

    sending.peer = (int)check("socket", socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sending.peer_address.sin_family = AF_INET;
    sending.peer_address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    must("bind", bind(sending.peer, (struct sockaddr *)&sending.peer_address, length), 0);
    must("getsockname", getsockname(sending.peer, (struct sockaddr *)&sending.peer_address, &length), 0);
    check("quoit_datagram_socket_bind", quoit_datagram_socket_bind("127.0.0.1:0", 11, NULL, &socket_));
    check("quoit_open_datagram", quoit_open_datagram(loop, socket_, 0, &sending.target));
    must("to nowhere", quoit_loop_direct_datagram_sender(loop, sending.target, NULL), -EINVAL);
    check("a sender", quoit_loop_direct_datagram_sender(loop, sending.target, &sending.datagram_sender));
    must("bytes that are null", send_datagram(&sending, NULL, 1), -EINVAL);
    must("an address that is null",
         quoit_direct_datagram_sender_try_send(sending.datagram_sender, NULL, 16, "x", 1), -EINVAL);
    must("to no address", quoit_direct_datagram_sender_try_send(sending.datagram_sender, "xx", 2, "x", 1), -EINVAL);
    must("while the loop is awake", send_datagram(&sending, "x", 1), 0);

    must("pthread_create", pthread_create(&thread, NULL, send_datagrams, &sending), 0);
    opened = sending.target;
    counters.size = sizeof counters;
    do {
        quoit_event events[EVENTS];
        check("quoit_turn", quoit_turn(loop, NULL, 0, events, EVENTS, 1000000));
        check("quoit_datagram_counters_read", quoit_datagram_counters_read(loop, opened, &counters));
    } while (counters.sent < MESSAGES);
    must("as many as left", (long)counters.sent_bytes, MESSAGES * sizeof(uint32_t));
    must("each by the other thread", (long)counters.direct_sends, MESSAGES);
    await(loop, QUOIT_EVENT_DATAGRAM_CLOSED);
    must("pthread_join", pthread_join(thread, NULL), 0);
    must("once it is closed", send_datagram(&sending, "x", 1), 0);
    must("of one that is closed", quoit_loop_direct_datagram_sender(loop, opened, &sending.datagram_sender), -ENOENT);
    quoit_direct_datagram_sender_release(sending.datagram_sender);
    close(sending.peer);
}

int main(int argc, char **argv)
{
    quoit_loop *loop = make_loop(argc == 2 ? argv[1] : "", 3, 0);
    quoit_event events[1];
    quoit_counters counters;
    quoit_socket *socket_;
    struct sending sending;
    struct iovec nowhere = {NULL, 1};
    struct sockaddr_storage storage;
    pthread_t thread;
    uint64_t listener;
    char text[64], byte = 0;
    memset(&sending, 0, sizeof sending);
    must("of no loop", quoit_loop_direct_sender(NULL, 1, &sending.sender), -EINVAL);
    must("of no connection", quoit_loop_direct_sender(loop, 1, &sending.sender), -ENOENT);
    must("by nothing", (long)quoit_direct_sender_try_send(NULL, NULL, 0), -EINVAL);
    quoit_direct_sender_release(NULL);

    check("quoit_socket_bind", quoit_socket_bind("127.0.0.1:0", 11, NULL, &socket_));
    check("quoit_listen", quoit_listen(loop, socket_, NULL, &listener));
    check("quoit_listener_address", quoit_listener_address(loop, listener, text, sizeof text));
    check("quoit_loop_remote", quoit_loop_remote(loop, &sending.remote));
    check("quoit_sockaddr_parse", quoit_sockaddr_parse(text, strlen(text), &storage, sizeof storage));
    sending.peer = (int)check("socket", socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    must("connect", connect(sending.peer, (struct sockaddr *)&storage, sizeof(struct sockaddr_in)), 0);
    while (sending.target == 0) {
        if (check("quoit_turn", quoit_turn(loop, NULL, 0, events, 1, -1)) == 1 && events[0].kind == QUOIT_EVENT_ACCEPTED)
            sending.target = events[0].connection;
    }
    must("to nowhere", quoit_loop_direct_sender(loop, sending.target, NULL), -EINVAL);
    check("quoit_loop_direct_sender", quoit_loop_direct_sender(loop, sending.target, &sending.sender));
    must("a piece that is null", (long)quoit_direct_sender_try_send(sending.sender, &nowhere, 1), -EINVAL);
    must("nothing", (long)quoit_direct_sender_try_send(sending.sender, NULL, 0), 0);
    must("while the loop is awake", (long)try_send(sending.sender, &byte, 1), 0);

    must("pthread_create", pthread_create(&thread, NULL, send_directly, &sending), 0);
    await(loop, QUOIT_EVENT_CLOSED);
    must("pthread_join", pthread_join(thread, NULL), 0);
    must("once it is closed", (long)try_send(sending.sender, &byte, 1), 0);
    must("of one that is closed", quoit_loop_direct_sender(loop, sending.target, &sending.sender), -ENOENT);
    counters.size = sizeof counters;
    check("quoit_remote_counters", quoit_remote_counters(sending.remote, &counters));
    expect(counters.direct_sends >= MESSAGES, "each was counted");
    with_datagrams(loop, sending.remote);
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
    must("once the loop is gone", (long)try_send(sending.sender, &byte, 1), 0);
    quoit_direct_sender_release(sending.sender);
    quoit_remote_release(sending.remote);
    close(sending.peer);
    return 0;
}
