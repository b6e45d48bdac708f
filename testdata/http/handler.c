// Answers requests of HTTP. The path says what it does:
//   /work/N     works for N rounds and says what came of it
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

__attribute__((noinline)) static int answer(const char *path, char *text, size_t size) {
    if (strncmp(path, "/work/", 6) == 0) {
        snprintf(text, size, "%u\n", (unsigned)work(atoi(path + 6)));
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
    char path[128] = "", text[256];
    request_path(request, known);
    if (known[0]) {
        size_t length = (size_t)known[2] < sizeof path - 1 ? (size_t)known[2] : sizeof path - 1;
        memcpy(path, (const char *)known[1], length);
        free((void *)known[1]);
    }
    drop_request(request);
    int status = answer(path, text, sizeof text);
    int32_t response = new_response(new_fields());
    set_status(response, status);
    response_body(response, body);
    set_response(out, 0, response, 0, 0, 0, 0, 0, 0);
    body_stream(body[1], stream);
    write_stream(stream[1], text, (int32_t)strlen(text), written);
    drop_stream(stream[1]);
    finish_body(body[1], 0, 0, finished);
}
