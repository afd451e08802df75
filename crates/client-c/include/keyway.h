/* A client of Keyway, and of any server that speaks Redis's protocol, over shared memory, unix
 * sockets and TCP. Link with libkeyway_client_c (.so or .a).
 *
 *   keyway_connection *c = keyway_open("shm:///run/keyway.shm", NULL, error, sizeof error);
 *   const char *words[] = {"GET", "greeting"};
 *   keyway_reply *r = keyway_command(c, 2, words, NULL);
 *   if (r == NULL) fprintf(stderr, "%s\n", keyway_error(c));
 *
 * A connection is used by one thread at a time. Every function waits, for as long as the options
 * say. Nothing here changes signal handlers, and writing to a server that is gone raises no SIGPIPE.
 *
 * A connection belongs to the process that has opened it. A child of a fork must not use one that it
 * inherited, but open its own; that it closes the inherited one does no harm to its parent's.
 */
#ifndef KEYWAY_H
#define KEYWAY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct keyway_connection keyway_connection;
typedef struct keyway_reply keyway_reply;

/* How to connect. All zeros is what a null pointer means. */
typedef struct keyway_options {
  int64_t connect_timeout_ms; /* 0: 5000; less: without a bound */
  int64_t timeout_ms;         /* for replies; 0: 60000; less: without a bound */
  const char *username;       /* with a password; null: the default user */
  const char *password;       /* null: does not log in */
  uint32_t database;
} keyway_options;

/* What carries the bytes of a connection. */
enum keyway_transport {
  KEYWAY_TCP = 0,
  KEYWAY_UNIX = 1,
  KEYWAY_SHARED = 2
};

/* What a reply is. */
enum keyway_kind {
  KEYWAY_NIL = 0,
  KEYWAY_STATUS = 1,
  KEYWAY_ERROR = 2,
  KEYWAY_INTEGER = 3,
  KEYWAY_BYTES = 4,
  KEYWAY_ARRAY = 5,
  KEYWAY_BOOLEAN = 6,
  KEYWAY_DOUBLE = 7,
  KEYWAY_BIG_NUMBER = 8,
  KEYWAY_SET = 9,
  KEYWAY_MAP = 10,
  KEYWAY_PUSH = 11
};

/* Connects to shm:///path, unix:///path or tcp://host:port. Null when there is no connection; why is
 * in `error` then, cut to `error_size` bytes with the zero at its end. `options` and `error` may be
 * null. */
keyway_connection *keyway_open(const char *url, const keyway_options *options, char *error,
                               size_t error_size);

/* Ends a connection. Null is nothing. */
void keyway_close(keyway_connection *connection);

/* One of enum keyway_transport: a server that shares no memory is spoken to over its socket. */
int keyway_transport_of(const keyway_connection *connection);

/* Why no memory is shared although the URL is one of shm://; null where it is, or was not asked for. Valid until
 * the connection is closed. */
const char *keyway_refusal(const keyway_connection *connection);

/* Has `told` called with the path and the reason, by the thread that connects, when a server shares no memory and
 * its unix socket is used: once for each path. Before that it is a line on standard error; null is nothing at all.
 * The texts are valid until `told` returns, which must not connect. */
void keyway_on_fallback(void (*told)(const char *path, const char *why));

/* Why the last call gave nothing; empty when none has failed. Valid until the next call. */
const char *keyway_error(const keyway_connection *connection);

/* Sends a command of `count` arguments, and waits for its reply, which may be an error. `lengths` may be
 * null when every argument ends with a zero byte. Null when there is no reply: the connection is
 * of no more use then, unless the arguments were none, or one of them a null pointer. */
keyway_reply *keyway_command(keyway_connection *connection, size_t count,
                             const char *const *arguments, const size_t *lengths);

/* Puts a command behind those that are to be sent together; 0, or -1 for an error. */
int keyway_append(keyway_connection *connection, size_t count, const char *const *arguments,
                  const size_t *lengths);

/* Sends what was appended, and waits for the next reply. */
keyway_reply *keyway_next(keyway_connection *connection);

/* Sends what was appended, and waits for no reply; 0, or -1 for an error. */
int keyway_flush(keyway_connection *connection);

/* Sends what was appended, and waits up to `wait_ms` milliseconds for the next reply, whatever the
 * options say. 1 when it is in `*reply`; 0 when none has come, which leaves the connection as it is:
 * the reply is still to be read; -1 for an error. `*reply` is null for the latter two. */
int keyway_next_within(keyway_connection *connection, uint32_t wait_ms, keyway_reply **reply);

/* The oldest message that came between replies (RESP3); null when there is none. */
keyway_reply *keyway_next_push(keyway_connection *connection);

/* Frees a reply that a function above has returned, with all that is in it. Null is nothing. */
void keyway_free(keyway_reply *reply);

/* One of enum keyway_kind. */
int keyway_kind_of(const keyway_reply *reply);

/* The bytes of a status, an error, bytes or a big number, with a zero byte behind them that
 * `length` (which may be null) does not count. Null for other kinds. */
const char *keyway_bytes(const keyway_reply *reply, size_t *length);

/* The number of an integer, 1 for true; 0 for other kinds. */
int64_t keyway_integer(const keyway_reply *reply);

/* The number of a double; 0 for other kinds. */
double keyway_double(const keyway_reply *reply);

/* How many replies are in an array, a set or a push; twice the pairs of a map; 0 for other kinds. */
size_t keyway_count(const keyway_reply *reply);

/* The reply at `index` in another, of a map a key and its value in turn; null when there are not so
 * many. It is freed with the whole. */
const keyway_reply *keyway_at(const keyway_reply *reply, size_t index);

#ifdef __cplusplus
}
#endif

#endif
