// Calls of the operating system that fail when they are told to, for tests: loaded before the C library (LD_PRELOAD).
//
// FAULT_CALL    the call, such as pwrite64
// FAULT_PATH    a part of the path of the files that it is about
// FAULT_AFTER   how many calls go well before
// FAULT_ERRNO   the error of every later one; 4 (EINTR) is that of one only; 0: all do half of what they are asked for

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static atomic_long calls;

static int fails(const char *call, int fd, size_t *count) {
    const char *wanted = getenv("FAULT_CALL");
    if (wanted == NULL || strcmp(wanted, call) != 0) return 0;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0) return 0;
    path[len] = 0;
    if (strstr(path, getenv("FAULT_PATH")) == NULL) return 0;
    long number = atomic_fetch_add(&calls, 1), after = atol(getenv("FAULT_AFTER"));
    int error = atoi(getenv("FAULT_ERRNO"));
    if (number < after || (error == EINTR && number > after)) return 0;
    if (error == 0) {
        if (count != NULL && *count > 1) *count /= 2;
        return 0;
    }
    errno = error;
    return 1;
}

#define REAL(name) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))

ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) {
    return fails("pwrite64", fd, &count) ? -1 : REAL(pwrite64)(fd, bytes, count, at);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    return fails("write", fd, &count) ? -1 : REAL(write)(fd, bytes, count);
}

ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) {
    return fails("pread64", fd, &count) ? -1 : REAL(pread64)(fd, bytes, count, at);
}

ssize_t read(int fd, void *bytes, size_t count) {
    return fails("read", fd, &count) ? -1 : REAL(read)(fd, bytes, count);
}

int fsync(int fd) {
    return fails("fsync", fd, NULL) ? -1 : REAL(fsync)(fd);
}

int fdatasync(int fd) {
    return fails("fdatasync", fd, NULL) ? -1 : REAL(fdatasync)(fd);
}

int ftruncate64(int fd, off64_t len) {
    return fails("ftruncate64", fd, NULL) ? -1 : REAL(ftruncate64)(fd, len);
}
