/*
 * Two sockets on one port, of which each processor has its own (QUOIT_STEERING_CPU), and two of which each peer has its
 * own (QUOIT_STEERING_HASH). Usage: steering ENGINE
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity */
#endif
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

#define SENT 20

static quoit_loop *loop;
static uint64_t ids[2];
static struct sockaddr_in server;

/* Two sockets on a port, open on the loop. */
static void open_group(uint32_t steering)
{
    quoit_datagram_socket *group[2];
    struct sockaddr_in address;
    socklen_t length = sizeof address;
    quoit_event event;
    int index;
    check("a group", quoit_datagram_socket_bind_group("127.0.0.1:0", 11, NULL, steering, group, 2));
    must("getsockname", getsockname(quoit_datagram_socket_fd(group[0]), (struct sockaddr *)&address, &length), 0);
    server = address;
    for (index = 0; index < 2; index++) {
        check("quoit_open_datagram", quoit_open_datagram(loop, group[index], 1, &ids[index]));
        while (check("quoit_turn", quoit_turn(loop, NULL, 0, &event, 1, 10000000000)) == 0)
            ;
        expect(event.kind == QUOIT_EVENT_DATAGRAM_OPENED, "it is open");
    }
}

static void close_group(void)
{
    int index;
    for (index = 0; index < 2; index++) {
        quoit_command end;
        quoit_event event;
        memset(&end, 0, sizeof end);
        end.kind = QUOIT_COMMAND_CLOSE_DATAGRAM;
        end.target = ids[index];
        size_t commands = 1;
        while (check("quoit_turn", quoit_turn(loop, &end, commands, &event, 1, 10000000000)) == 0)
            commands = 0;
        expect(event.kind == QUOIT_EVENT_DATAGRAM_CLOSED && event.connection == ids[index], "it is closed");
    }
}

/* Sends datagrams from one socket, and returns how many of them the first of the group got. */
static int send_and_count(void)
{
    int peer = socket(AF_INET, SOCK_DGRAM, 0), sent, got = 0, first = 0;
    quoit_command back;
    quoit_event event;
    size_t returned = 0;
    memset(&back, 0, sizeof back);
    back.kind = QUOIT_COMMAND_RETURN_LEASE;
    for (sent = 0; sent < SENT; sent++)
        must("sendto", sendto(peer, "steer", 5, 0, (struct sockaddr *)&server, sizeof server), 5);
    while (got < SENT) {
        long filled = check("quoit_turn", quoit_turn(loop, &back, returned, &event, 1, 10000000000));
        returned = 0;
        if (filled == 0)
            continue;
        expect(event.kind == QUOIT_EVENT_DATAGRAMS, "datagrams come");
        got++;
        first += event.connection == ids[0];
        back.lease = event.lease;
        returned = 1;
    }
    must("the last lease back", quoit_turn(loop, &back, returned, &event, 1, 0), 0);
    close(peer);
    return first;
}

int main(int argc, char **argv)
{
    cpu_set_t all;
    int cpu, round;
    if (argc != 2) {
        fprintf(stderr, "usage: steering uring|epoll\n");
        return 2;
    }
    loop = make_loop(argv[1], 3, 0);

    open_group(QUOIT_STEERING_CPU);
    must("sched_getaffinity", sched_getaffinity(0, sizeof all, &all), 0);
    for (cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        cpu_set_t one;
        if (!CPU_ISSET(cpu, &all))
            continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        must("sched_setaffinity", sched_setaffinity(0, sizeof one, &one), 0);
        /* The loopback device hands a packet over on the processor that sent it. */
        expect(send_and_count() == (cpu % 2 == 0 ? SENT : 0), "each processor has its socket");
    }
    must("sched_setaffinity", sched_setaffinity(0, sizeof all, &all), 0);
    close_group();

    open_group(QUOIT_STEERING_HASH);
    for (round = 0; round < 10; round++) {
        int first = send_and_count();
        expect(first == 0 || first == SENT, "each peer has its socket");
    }
    close_group();
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
    return 0;
}
