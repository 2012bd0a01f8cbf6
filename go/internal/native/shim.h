/* The calls of libquoit that the Go module makes, each through one function: by pointers that were looked up at run
 * time, or directly where the program was linked with libquoit.a (-tags quoit_static). */
#ifndef QUOIT_GO_SHIM_H
#define QUOIT_GO_SHIM_H

#include "quoit.h"

/* Room for the text of a failed call, with its NUL. */
enum { SHIM_TEXT = 512 };

/* Opens the library: `path` if it is not empty, otherwise libquoit.so.0 from the system's path. 0, or -1 with the
 * loader's text. */
int shim_open(const char *path, char *text);

/* Whether this program runs on glibc; otherwise it is musl. */
int shim_on_glibc(void);

int shim_abi_check(char *text);
const char *shim_version(void);
const char *shim_layout(void);
int shim_counter_describe(uint32_t index, quoit_counter_info *info);
int shim_config_default(quoit_config *config);

int shim_capabilities_probe(const quoit_config *config, quoit_capabilities **out, char *text);
int shim_capabilities_usable(const quoit_capabilities *capabilities);
int shim_capabilities_reason(const quoit_capabilities *capabilities, char *buffer, size_t capacity);
int shim_capabilities_get(const quoit_capabilities *capabilities, uint32_t index, quoit_capability *capability);
void shim_capabilities_free(quoit_capabilities *capabilities);

int shim_socket_adopt(int descriptor, quoit_socket **out, char *text);
int shim_socket_bind(const char *address, size_t length, uint32_t flags, uint32_t backlog, quoit_socket **out,
                     char *text);
int shim_socket_address(const quoit_socket *socket, char *buffer, size_t capacity);
void shim_socket_close(quoit_socket *socket);

int shim_loop_create(const quoit_config *config, uint32_t index, quoit_loop **out, char *text);
int shim_loop_destroy(quoit_loop *loop, char *text);
int shim_turn(quoit_loop *loop, const quoit_command *commands, size_t count, quoit_event *events, size_t capacity,
              int64_t timeout_ns);
int shim_error_text(char *buffer, size_t capacity);
int shim_fd(quoit_loop *loop, char *text);
/* quoit_next_deadline for an edge-triggered poller: 0 also if the descriptor is readable already. */
int64_t shim_park(quoit_loop *loop, int descriptor);
int shim_engine(quoit_loop *loop);
int shim_engine_reason(quoit_loop *loop, char *buffer, size_t capacity);
int shim_listen(quoit_loop *loop, quoit_socket *socket, const quoit_remote *const *remotes, uint32_t remote_count,
                const quoit_stream_options *stream, uint64_t *listener, char *text);
int64_t shim_queued(quoit_loop *loop, uint64_t connection);
int64_t shim_taken_by_peer(quoit_loop *loop, uint64_t connection);
int shim_datagram_fd(quoit_loop *loop, uint64_t socket);
int shim_connection_fd(quoit_loop *loop, uint64_t connection);
/* Both addresses of a connection, as texts; empty where there is none. */
void shim_addresses(quoit_loop *loop, uint64_t connection, char *local, char *peer, size_t capacity);

int shim_direct_sender(quoit_loop *loop, uint64_t connection, const quoit_direct_sender **out);
int64_t shim_direct_send(const quoit_direct_sender *sender, const void *bytes, size_t length);
void shim_direct_sender_release(const quoit_direct_sender *sender);
int shim_direct_datagram_sender(quoit_loop *loop, uint64_t socket, const quoit_direct_datagram_sender **out);
int shim_direct_datagram_send(const quoit_direct_datagram_sender *sender, const void *to, size_t to_length,
                              const void *bytes, size_t length);
void shim_direct_datagram_sender_release(const quoit_direct_datagram_sender *sender);

int shim_loop_remote(quoit_loop *loop, const quoit_remote **out, char *text);
void shim_remote_release(const quoit_remote *remote);
int shim_remote_wake(const quoit_remote *remote);
int shim_remote_counters(const quoit_remote *remote, quoit_counters *counters);

int shim_datagram_options_default(quoit_datagram_options *options);
/* `groups` and `peer` take the place of the pointers in `options`, so that those hold none of Go's. */
int shim_datagram_bind(const char *address, size_t length, const quoit_datagram_options *options,
                       const quoit_multicast_group *groups, const char *peer, quoit_datagram_socket **out, char *text);
int shim_datagram_socket_address(const quoit_datagram_socket *socket, char *buffer, size_t capacity);
void shim_datagram_socket_close(quoit_datagram_socket *socket);
int shim_open_datagram(quoit_loop *loop, quoit_datagram_socket *socket, uint64_t *id, char *text);
int shim_datagram_counters(quoit_loop *loop, uint64_t socket, quoit_datagram_counters *counters, char *text);

#endif
