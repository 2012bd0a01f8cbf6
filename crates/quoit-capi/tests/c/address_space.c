/*
 * Too little address space (RLIMIT_AS): an error with its text, and nothing is lost. Usage: address_space ENGINE
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

#define KIB 1024ul
#define MIB (1024ul * KIB)

/* Leaves this process so many bytes more of address space than it has. Allocates nothing. */
static void leave(unsigned long bytes)
{
    struct rlimit limit;
    char text[64] = "";
    int statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    expect(statm >= 0 && read(statm, text, sizeof text - 1) > 0, "the size is known");
    close(statm);
    limit.rlim_cur = strtoul(text, NULL, 10) * (unsigned long)sysconf(_SC_PAGESIZE) + bytes;
    limit.rlim_max = RLIM_INFINITY;
    must("setrlimit", setrlimit(RLIMIT_AS, &limit), 0);
}

static int is_told(const char *part)
{
    char text[1024];
    check("quoit_error_text", quoit_error_text(text, sizeof text));
    if (strstr(text, part) != NULL)
        return 1;
    fprintf(stderr, "\"%s\" is not in: %s\n", part, text);
    return 0;
}

static int is_memory_remedy(void)
{
    return is_told("ulimit -v") && is_told("LimitAS=");
}

/* However little there is, a loop is made or an error says why not; with enough it is made. */
static void a_loop_is_made_or_is_not(const char *engine)
{
    unsigned long bytes;
    int made = 0, refused = 0;
    quoit_config config = config_of(engine);
    /* Memory of other rings does not come back. */
    config.ring_memory_patience_ns = 0;
    /* The allocator has its first memory, as in any program that has got so far. */
    must("quoit_loop_create", quoit_loop_create(&config, UINT32_MAX, NULL), -EINVAL);
    for (bytes = 0; bytes <= 160 * MIB; bytes += bytes < 2 * MIB ? 64 * KIB : MIB) {
        quoit_loop *loop = NULL;
        quoit_event event;
        int code;
        leave(bytes);
        code = quoit_loop_create(&config, 1, &loop);
        if (code == 0) {
            made++;
            must("quoit_turn", quoit_turn(loop, NULL, 0, &event, 1, 0), 0);
            check("quoit_loop_destroy", quoit_loop_destroy(loop));
            continue;
        }
        refused++;
        expect(loop == NULL, "there is no loop");
        must("quoit_loop_create", code, -ENOMEM);
        expect(is_memory_remedy() && is_told("vm.overcommit_memory is 2"), "the remedies are told");
    }
    expect(refused > 0 && made > 0, "there was too little, and then enough");
}

/* Opens sockets until one is refused for want of address space: by a call, and by a command. */
static void a_datagram_socket_is_opened_or_is_not(const char *engine)
{
    static const char ADDRESS[] = "127.0.0.1:0";
    quoit_loop *loop = make_loop(engine, 2, 0);
    quoit_datagram_socket *socket;
    quoit_datagram_options options;
    quoit_command command;
    quoit_event event;
    int opened, code = 0;
    uint64_t id;
    options.size = sizeof options;
    check("quoit_datagram_options_default", quoit_datagram_options_default(&options));
    options.slots = 1024;
    must("quoit_turn", quoit_turn(loop, NULL, 0, &event, 1, 0), 0);

    /* As much as a socket or two need. */
    leave(80 * MIB);
    for (opened = 0; code == 0; opened++) {
        expect(opened < 8, "80 MiB are not enough for as many");
        check("bind", quoit_datagram_socket_bind(ADDRESS, sizeof ADDRESS - 1, &options, &socket));
        code = quoit_open_datagram(loop, socket, 7, &id);
    }
    must("quoit_open_datagram", code, -ENOMEM);
    expect(opened > 1, "there was enough for one");
    expect(is_told("datagram socket on 127.0.0.1:") && is_memory_remedy(), "what, and the remedy");

    check("bind", quoit_datagram_socket_bind(ADDRESS, sizeof ADDRESS - 1, &options, &socket));
    memset(&command, 0, sizeof command);
    command.kind = QUOIT_COMMAND_OPEN_DATAGRAM;
    command.data = socket;
    command.token = 8;
    for (;;) {
        must("quoit_turn", quoit_turn(loop, &command, command.kind != 0, &event, 1, -1), 1);
        command.kind = 0;
        if (event.kind != QUOIT_EVENT_DATAGRAM_OPENED)
            break;
        expect(event.token == 7 && --opened > 0, "those that were opened are told");
    }
    expect(opened == 1, "all of them");
    must("its event", event.kind, QUOIT_EVENT_DATAGRAM_REFUSED);
    must("its reason", event.reason, QUOIT_REFUSED_ERROR);
    must("its error", event.error, -ENOMEM);
    must("its token", (long)event.token, 8);

    /* The loop goes on: with room again there are more. */
    leave(160 * MIB);
    check("bind", quoit_datagram_socket_bind(ADDRESS, sizeof ADDRESS - 1, &options, &socket));
    check("quoit_open_datagram", quoit_open_datagram(loop, socket, 9, &id));
    must("quoit_turn", quoit_turn(loop, NULL, 0, &event, 1, -1), 1);
    expect(event.kind == QUOIT_EVENT_DATAGRAM_OPENED && event.token == 9, "it is opened");
    check("quoit_loop_destroy", quoit_loop_destroy(loop));
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: address_space uring|epoll\n");
        return 2;
    }
    check("quoit_abi_check", quoit_abi_check(QUOIT_ABI_VERSION));
    a_loop_is_made_or_is_not(argv[1]);
    a_datagram_socket_is_opened_or_is_not(argv[1]);
    return 0;
}
