//go:build linux && cgo && !quoit_std && (amd64 || arm64)

#include "shim.h"

#include <poll.h>
#include <string.h>
#include <sys/uio.h>

/* What is called, as X(name without quoit_). */
#define CALLS(X)                                                                                                      \
    X(abi_check) X(version) X(layout) X(error_text) X(counter_describe) X(config_default) X(bind_options_default)     \
    X(listen_options_default) X(capabilities_probe) X(capabilities_usable) X(capabilities_reason)                     \
    X(capabilities_get) X(capabilities_free) X(socket_bind) X(socket_adopt) X(socket_address) X(socket_close) \
    X(loop_create) X(loop_destroy) X(turn) X(fd) X(next_deadline) X(engine) X(engine_reason) X(listen)                \
    X(local_address) X(peer_address) X(connection_fd) X(loop_remote) X(remote_release) X(remote_wake)                 \
    X(remote_counters) X(loop_direct_sender) X(direct_sender_try_send) X(direct_sender_release)                       \
    X(loop_direct_datagram_sender) X(direct_datagram_sender_try_send) X(direct_datagram_sender_release)               \
    X(datagram_options_default) X(datagram_socket_bind) X(datagram_socket_address) X(datagram_socket_close)           \
    X(open_datagram) X(datagram_counters_read) X(taken_by_peer) X(queued) X(datagram_fd)

#ifdef QUOIT_STATIC

#define CALL(name) quoit_##name

int shim_open(const char *path, char *text)
{
    (void)path;
    (void)text;
    return 0;
}

int shim_on_glibc(void)
{
    return 1;
}

#else

#include <dlfcn.h>
#include <stdio.h>

#define FIELD(name) __typeof__(&quoit_##name) name;
static struct { CALLS(FIELD) } library;

#define CALL(name) library.name

static int find(void *handle, const char *name, void *pointer, char *text)
{
    void *found = dlsym(handle, name);
    if (found == NULL) {
        snprintf(text, SHIM_TEXT, "it has no %s, so it is not libquoit, or one of another version", name);
        return -1;
    }
    memcpy(pointer, &found, sizeof found);
    return 0;
}

int shim_open(const char *path, char *text)
{
    /* Never closed: its threads and thread-locals may outlive any use. */
    void *handle = dlopen(*path != '\0' ? path : "libquoit.so.0", RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *reason = dlerror();
        snprintf(text, SHIM_TEXT, "%s", reason != NULL ? reason : "the loader gives no reason");
        return -1;
    }
#define FIND(name)                                                                                                    \
    if (find(handle, "quoit_" #name, &library.name, text) < 0)                                                        \
        return -1;
    CALLS(FIND)
    return 0;
}

int shim_on_glibc(void)
{
    return dlsym(RTLD_DEFAULT, "gnu_get_libc_version") != NULL;
}

#endif

/* Answers `code`, and for a failure takes the calling thread's text along: the next call of this goroutine may be
 * made on another thread. */
static int answer(int code, char *text)
{
    if (code < 0)
        CALL(error_text)(text, SHIM_TEXT);
    return code;
}

int shim_abi_check(char *text)
{
    return answer(CALL(abi_check)(QUOIT_ABI_VERSION), text);
}

const char *shim_version(void)
{
    return CALL(version)();
}

const char *shim_layout(void)
{
    return CALL(layout)();
}

int shim_counter_describe(uint32_t index, quoit_counter_info *info)
{
    info->size = sizeof *info;
    return CALL(counter_describe)(index, info);
}

int shim_config_default(quoit_config *config)
{
    config->size = sizeof *config;
    return CALL(config_default)(config);
}

int shim_capabilities_probe(const quoit_config *config, quoit_capabilities **out, char *text)
{
    return answer(CALL(capabilities_probe)(config, out), text);
}

int shim_capabilities_usable(const quoit_capabilities *capabilities)
{
    return CALL(capabilities_usable)(capabilities);
}

int shim_capabilities_reason(const quoit_capabilities *capabilities, char *buffer, size_t capacity)
{
    return CALL(capabilities_reason)(capabilities, buffer, capacity);
}

int shim_capabilities_get(const quoit_capabilities *capabilities, uint32_t index, quoit_capability *capability)
{
    capability->size = sizeof *capability;
    return CALL(capabilities_get)(capabilities, index, capability);
}

void shim_capabilities_free(quoit_capabilities *capabilities)
{
    CALL(capabilities_free)(capabilities);
}

int shim_socket_adopt(int descriptor, quoit_socket **out, char *text)
{
    return answer(CALL(socket_adopt)(descriptor, out), text);
}

int shim_socket_bind(const char *address, size_t length, uint32_t flags, uint32_t backlog, quoit_socket **out,
                     char *text)
{
    quoit_bind_options options;
    options.size = sizeof options;
    CALL(bind_options_default)(&options);
    options.flags = flags;
    if (backlog != 0)
        options.backlog = backlog;
    return answer(CALL(socket_bind)(address, length, &options, out), text);
}

int shim_socket_address(const quoit_socket *socket, char *buffer, size_t capacity)
{
    return CALL(socket_address)(socket, buffer, capacity);
}

void shim_socket_close(quoit_socket *socket)
{
    CALL(socket_close)(socket);
}

int shim_loop_create(const quoit_config *config, uint32_t index, quoit_loop **out, char *text)
{
    return answer(CALL(loop_create)(config, index, out), text);
}

int shim_loop_destroy(quoit_loop *loop, char *text)
{
    return answer(CALL(loop_destroy)(loop), text);
}

int shim_turn(quoit_loop *loop, const quoit_command *commands, size_t count, quoit_event *events, size_t capacity,
              int64_t timeout_ns)
{
    return CALL(turn)(loop, commands, count, events, capacity, timeout_ns);
}

int shim_error_text(char *buffer, size_t capacity)
{
    return CALL(error_text)(buffer, capacity);
}

int shim_fd(quoit_loop *loop, char *text)
{
    return answer(CALL(fd)(loop), text);
}

int64_t shim_park(quoit_loop *loop, int descriptor)
{
    struct pollfd poll_one = {.fd = descriptor, .events = POLLIN};
    int64_t limit = CALL(next_deadline)(loop);
    /* The library expects a level-triggered poller. */
    if (limit > 0 && poll(&poll_one, 1, 0) != 0)
        return 0;
    return limit;
}

int shim_engine(quoit_loop *loop)
{
    return CALL(engine)(loop);
}

int shim_engine_reason(quoit_loop *loop, char *buffer, size_t capacity)
{
    return CALL(engine_reason)(loop, buffer, capacity);
}

int shim_listen(quoit_loop *loop, quoit_socket *socket, const quoit_remote *const *remotes, uint32_t remote_count,
                const quoit_stream_options *stream, uint64_t *listener, char *text)
{
    quoit_listen_options options;
    options.size = sizeof options;
    CALL(listen_options_default)(&options);
    options.stream = *stream;
    options.tell_failures = 1;
    if (remote_count != 0) {
        options.accept = QUOIT_ACCEPT_SPREAD;
        options.remotes = remotes;
        options.remote_count = remote_count;
    }
    return answer(CALL(listen)(loop, socket, &options, listener), text);
}

void shim_addresses(quoit_loop *loop, uint64_t connection, char *local, char *peer, size_t capacity)
{
    if (CALL(local_address)(loop, connection, local, capacity) < 0)
        *local = '\0';
    if (CALL(peer_address)(loop, connection, peer, capacity) < 0)
        *peer = '\0';
}

int64_t shim_queued(quoit_loop *loop, uint64_t connection)
{
    return CALL(queued)(loop, connection);
}

int64_t shim_taken_by_peer(quoit_loop *loop, uint64_t connection)
{
    return CALL(taken_by_peer)(loop, connection);
}

int shim_datagram_fd(quoit_loop *loop, uint64_t socket)
{
    return CALL(datagram_fd)(loop, socket);
}

int shim_connection_fd(quoit_loop *loop, uint64_t connection)
{
    return CALL(connection_fd)(loop, connection);
}

int shim_direct_sender(quoit_loop *loop, uint64_t connection, const quoit_direct_sender **out)
{
    return CALL(loop_direct_sender)(loop, connection, out);
}

int64_t shim_direct_send(const quoit_direct_sender *sender, const void *bytes, size_t length)
{
    struct iovec piece = {.iov_base = (void *)bytes, .iov_len = length};
    return CALL(direct_sender_try_send)(sender, &piece, 1);
}

void shim_direct_sender_release(const quoit_direct_sender *sender)
{
    CALL(direct_sender_release)(sender);
}

int shim_direct_datagram_sender(quoit_loop *loop, uint64_t socket, const quoit_direct_datagram_sender **out)
{
    return CALL(loop_direct_datagram_sender)(loop, socket, out);
}

int shim_direct_datagram_send(const quoit_direct_datagram_sender *sender, const void *to, size_t to_length,
                              const void *bytes, size_t length)
{
    return CALL(direct_datagram_sender_try_send)(sender, to, to_length, bytes, length);
}

void shim_direct_datagram_sender_release(const quoit_direct_datagram_sender *sender)
{
    CALL(direct_datagram_sender_release)(sender);
}

int shim_loop_remote(quoit_loop *loop, const quoit_remote **out, char *text)
{
    return answer(CALL(loop_remote)(loop, out), text);
}

void shim_remote_release(const quoit_remote *remote)
{
    CALL(remote_release)(remote);
}

int shim_remote_wake(const quoit_remote *remote)
{
    return CALL(remote_wake)(remote);
}

int shim_datagram_options_default(quoit_datagram_options *options)
{
    options->size = sizeof *options;
    return CALL(datagram_options_default)(options);
}

int shim_datagram_bind(const char *address, size_t length, const quoit_datagram_options *options,
                       const quoit_multicast_group *groups, const char *peer, quoit_datagram_socket **out, char *text)
{
    quoit_datagram_options whole = *options;
    whole.groups = groups;
    whole.peer = peer;
    return answer(CALL(datagram_socket_bind)(address, length, &whole, out), text);
}

int shim_datagram_socket_address(const quoit_datagram_socket *socket, char *buffer, size_t capacity)
{
    return CALL(datagram_socket_address)(socket, buffer, capacity);
}

void shim_datagram_socket_close(quoit_datagram_socket *socket)
{
    CALL(datagram_socket_close)(socket);
}

int shim_open_datagram(quoit_loop *loop, quoit_datagram_socket *socket, uint64_t *id, char *text)
{
    return answer(CALL(open_datagram)(loop, socket, 0, id), text);
}

int shim_datagram_counters(quoit_loop *loop, uint64_t socket, quoit_datagram_counters *counters, char *text)
{
    counters->size = sizeof *counters;
    return answer(CALL(datagram_counters_read)(loop, socket, counters), text);
}

int shim_remote_counters(const quoit_remote *remote, quoit_counters *counters)
{
    counters->size = sizeof *counters;
    return CALL(remote_counters)(remote, counters);
}
