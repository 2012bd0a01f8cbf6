/*
 * Another thread sends on a connection while the loop sleeps, through the C ABI. Usage: direct ENGINE
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
    const quoit_remote *remote;
    uint64_t connection;
    int peer;
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
    command.target = sending->connection;
    must("quoit_remote_post", (long)quoit_remote_post(sending->remote, &command, 1), 1);
    return NULL;
}

int main(int argc, char **argv)
{
    quoit_loop *loop = make_loop(argc == 2 ? argv[1] : "", 3, 0);
    quoit_event events[EVENTS];
    quoit_counters counters;
    quoit_socket *socket_;
    struct sending sending;
    struct iovec nowhere = {NULL, 1};
    struct sockaddr_storage storage;
    pthread_t thread;
    uint64_t listener;
    char text[64], byte = 0;
    int closed = 0;
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
    while (sending.connection == 0) {
        if (check("quoit_turn", quoit_turn(loop, NULL, 0, events, 1, -1)) == 1 && events[0].kind == QUOIT_EVENT_ACCEPTED)
            sending.connection = events[0].connection;
    }
    must("to nowhere", quoit_loop_direct_sender(loop, sending.connection, NULL), -EINVAL);
    check("quoit_loop_direct_sender", quoit_loop_direct_sender(loop, sending.connection, &sending.sender));
    must("a piece that is null", (long)quoit_direct_sender_try_send(sending.sender, &nowhere, 1), -EINVAL);
    must("nothing", (long)quoit_direct_sender_try_send(sending.sender, NULL, 0), 0);
    must("while the loop is awake", (long)try_send(sending.sender, &byte, 1), 0);

    must("pthread_create", pthread_create(&thread, NULL, send_directly, &sending), 0);
    while (!closed) {
        long index, filled = check("quoit_turn", quoit_turn(loop, NULL, 0, events, EVENTS, -1));
        for (index = 0; index < filled; index++)
            closed |= events[index].kind == QUOIT_EVENT_CLOSED;
    }
    must("pthread_join", pthread_join(thread, NULL), 0);
    must("once it is closed", (long)try_send(sending.sender, &byte, 1), 0);
    must("of one that is closed", quoit_loop_direct_sender(loop, sending.connection, &sending.sender), -ENOENT);
    counters.size = sizeof counters;
    check("quoit_remote_counters", quoit_remote_counters(sending.remote, &counters));
    expect(counters.direct_sends >= MESSAGES, "each was counted");
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
    must("once the loop is gone", (long)try_send(sending.sender, &byte, 1), 0);
    quoit_direct_sender_release(sending.sender);
    quoit_remote_release(sending.remote);
    close(sending.peer);
    return 0;
}
