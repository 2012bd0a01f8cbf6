/*
 * What datagram sockets do through the C ABI, case by case, with sockets of the kernel's own as peers. Usage:
 * datagrams ENGINE
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"

/* Of Linux 4.18 and 5.0. */
#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif

static quoit_loop *loop;

/* ---- What the cases share ---- */

static quoit_datagram_options defaults(void)
{
    quoit_datagram_options options;
    options.size = sizeof options;
    check("quoit_datagram_options_default", quoit_datagram_options_default(&options));
    return options;
}

static quoit_datagram_socket *bound(const char *address, const quoit_datagram_options *options)
{
    quoit_datagram_socket *socket;
    check(address, quoit_datagram_socket_bind(address, strlen(address), options, &socket));
    return socket;
}

/* The next event that is none of `unwanted` (0: none), within ten seconds. */
static quoit_event next_event(const quoit_command *commands, size_t count)
{
    quoit_event event;
    int round;
    memset(&event, 0, sizeof event);
    for (round = 0; round < 100; round++) {
        long filled = check("quoit_turn", quoit_turn(loop, commands, count, &event, 1, 100000000));
        count = 0;
        if (filled == 1)
            return event;
    }
    expect(0, "something happens within ten seconds");
    return event;
}

static quoit_event expect_event(uint16_t kind, uint64_t socket)
{
    quoit_event event = next_event(NULL, 0);
    if (event.kind != kind || event.connection != socket) {
        fprintf(stderr, "event %d, reason %d, error %d, and not %d\n", event.kind, event.reason, event.error, kind);
        exit(1);
    }
    return event;
}

/* What is carried out says nothing. */
static void run(const quoit_command *commands, size_t count)
{
    quoit_event event;
    must("a turn of silent commands", quoit_turn(loop, commands, count, &event, 1, 0), 0);
}

static uint64_t opened(quoit_datagram_socket *socket)
{
    uint64_t id;
    check("quoit_open_datagram", quoit_open_datagram(loop, socket, 77, &id));
    expect(expect_event(QUOIT_EVENT_DATAGRAM_OPENED, id).token == 77, "the token comes back");
    return id;
}

static uint64_t opened_on(const char *address, const quoit_datagram_options *options)
{
    return opened(bound(address, options));
}

static quoit_command command(uint16_t kind, uint64_t target)
{
    quoit_command command;
    memset(&command, 0, sizeof command);
    command.kind = kind;
    command.target = target;
    return command;
}

static quoit_command sending(uint64_t socket, const quoit_datagram_send *sends, uint32_t count)
{
    quoit_command send = command(QUOIT_COMMAND_SEND_DATAGRAMS, socket);
    send.data = sends;
    send.length = count;
    return send;
}

static quoit_datagram_send to(const void *address, uint32_t length, const char *text)
{
    quoit_datagram_send send;
    memset(&send, 0, sizeof send);
    send.data = text;
    send.length = (uint32_t)strlen(text);
    send.to = address;
    send.to_length = length;
    return send;
}

static void shut(uint64_t socket)
{
    quoit_command end = command(QUOIT_COMMAND_CLOSE_DATAGRAM, socket);
    quoit_event event = next_event(&end, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_CLOSED && event.connection == socket && event.token == 77
               && event.error == 0, "it is closed");
    must("a stale id", quoit_datagram_fd(loop, socket), -ENOENT);
}

static void return_lease(uint64_t lease)
{
    quoit_command back = command(QUOIT_COMMAND_RETURN_LEASE, 0);
    back.lease = lease;
    run(&back, 1);
}

/* An address of the kernel's form for a text. */
static uint32_t parsed(const char *text, struct sockaddr_storage *storage)
{
    memset(storage, 0, sizeof *storage);
    return (uint32_t)check(text, quoit_sockaddr_parse(text, strlen(text), storage, sizeof *storage));
}

static uint32_t address_of(uint64_t socket, struct sockaddr_storage *storage)
{
    char text[256];
    check("quoit_datagram_address", quoit_datagram_address(loop, socket, text, sizeof text));
    return parsed(text, storage);
}

/* A socket of the kernel's, bound to an address of no port, and its address. */
static int peer_on(const char *address, struct sockaddr_storage *storage, socklen_t *length)
{
    int descriptor;
    struct timeval patience = {10, 0};
    uint32_t bytes = parsed(address, storage);
    descriptor = (int)check("socket", socket(storage->ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    check("setsockopt", setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    check("bind", bind(descriptor, (struct sockaddr *)storage, bytes));
    *length = sizeof *storage;
    check("getsockname", getsockname(descriptor, (struct sockaddr *)storage, length));
    return descriptor;
}

static void put(int descriptor, uint64_t socket, const void *bytes, size_t length)
{
    struct sockaddr_storage storage;
    uint32_t size = address_of(socket, &storage);
    must("sendto", sendto(descriptor, bytes, length, 0, (struct sockaddr *)&storage, size), (long)length);
}

/* ---- Cases ---- */

static void texts_of_addresses(void)
{
    static const char *const texts[] = {"127.0.0.1:53", "[::1]:5300", "unix:/run/a.sock", "unix:@name"};
    struct sockaddr_storage storage;
    char text[128];
    size_t index;
    for (index = 0; index < 4; index++) {
        uint32_t length = parsed(texts[index], &storage);
        must("as long as the text", quoit_sockaddr_text(&storage, length, text, sizeof text),
             (long)strlen(texts[index]));
        expect(strcmp(text, texts[index]) == 0, texts[index]);
        must("too little room only asks", quoit_sockaddr_parse(texts[index], strlen(texts[index]), NULL, 3),
             (long)length);
    }
    must("no address", quoit_sockaddr_parse("nonsense", 8, &storage, sizeof storage), -EINVAL);
    check("a Unix socket without a name", quoit_sockaddr_text(NULL, 0, text, sizeof text));
    expect(strcmp(text, "unix:") == 0, "it has none");
    memset(&storage, 0xff, sizeof storage);
    must("no family", quoit_sockaddr_text(&storage, 16, text, sizeof text), -EINVAL);
}

static void all_that_is_told(void)
{
    quoit_datagram_options options = defaults();
    const quoit_datagrams *view;
    struct sockaddr_storage storage;
    socklen_t length;
    quoit_event event;
    uint64_t socket;
    int tos = 1, peer = peer_on("127.0.0.1:0", &storage, &length);
    options.flags = QUOIT_DATAGRAM_TELL_ECN | QUOIT_DATAGRAM_TELL_TIME | QUOIT_DATAGRAM_TELL_LOCAL;
    options.max_datagram = 100;
    socket = opened_on("127.0.0.1:0", &options);

    check("IP_TOS", setsockopt(peer, IPPROTO_IP, IP_TOS, &tos, sizeof tos));
    put(peer, socket, "hello", 5);
    event = expect_event(QUOIT_EVENT_DATAGRAMS, socket);
    view = (const quoit_datagrams *)event.data;
    expect(event.length == 5 && view->length == 5 && memcmp(view->data, "hello", 5) == 0, "the bytes");
    expect(view->count == 1 && view->segment_size == 0, "one datagram");
    expect(view->flags == QUOIT_DATAGRAMS_ECN && view->ecn == 1, "ECT(1), and whole");
    expect(view->timestamp_ns > 1600000000ll * 1000000000, "a time of this age");
    expect(view->interface == if_nametoindex("lo"), "the interface");
    expect(view->local_length == 4 && memcmp(view->local, "\x7f\0\0\1", 4) == 0, "where to");
    expect(view->peer_length == length && memcmp(view->peer, &storage, length) == 0, "who");
    return_lease(event.lease);

    /* None at all, and too much. */
    put(peer, socket, "", 0);
    event = expect_event(QUOIT_EVENT_DATAGRAMS, socket);
    view = (const quoit_datagrams *)event.data;
    expect(event.length == 0 && view->count == 1, "a datagram of nothing");
    expect(!(view->flags & QUOIT_DATAGRAMS_TRUNCATED), "which is all of it");
    return_lease(event.lease);
    {
        static char large[101];
        quoit_datagram_counters counters;
        put(peer, socket, large, sizeof large);
        event = expect_event(QUOIT_EVENT_DATAGRAMS, socket);
        view = (const quoit_datagrams *)event.data;
        expect(view->length == 100 && view->flags & QUOIT_DATAGRAMS_TRUNCATED, "cut, and said so");
        return_lease(event.lease);
        counters.size = sizeof counters;
        check("counters", quoit_datagram_counters_read(loop, socket, &counters));
        expect(counters.received == 3 && counters.received_bytes == 105 && counters.truncated == 1, "three");
        expect(counters.slots == 64 && counters.slots_leased == 0 && counters.kernel_drops == 0, "of 64 slots");
        counters.size = 8;
        must("a structure of no size", quoit_datagram_counters_read(loop, socket, &counters), -EINVAL);
    }
    shut(socket);
    close(peer);
}

/* A batch to two peers, lent and copied, with source and ECN, in segments; outcomes by token. */
static void batches(void)
{
    static const char lent[] = "lent memory";
    struct sockaddr_storage first, second;
    socklen_t first_length, second_length;
    quoit_datagram_send sends[5];
    quoit_command send;
    quoit_event event;
    char bytes[64];
    int outcomes = 0, one = peer_on("127.0.0.1:0", &first, &first_length),
        two = peer_on("127.0.0.2:0", &second, &second_length);
    uint64_t socket = opened_on("0.0.0.0:0", NULL);
    sends[0] = to(&first, first_length, "copied");
    sends[1] = to(&second, second_length, lent);
    sends[1].flags = QUOIT_FLAG_BORROWED | QUOIT_FLAG_ECN;
    sends[1].ecn = 2;
    sends[1].token = 21;
    sends[2] = to(&first, first_length, "aabbc");
    sends[2].segment_size = 2;
    sends[2].token = 22;
    sends[3] = to(&second, second_length, "from elsewhere");
    memcpy(sends[3].source, "\x7f\0\0\5", 4);
    sends[3].source_length = 4;
    sends[4] = to(&second, second_length, "");
    sends[4].data = NULL;
    send = sending(socket, sends, 5);
    event = next_event(&send, 1);
    for (; outcomes < 2; outcomes++) {
        expect(event.kind == QUOIT_EVENT_DATAGRAM_SENT && event.connection == socket && event.error == 0, "sent");
        expect(event.token == 21 ? event.length == sizeof lent - 1 : event.token == 22 && event.length == 5, "which");
        if (outcomes == 0)
            event = next_event(NULL, 0);
    }
    must("the copied one", recv(one, bytes, sizeof bytes, 0), 6);
    must("a segment", recv(one, bytes, sizeof bytes, 0), 2);
    must("another", recv(one, bytes, sizeof bytes, 0), 2);
    must("the rest", recv(one, bytes, sizeof bytes, 0), 1);
    must("the lent one", recv(two, bytes, sizeof bytes, 0), sizeof lent - 1);
    expect(memcmp(bytes, lent, sizeof lent - 1) == 0, "its bytes");
    {
        struct sockaddr_in from;
        socklen_t length = sizeof from;
        must("the one of another source", recvfrom(two, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &length), 14);
        expect(from.sin_addr.s_addr == htonl(0x7f000005), "that source");
    }
    must("the empty one", recv(two, bytes, sizeof bytes, 0), 0);
    shut(socket);
    close(one);
    close(two);
}

/* Errors of sends, each with what it concerns; the socket goes on. */
static void errors_of_sends(void)
{
    static char huge[70000];
    struct sockaddr_storage storage;
    socklen_t length;
    quoit_datagram_send sends[2];
    quoit_command send;
    quoit_event event;
    char bytes[8];
    int peer = peer_on("127.0.0.1:0", &storage, &length);
    uint64_t socket = opened_on("127.0.0.1:0", NULL);

    sends[0] = to(&storage, length, "");
    sends[0].data = huge;
    sends[0].length = sizeof huge;
    send = sending(socket, sends, 1);
    event = next_event(&send, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_ERROR && event.reason == QUOIT_DATAGRAM_ERROR_TOO_LARGE
               && event.error == -EMSGSIZE && event.length == sizeof huge, "too large, with the size");
    sends[0].token = 9;
    event = next_event(&send, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_SENT && event.token == 9 && event.error == -EMSGSIZE,
           "or by the token");

    /* One that makes no sense undoes the batch. */
    sends[0] = to(&storage, length, "good");
    sends[1] = to(&storage, 3, "bad");
    send = sending(socket, sends, 2);
    send.token = 4;
    event = next_event(&send, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_REFUSED && event.connection == socket && event.token == 4
               && event.reason == QUOIT_REFUSED_ERROR && event.error == -EINVAL, "no address");
    must("nothing came", recv(peer, bytes, sizeof bytes, MSG_DONTWAIT), -1);
    sends[1] = to(&storage, length, "bad");
    sends[1].reserved[3] = 1;
    expect(next_event(&send, 1).error == -EINVAL, "what is not known");
    sends[1] = to(&storage, length, "bad");
    sends[1].lease = 12345;
    event = next_event(&send, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_REFUSED && event.reason == QUOIT_REFUSED_STALE, "no lease");
    sends[1] = to(NULL, 0, "to nobody");
    sends[1].token = 6;
    event = next_event(&send, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_REFUSED && event.token == 6 && event.error == -EDESTADDRREQ,
           "no peer, told by the send's own token");
    must("the one before it left", recv(peer, bytes, sizeof bytes, 0), 4);

    /* Ids that name nothing, or something else. */
    send.target = socket + 1;
    event = next_event(&send, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_REFUSED && event.reason == QUOIT_REFUSED_STALE, "no socket");
    expect(next_event(NULL, 0).reason == QUOIT_REFUSED_STALE, "told for each send");
    send = command(QUOIT_COMMAND_ABORT, socket);
    event = next_event(&send, 1);
    expect(event.kind == QUOIT_EVENT_REFUSED && event.reason == QUOIT_REFUSED_STALE, "no connection");
    shut(socket);
    close(peer);
}

/* A socket that hears itself only: whoever sends to it is told that nobody is there, and nobody can take its port. */
static int deaf_on(const char *address, struct sockaddr_storage *storage, socklen_t *length)
{
    int descriptor = peer_on(address, storage, length);
    check("connect", connect(descriptor, (struct sockaddr *)storage, *length));
    return descriptor;
}

/* A connected socket learns that nobody is there, and goes on. */
static void unreachable_peers(void)
{
    quoit_datagram_options options = defaults();
    struct sockaddr_storage storage;
    socklen_t length;
    char text[64];
    quoit_datagram_send send = to(NULL, 0, "anybody?");
    quoit_command commands;
    quoit_event event;
    uint64_t socket;
    int deaf = deaf_on("127.0.0.1:0", &storage, &length);
    check("text", quoit_sockaddr_text(&storage, length, text, sizeof text));
    options.peer = text;
    options.peer_length = (uint32_t)strlen(text);
    socket = opened_on("127.0.0.1:0", &options);
    commands = sending(socket, &send, 1);
    event = next_event(&commands, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_ERROR && event.error == -ECONNREFUSED, "its peer refused");
    shut(socket);
    close(deaf);
}

static void expect_unreachable(const quoit_event *event, uint64_t socket, const void *receiver, uint32_t length)
{
    expect(event->kind == QUOIT_EVENT_DATAGRAM_ERROR && event->connection == socket
               && event->reason == QUOIT_DATAGRAM_ERROR_UNREACHABLE && event->error == -ECONNREFUSED, "a receiver refused");
    expect(event->length == length && memcmp(event->data, receiver, length) == 0, "by whom");
}

/* One without a peer is told who of several is not there, and the others get theirs. */
static void unreachable_receivers(void)
{
    quoit_datagram_options options = defaults();
    struct sockaddr_storage gone[2], present;
    socklen_t lengths[2], length;
    quoit_datagram_send sends[2];
    quoit_command commands;
    quoit_event event, sent;
    char bytes[16];
    uint64_t socket;
    int index, deaf[2], here = peer_on("127.0.0.1:0", &present, &length);
    for (index = 0; index < 2; index++)
        deaf[index] = deaf_on("127.0.0.1:0", &gone[index], &lengths[index]);
    options.flags = QUOIT_DATAGRAM_TELL_UNREACHABLE;
    socket = opened_on("127.0.0.1:0", &options);
    for (index = 0; index < 2; index++) {
        sends[0] = to(&gone[index], lengths[index], "anybody?");
        sends[1] = to(&present, length, "you");
        sends[1].token = 5;
        commands = sending(socket, sends, 2);
        event = next_event(&commands, 1);
        if (event.kind == QUOIT_EVENT_DATAGRAM_SENT) {
            sent = event;
            event = next_event(NULL, 0);
            expect_unreachable(&event, socket, &gone[index], lengths[index]);
        } else {
            expect_unreachable(&event, socket, &gone[index], lengths[index]);
            sent = next_event(NULL, 0);
        }
        expect(sent.kind == QUOIT_EVENT_DATAGRAM_SENT && sent.connection == socket && sent.token == 5
                   && sent.error == 0, "it is not blamed for the other");
        must("what was for another", recv(here, bytes, sizeof bytes, MSG_DONTWAIT), 3);
    }
    shut(socket);
    for (index = 0; index < 2; index++)
        close(deaf[index]);
    close(here);
}

/* Sends past the queue's end are refused, and WRITABLE follows. */
static void full_queues(void)
{
    static char kilobyte[1024];
    quoit_datagram_options options = defaults();
    struct sockaddr_storage storage;
    socklen_t length;
    quoit_datagram_send sends[4];
    quoit_command send;
    uint64_t socket;
    int index, refused = 0, writable = 0, peer = peer_on("127.0.0.1:0", &storage, &length);
    options.high_water = 2048;
    options.low_water = 0;
    socket = opened_on("127.0.0.1:0", &options);
    for (index = 0; index < 4; index++) {
        sends[index] = to(&storage, length, "");
        sends[index].data = kilobyte;
        sends[index].length = sizeof kilobyte;
    }
    send = sending(socket, sends, 4);
    while (!writable) {
        quoit_event event = next_event(&send, send.kind != 0);
        send.kind = 0;
        if (event.kind == QUOIT_EVENT_DATAGRAM_REFUSED) {
            expect(event.reason == QUOIT_REFUSED_FULL, "full");
            refused++;
        } else {
            expect(event.kind == QUOIT_EVENT_DATAGRAM_WRITABLE, "room again");
            writable = 1;
        }
    }
    expect(refused == 2, "two had room");
    shut(socket);
    close(peer);
}

/* After a pause nothing comes; what was sent meanwhile comes after it. */
static void pauses(void)
{
    struct sockaddr_storage storage;
    socklen_t length;
    quoit_event event;
    quoit_command pause;
    int peer = peer_on("127.0.0.1:0", &storage, &length);
    uint64_t socket = opened_on("127.0.0.1:0", NULL);
    pause = command(QUOIT_COMMAND_PAUSE_DATAGRAMS, socket);
    run(&pause, 1);
    put(peer, socket, "later", 5);
    must("a turn while paused", quoit_turn(loop, NULL, 0, &event, 1, 10000000), 0);
    pause = command(QUOIT_COMMAND_RESUME_DATAGRAMS, socket);
    event = next_event(&pause, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAMS && event.length == 5, "it comes now");
    return_lease(event.lease);
    shut(socket);
    close(peer);
}

/* Joined datagrams, in one view, sent back from where they lie. */
static void joined(void)
{
    static const char bytes[] = "aaaabbbbcccc";
    quoit_datagram_options options = defaults();
    struct sockaddr_storage storage;
    socklen_t length;
    quoit_datagram_send send;
    quoit_command echo;
    char answer[64];
    uint32_t received = 0, cut = 0;
    uint64_t socket, leases[3];
    int size = 4, peer = peer_on("127.0.0.1:0", &storage, &length);
    options.gro = QUOIT_GRO_TRANSPARENT;
    socket = opened_on("127.0.0.1:0", &options);
    if (setsockopt(peer, IPPROTO_UDP, UDP_SEGMENT, &size, sizeof size) != 0) {
        printf("skipped joined datagrams: this kernel makes no segments\n");
    } else {
        put(peer, socket, bytes, sizeof bytes - 1);
        while (received < 3) {
            quoit_event event = expect_event(QUOIT_EVENT_DATAGRAMS, socket);
            const quoit_datagrams *view = (const quoit_datagrams *)event.data;
            expect(view->count * 4 == view->length, "four bytes each");
            expect(view->count == 1 || view->segment_size == 4, "as it says");
            expect(memcmp(view->data, bytes + received * 4, view->length) == 0, "in their order");
            if (view->count == 1) {
                /* Before Linux 5.11 the loopback device cuts them up: three events, in no order with what is sent. */
                received += 1;
                leases[cut++] = event.lease;
                continue;
            }
            received += view->count;
            /* All but the first byte, from the lease. */
            send = to(view->peer, view->peer_length, "");
            send.data = (const char *)view->data + 1;
            send.length = view->length - 1;
            send.lease = event.lease;
            send.token = received;
            echo = sending(socket, &send, 1);
            event = next_event(&echo, 1);
            expect(event.kind == QUOIT_EVENT_DATAGRAM_SENT && event.length == send.length, "sent from the lease");
            must("the answer", recv(peer, answer, sizeof answer, 0), (long)send.length);
            event = next_event(&echo, 1);
            expect(event.kind == QUOIT_EVENT_DATAGRAM_REFUSED && event.reason == QUOIT_REFUSED_STALE,
                   "a lease is used up");
        }
    }
    while (cut > 0) {
        return_lease(leases[--cut]);
    }
    shut(socket);
    close(peer);
}

static void multicast(void)
{
    quoit_datagram_options options = defaults();
    quoit_multicast_group group;
    struct sockaddr_storage storage;
    socklen_t length;
    quoit_event event;
    quoit_command member;
    struct ip_mreqn interface;
    struct sockaddr_in target;
    uint64_t socket;
    int peer = peer_on("127.0.0.1:0", &storage, &length);
    memset(&group, 0, sizeof group);
    memcpy(group.address, "\xef\1\2\3", 4);
    group.address_length = 4;
    group.interface = if_nametoindex("lo");
    options.groups = &group;
    options.group_count = 1;
    options.multicast_loop = 1;
    options.multicast_hops = 1;
    socket = opened_on("0.0.0.0:0", &options);
    memset(&interface, 0, sizeof interface);
    interface.imr_ifindex = (int)group.interface;
    check("IP_MULTICAST_IF", setsockopt(peer, IPPROTO_IP, IP_MULTICAST_IF, &interface, sizeof interface));
    address_of(socket, &storage);
    memcpy(&target, &storage, sizeof target);
    memcpy(&target.sin_addr, group.address, 4);
    must("to the group", sendto(peer, "all", 3, 0, (struct sockaddr *)&target, sizeof target), 3);
    event = expect_event(QUOIT_EVENT_DATAGRAMS, socket);
    expect(event.length == 3, "a member gets it");
    return_lease(event.lease);

    member = command(QUOIT_COMMAND_JOIN_MULTICAST, socket);
    member.data = &group;
    event = next_event(&member, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_REFUSED && event.error == -EADDRINUSE, "a member already");
    member.kind = QUOIT_COMMAND_LEAVE_MULTICAST;
    run(&member, 1);
    event = next_event(&member, 1);
    expect(event.error == -EADDRNOTAVAIL, "no member any more");
    group.address[0] = 10;
    member.kind = QUOIT_COMMAND_JOIN_MULTICAST;
    event = next_event(&member, 1);
    expect(event.reason == QUOIT_REFUSED_ERROR && event.error == -EINVAL, "no group");
    group.address_length = 5;
    expect(next_event(&member, 1).error == -EINVAL, "no address");
    member.data = NULL;
    expect(next_event(&member, 1).error == -EINVAL, "nothing at all");
    /* The socket goes on, and can still be a member of the right one. */
    memcpy(group.address, "\xef\1\2\3", 4);
    group.address_length = 4;
    member.data = &group;
    run(&member, 1);
    must("to the group", sendto(peer, "again", 5, 0, (struct sockaddr *)&target, sizeof target), 5);
    event = expect_event(QUOIT_EVENT_DATAGRAMS, socket);
    expect(event.length == 5, "a member again gets it");
    return_lease(event.lease);
    shut(socket);
    close(peer);
}

/* IPv6 with IPv4 behind it, and Unix sockets with and without a name. */
static void families(void)
{
    struct sockaddr_storage storage;
    socklen_t length;
    quoit_event event;
    quoit_datagram_send send;
    quoit_command commands;
    char text[128], path[64];
    int peer = peer_on("127.0.0.1:0", &storage, &length);
    uint64_t named, nameless, dual;
    struct sockaddr_in6 over_six;
    struct sockaddr_in four;

    /* All of IPv4 comes to [::] too, and is answered by the address that it shows. */
    dual = opened_on("[::]:0", NULL);
    address_of(dual, (struct sockaddr_storage *)&over_six);
    memset(&four, 0, sizeof four);
    four.sin_family = AF_INET;
    four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    four.sin_port = over_six.sin6_port;
    must("sendto", sendto(peer, "four", 4, 0, (struct sockaddr *)&four, sizeof four), 4);
    event = expect_event(QUOIT_EVENT_DATAGRAMS, dual);
    {
        const quoit_datagrams *view = (const quoit_datagrams *)event.data;
        check("text", quoit_sockaddr_text(view->peer, view->peer_length, text, sizeof text));
        expect(strncmp(text, "[::ffff:127.0.0.1]:", 19) == 0, "a mapped address");
        send = to(view->peer, view->peer_length, "six");
        commands = sending(dual, &send, 1);
        run(&commands, 1);
        return_lease(event.lease);
        must("the answer", recv(peer, text, sizeof text, 0), 3);
    }
    shut(dual);

    snprintf(path, sizeof path, "unix:@quoit-datagrams-%d", (int)getpid());
    named = opened_on(path, NULL);
    nameless = opened_on("unix:", NULL);
    length = (socklen_t)parsed(path, &storage);
    send = to(&storage, length, "here");
    commands = sending(nameless, &send, 1);
    event = next_event(&commands, 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAMS && event.connection == named && event.length == 4, "over Unix");
    expect(((const quoit_datagrams *)event.data)->peer_length <= sizeof(sa_family_t), "from nobody by name");
    return_lease(event.lease);
    shut(nameless);
    shut(named);
    close(peer);
}

static void *return_elsewhere(void *argument)
{
    const quoit_remote *remote;
    uint64_t *leases = (uint64_t *)argument;
    memcpy(&remote, &leases[1], sizeof remote);
    must("returning on another thread", (long)quoit_remote_return_leases(remote, leases, 1), 1);
    must("but once", (long)quoit_remote_return_leases(remote, leases, 1), -ENOENT);
    return NULL;
}

/* Opened by a post; a lease that outlives its socket is returned by another thread. */
static void remotes(void)
{
    struct sockaddr_storage storage;
    socklen_t length;
    const quoit_remote *remote;
    quoit_datagram_socket *socket;
    quoit_command commands;
    quoit_datagram_send send;
    quoit_event event;
    pthread_t thread;
    char bytes[8];
    uint64_t id, lease[2];
    int peer = peer_on("127.0.0.1:0", &storage, &length);
    check("quoit_loop_remote", quoit_loop_remote(loop, &remote));
    socket = bound("127.0.0.1:0", NULL);
    commands = command(QUOIT_COMMAND_OPEN_DATAGRAM, 0);
    commands.data = socket;
    commands.token = 77;
    must("posting", (long)quoit_remote_post(remote, &commands, 1), 1);
    event = next_event(NULL, 0);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_OPENED && event.token == 77, "opened by a post");
    id = event.connection;
    put(peer, id, "kept", 4);
    event = expect_event(QUOIT_EVENT_DATAGRAMS, id);
    lease[0] = event.lease;
    /* Copied by the call, so that it may be anybody's afterwards. */
    memcpy(bytes, "posted", 6);
    send = to(&storage, length, "");
    send.data = bytes;
    send.length = 6;
    send.token = 8;
    commands = sending(id, &send, 1);
    must("posting", (long)quoit_remote_post(remote, &commands, 1), 1);
    memset(bytes, 0, sizeof bytes);
    expect(expect_event(QUOIT_EVENT_DATAGRAM_SENT, id).token == 8, "sent");
    must("what was posted", recv(peer, bytes, sizeof bytes, 0), 6);
    expect(memcmp(bytes, "posted", 6) == 0, "its bytes");
    shut(id);
    expect(memcmp(((const quoit_datagrams *)event.data)->data, "kept", 4) == 0, "still there");
    memcpy(&lease[1], &remote, sizeof remote);
    must("pthread_create", pthread_create(&thread, NULL, return_elsewhere, lease), 0);
    must("pthread_join", pthread_join(thread, NULL), 0);
    quoit_remote_release(remote);
    close(peer);
}

/* Sockets of one port, those of others, and those that cannot be. */
static void making(void)
{
    quoit_datagram_options options = defaults();
    quoit_datagram_socket *group[3], *socket;
    char first[64], other[64];
    int index, pair[2];
    uint64_t id;
    check("a group", quoit_datagram_socket_bind_group("127.0.0.1:0", 11, NULL, QUOIT_STEERING_HASH, group, 3));
    check("address", quoit_datagram_socket_address(group[0], first, sizeof first));
    for (index = 1; index < 3; index++) {
        check("address", quoit_datagram_socket_address(group[index], other, sizeof other));
        expect(strcmp(first, other) == 0, "one port");
    }
    must("a port in use", quoit_datagram_socket_bind(first, strlen(first), NULL, &socket), -EADDRINUSE);
    for (index = 0; index < 3; index++)
        quoit_datagram_socket_close(group[index]);
    quoit_datagram_socket_close(NULL);
    must("no sockets", quoit_datagram_socket_bind_group("127.0.0.1:0", 11, NULL, 0, group, 0), -EINVAL);
    must("no steering", quoit_datagram_socket_bind_group("127.0.0.1:0", 11, NULL, 7, group, 1), -EINVAL);
    must("no address", quoit_datagram_socket_bind("127.0.0.1", 9, NULL, &socket), -EINVAL);
    must("nowhere to put it", quoit_datagram_socket_bind("127.0.0.1:0", 11, NULL, NULL), -EINVAL);
    must("not of this host", quoit_datagram_socket_bind("192.0.2.1:0", 11, NULL, &socket), -EADDRNOTAVAIL);
    options.slots = 40000;
    must("slots", quoit_datagram_socket_bind("127.0.0.1:0", 11, &options, &socket), -EINVAL);
    options = defaults();
    options.flags = 1u << 20;
    must("flags", quoit_datagram_socket_bind("127.0.0.1:0", 11, &options, &socket), -EINVAL);
    options = defaults();
    options.gro = 3;
    must("joining", quoit_datagram_socket_bind("127.0.0.1:0", 11, &options, &socket), -EINVAL);

    must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    must("no datagram socket", quoit_datagram_socket_adopt(pair[0], NULL, &socket), -EPROTOTYPE);
    close(pair[1]);
    must("no descriptor", quoit_datagram_socket_adopt(-1, NULL, &socket), -EBADF);
    must("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    check("adopting", quoit_datagram_socket_adopt(pair[0], NULL, &socket));
    must("its descriptor", quoit_datagram_socket_fd(socket), pair[0]);
    id = opened(socket);
    must("write", write(pair[1], "pair", 4), 4);
    {
        quoit_event event = expect_event(QUOIT_EVENT_DATAGRAMS, id);
        expect(event.length == 4, "from the other end");
        return_lease(event.lease);
    }
    shut(id);
    close(pair[1]);
    must("socketpair", socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    must("nowhere to put what is adopted", quoit_datagram_socket_adopt(pair[0], NULL, NULL), -EINVAL);
    expect(fcntl(pair[0], F_GETFD) < 0, "what was not adopted is closed");
    close(pair[1]);
    must("no socket", quoit_open_datagram(loop, NULL, 0, &id), -EINVAL);
    must("no address of none", quoit_datagram_address(loop, 99, other, sizeof other), -ENOENT);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: datagrams uring|epoll\n");
        return 2;
    }
    check("quoit_abi_check", quoit_abi_check(QUOIT_ABI_VERSION));
    loop = make_loop(argv[1], 3, 0);
    texts_of_addresses();
    all_that_is_told();
    batches();
    errors_of_sends();
    unreachable_peers();
    unreachable_receivers();
    full_queues();
    pauses();
    joined();
    multicast();
    families();
    remotes();
    making();
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
    return 0;
}
