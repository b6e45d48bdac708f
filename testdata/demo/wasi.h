// The few WASI calls the demo makes, declared by hand: the demo links no libc, so that the
// committed file is small and every line of its debug info is ours.
#ifndef DEMO_WASI_H
#define DEMO_WASI_H

#include <stddef.h>
#include <stdint.h>

#define WASI(name) \
    __attribute__((import_module("wasi_snapshot_preview1"), import_name(#name))) extern

struct wasi_slice {
    const char *start;
    size_t length;
};

WASI(fd_write) uint32_t wasi_fd_write(uint32_t fd, const struct wasi_slice *slices, size_t count,
                                      size_t *written);

#endif
