/* Talks to the server of argv[1], and ends with 0 when every reply is what it should be. */
#define _POSIX_C_SOURCE 200809L
#include "keyway.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define EXPECT(what)                                                    \
  do {                                                                  \
    if (!(what)) {                                                      \
      fprintf(stderr, "line %d: not so: %s\n", __LINE__, #what);        \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

static keyway_reply *say(keyway_connection *c, size_t count, const char **words) {
  keyway_reply *reply = keyway_command(c, count, words, NULL);
  if (reply == NULL) {
    fprintf(stderr, "no reply to %s: %s\n", words[0], keyway_error(c));
    exit(1);
  }
  return reply;
}

static void strings(keyway_connection *c) {
  size_t length = 0;
  const char *set[] = {"SET", "k", "a\0b"};
  const size_t lengths[] = {3, 1, 3};
  keyway_reply *reply = keyway_command(c, 3, set, lengths);
  EXPECT(reply != NULL && keyway_kind_of(reply) == KEYWAY_STATUS);
  EXPECT(strcmp(keyway_bytes(reply, NULL), "OK") == 0);
  keyway_free(reply);
  reply = say(c, 2, (const char *[]){"GET", "k"});
  EXPECT(keyway_kind_of(reply) == KEYWAY_BYTES);
  EXPECT(memcmp(keyway_bytes(reply, &length), "a\0b", 4) == 0 && length == 3);
  EXPECT(keyway_integer(reply) == 0 && keyway_count(reply) == 0 && keyway_at(reply, 0) == NULL);
  keyway_free(reply);
  reply = say(c, 2, (const char *[]){"LLEN", "k"});
  EXPECT(keyway_kind_of(reply) == KEYWAY_ERROR);
  EXPECT(strncmp(keyway_bytes(reply, NULL), "WRONGTYPE", 9) == 0);
  keyway_free(reply);
  reply = say(c, 2, (const char *[]){"GET", "none"});
  EXPECT(keyway_kind_of(reply) == KEYWAY_NIL && keyway_bytes(reply, &length) == NULL);
  EXPECT(length == 0);
  keyway_free(reply);
}

static void pipelines(keyway_connection *c) {
  char number[16];
  for (int nth = 0; nth < 1000; nth++) {
    snprintf(number, sizeof number, "%d", nth);
    EXPECT(keyway_append(c, 3, (const char *[]){"RPUSH", "list", number}, NULL) == 0);
  }
  for (int nth = 0; nth < 1000; nth++) {
    keyway_reply *reply = keyway_next(c);
    EXPECT(reply != NULL && keyway_integer(reply) == nth + 1);
    keyway_free(reply);
  }
  keyway_reply *reply = say(c, 4, (const char *[]){"LRANGE", "list", "0", "-1"});
  EXPECT(keyway_kind_of(reply) == KEYWAY_ARRAY && keyway_count(reply) == 1000);
  EXPECT(strcmp(keyway_bytes(keyway_at(reply, 999), NULL), "999") == 0);
  EXPECT(keyway_at(reply, 1000) == NULL);
  keyway_free(reply);
}

/* A reply that is late is waited for again, and what is flushed is sent. */
static void short_waits(keyway_connection *c, const char *url) {
  keyway_reply *reply = (keyway_reply *)&reply;
  EXPECT(keyway_append(c, 3, (const char *[]){"BLPOP", "late", "0"}, NULL) == 0);
  EXPECT(keyway_flush(c) == 0);
  EXPECT(keyway_next_within(c, 0, &reply) == 0 && reply == NULL);
  EXPECT(keyway_next_within(c, 20, &reply) == 0 && reply == NULL);
  keyway_connection *other = keyway_open(url, NULL, NULL, 0);
  EXPECT(other != NULL);
  keyway_free(say(other, 2, (const char *[]){"SELECT", "2"}));
  keyway_free(say(other, 3, (const char *[]){"RPUSH", "late", "x"}));
  keyway_close(other);
  EXPECT(keyway_next_within(c, 10000, &reply) == 1 && keyway_count(reply) == 2);
  keyway_free(reply);
}

/* A child that closes what it has inherited leaves it to its parent. */
static void forks(keyway_connection *c) {
  int status = -1;
  pid_t child = fork();
  if (child == 0) {
    keyway_close(c);
    _exit(0);
  }
  EXPECT(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  keyway_free(say(c, 1, (const char *[]){"PING"}));
}

static void newer_kinds(keyway_connection *c) {
  keyway_reply *reply = say(c, 2, (const char *[]){"HELLO", "3"});
  EXPECT(keyway_kind_of(reply) == KEYWAY_MAP && keyway_count(reply) % 2 == 0);
  EXPECT(strcmp(keyway_bytes(keyway_at(reply, 0), NULL), "server") == 0);
  keyway_free(reply);
  keyway_free(say(c, 4, (const char *[]){"ZADD", "z", "1.5", "m"}));
  reply = say(c, 3, (const char *[]){"ZSCORE", "z", "m"});
  EXPECT(keyway_kind_of(reply) == KEYWAY_DOUBLE && keyway_double(reply) == 1.5);
  keyway_free(reply);
  keyway_free(say(c, 3, (const char *[]){"CLIENT", "TRACKING", "ON"}));
  keyway_free(say(c, 2, (const char *[]){"GET", "k"}));
  keyway_free(say(c, 3, (const char *[]){"SET", "k", "v"}));
  /* The message comes behind the reply to what has caused it. */
  keyway_free(say(c, 1, (const char *[]){"PING"}));
  keyway_reply *push = keyway_next_push(c);
  EXPECT(push != NULL && keyway_kind_of(push) == KEYWAY_PUSH);
  EXPECT(strcmp(keyway_bytes(keyway_at(push, 0), NULL), "invalidate") == 0);
  keyway_free(push);
  EXPECT(keyway_next_push(c) == NULL);
}

static void what_fails(void) {
  char error[64] = "", cut[8];
  EXPECT(keyway_open("redis://a:1", NULL, error, sizeof error) == NULL);
  EXPECT(strstr(error, "nothing is called redis://") != NULL && strlen(error) < sizeof error);
  EXPECT(keyway_open("nowhere", NULL, cut, sizeof cut) == NULL && strlen(cut) == 7);
  EXPECT(keyway_open(NULL, NULL, NULL, 0) == NULL);
  keyway_options nameless = {.username = "u"};
  EXPECT(keyway_open("unix:///nowhere", &nameless, error, sizeof error) == NULL);
  EXPECT(strstr(error, "without a password") != NULL);
  keyway_close(NULL);
  keyway_free(NULL);
}

static int told;
static void on_fallback(const char *path, const char *why) {
  EXPECT(strstr(path, "refuses.shm") != NULL && strstr(why, "may not share memory") != NULL);
  told++;
}

/* A server that shares no memory, for two connections. */
static int refused(const char *url) {
  keyway_on_fallback(on_fallback);
  for (int nth = 0; nth < 2; nth++) {
    keyway_connection *c = keyway_open(url, NULL, NULL, 0);
    EXPECT(c != NULL && keyway_transport_of(c) == KEYWAY_UNIX && told == 1);
    EXPECT(strstr(keyway_refusal(c), "may not share memory") != NULL);
    keyway_free(say(c, 1, (const char *[]){"PING"}));
    keyway_close(c);
  }
  return 0;
}

int main(int argc, char **argv) {
  char error[256];
  keyway_reply *reply;
  if (strncmp(argv[1], "shm:", 4) == 0 && strstr(argv[1], "refuses.shm") != NULL) return refused(argv[1]);
  what_fails();
  keyway_options options = {.timeout_ms = 5000, .database = argc > 2 ? 2 : 0};
  keyway_connection *c = keyway_open(argv[1], &options, error, sizeof error);
  if (c == NULL) {
    fprintf(stderr, "%s\n", error);
    return 1;
  }
  printf("transport %d\n", keyway_transport_of(c));
  EXPECT(keyway_refusal(c) == NULL);
  keyway_free(say(c, 1, (const char *[]){"FLUSHDB"}));
  EXPECT(keyway_error(c)[0] == 0);
  strings(c);
  pipelines(c);
  if (options.database == 2) short_waits(c, argv[1]);
  forks(c);
  newer_kinds(c);
  EXPECT(keyway_command(c, 0, NULL, NULL) == NULL && keyway_error(c)[0] != 0);
  EXPECT(keyway_command(c, 2, (const char *[]){"GET", NULL}, NULL) == NULL);
  EXPECT(strstr(keyway_error(c), "argument 1") != NULL);
  EXPECT(keyway_append(c, 2, (const char *[]){"GET", NULL}, (const size_t[]){3, 1}) == -1);
  reply = keyway_command(c, 2, (const char *[]){"ECHO", NULL}, (const size_t[]){4, 0});
  EXPECT(reply != NULL && keyway_bytes(reply, NULL)[0] == 0);
  keyway_free(reply);
  keyway_free(say(c, 1, (const char *[]){"PING"}));
  keyway_close(c);
  return 0;
}
