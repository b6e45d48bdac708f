// Answers requests of HTTP. The path says what it does:
//   /work/N     works for N rounds and says what came of it
//   /quarters/N works for 3 N rounds in one function, then for N in another
//   /header     says what the header x-said says
//   /hold/N     allocates N blocks of 1024 bytes, and keeps them
//   /spin       never ends
//   /trap       ends in a trap
// and any other path is one that it does not know.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IMPORT(interface, name) __attribute__((import_module(interface), import_name(name)))
#define HTTP "wasi:http/types@0.2.0"
#define STREAMS "wasi:io/streams@0.2.0"

IMPORT(HTTP, "[constructor]fields") int32_t new_fields(void);
IMPORT(HTTP, "[constructor]outgoing-response") int32_t new_response(int32_t headers);
IMPORT(HTTP, "[method]outgoing-response.set-status-code") int32_t set_status(int32_t response, int32_t status);
IMPORT(HTTP, "[method]outgoing-response.body") void response_body(int32_t response, int32_t *body);
IMPORT(HTTP, "[method]outgoing-body.write") void body_stream(int32_t body, int32_t *stream);
IMPORT(HTTP, "[static]outgoing-body.finish") void finish_body(int32_t body, int32_t has_trailers, int32_t trailers, int64_t *result);
IMPORT(HTTP, "[static]response-outparam.set")
void set_response(int32_t out, int32_t is_error, int32_t response, int32_t, int64_t, int32_t, int32_t, int32_t, int32_t);
IMPORT(HTTP, "[method]incoming-request.path-with-query") void request_path(int32_t request, int32_t *path);
IMPORT(HTTP, "[method]incoming-request.headers") int32_t request_headers(int32_t request);
IMPORT(HTTP, "[method]fields.get") void get_field(int32_t fields, const char *name, int32_t length, int32_t *values);
IMPORT(HTTP, "[resource-drop]fields") void drop_fields(int32_t fields);
IMPORT(HTTP, "[resource-drop]incoming-request") void drop_request(int32_t request);
IMPORT(STREAMS, "[method]output-stream.blocking-write-and-flush")
void write_stream(int32_t stream, const char *bytes, int32_t length, int32_t *result);
IMPORT(STREAMS, "[resource-drop]output-stream") void drop_stream(int32_t stream);

__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *block, size_t old_size, size_t alignment, size_t size) {
    (void)old_size, (void)alignment;
    return realloc(block, size);
}

__attribute__((noinline)) static uint32_t one_round(uint32_t value) {
    for (int step = 0; step < 1000; step++)
        value = value * 1664525u + 1013904223u + (value >> 7);
    return value;
}

__attribute__((noinline)) static uint32_t work(int rounds) {
    uint32_t value = 1;
    for (int round = 0; round < rounds; round++)
        value = one_round(value);
    return value;
}

__attribute__((noinline)) static uint32_t three_quarters(int rounds) { return work(3 * rounds); }

__attribute__((noinline)) static uint32_t a_quarter(int rounds) { return work(rounds) + 1; }

__attribute__((noinline)) static int hold(int blocks) {
    static char *held;
    int count = 0;
    for (; count < blocks; count++) {
        char *block = malloc(1024);
        if (!block)
            break;
        *(char **)block = held;
        held = block;
    }
    return count;
}

__attribute__((noinline)) static void spin(void) {
    for (volatile uint32_t value = 0;; value++) {
    }
}

// The first value of a header of the request.
static void read_header(int32_t request, const char *name, char *text, size_t size) {
    int32_t values[2];
    int32_t headers = request_headers(request);
    get_field(headers, name, (int32_t)strlen(name), values);
    drop_fields(headers);
    if (values[1] > 0) {
        const int32_t *first = (const int32_t *)values[0];
        snprintf(text, size, "%.*s", (int)first[1], (const char *)first[0]);
    }
}

__attribute__((noinline)) static int answer(const char *path, const char *said, char *text, size_t size) {
    if (strcmp(path, "/header") == 0) {
        snprintf(text, size, "%s\n", said);
        return 200;
    }
    if (strncmp(path, "/hold/", 6) == 0) {
        snprintf(text, size, "%d\n", hold(atoi(path + 6)));
        return 200;
    }
    if (strcmp(path, "/spin") == 0)
        spin();
    if (strncmp(path, "/work/", 6) == 0) {
        snprintf(text, size, "%u\n", (unsigned)work(atoi(path + 6)));
        return 200;
    }
    if (strncmp(path, "/quarters/", 10) == 0) {
        int rounds = atoi(path + 10);
        snprintf(text, size, "%u\n", (unsigned)(three_quarters(rounds) ^ a_quarter(rounds)));
        return 200;
    }
    if (strcmp(path, "/trap") == 0)
        __builtin_trap();
    snprintf(text, size, "there is no %s\n", path);
    return 404;
}

__attribute__((export_name("wasi:http/incoming-handler@0.2.0#handle"))) void handle(int32_t request, int32_t out) {
    int32_t known[3], body[2], stream[2], written[4];
    int64_t finished[8];
    char path[128] = "", said[128] = "", text[256];
    request_path(request, known);
    if (known[0]) {
        size_t length = (size_t)known[2] < sizeof path - 1 ? (size_t)known[2] : sizeof path - 1;
        memcpy(path, (const char *)known[1], length);
        free((void *)known[1]);
    }
    read_header(request, "x-said", said, sizeof said);
    drop_request(request);
    int status = answer(path, said, text, sizeof text);
    int32_t response = new_response(new_fields());
    set_status(response, status);
    response_body(response, body);
    set_response(out, 0, response, 0, 0, 0, 0, 0, 0);
    body_stream(body[1], stream);
    write_stream(stream[1], text, (int32_t)strlen(text), written);
    drop_stream(stream[1]);
    finish_body(body[1], 0, 0, finished);
}
