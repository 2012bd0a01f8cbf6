/* What the C tests share: ending with a text at the first thing that is not as it should be. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <quoit.h>

static inline void fail(const char *what, long code)
{
    char text[512];
    quoit_error_text(text, sizeof text);
    fprintf(stderr, "%s: %ld: %s\n", what, code, text);
    exit(1);
}

/* What a call returns that must succeed. */
static inline long check(const char *what, long code)
{
    if (code < 0)
        fail(what, code);
    return code;
}

/* A call that must return this. */
static inline void must(const char *what, long code, long expected)
{
    if (code != expected)
        fail(what, code);
}

static inline void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", what);
        exit(1);
    }
}

/* The defaults, with the engine that is asked for. */
static inline quoit_config config_of(const char *engine)
{
    quoit_config config;
    config.size = sizeof config;
    check("quoit_config_default", quoit_config_default(&config));
    config.engine = strcmp(engine, "uring") == 0 ? QUOIT_ENGINE_URING : QUOIT_ENGINE_EPOLL;
    config.connections = 1024;
    return config;
}

static inline quoit_loop *loop_with(const quoit_config *config, uint32_t index)
{
    quoit_loop *loop;
    check("quoit_loop_create", quoit_loop_create(config, index, &loop));
    expect(quoit_engine(loop) == (int)config->engine, "the engine asked for runs");
    return loop;
}

/* A loop, `pollable` for quoit_fd. */
static inline quoit_loop *make_loop(const char *engine, uint32_t index, uint32_t pollable)
{
    quoit_config config = config_of(engine);
    config.pollable = pollable;
    return loop_with(&config, index);
}

#endif
