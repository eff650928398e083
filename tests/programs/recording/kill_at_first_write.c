/* A preloaded library that kills its process at the first write to a regular file: the instant between the creation of a
 * file and its header. The call never reaches the kernel. KILL_AT_FIRST_WRITE=0 in the environment prevents it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static void kill_if_regular(int fd) {
    struct stat found;
    const char *chosen = getenv("KILL_AT_FIRST_WRITE");
    if (chosen != 0 && chosen[0] == '0') return;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode)) kill(getpid(), SIGKILL);
}

ssize_t write(int fd, const void *bytes, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    if (real == 0) real = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    kill_if_regular(fd);
    return real(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
    static ssize_t (*real)(int, const void *, size_t, off_t);
    if (real == 0) real = (ssize_t(*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, "pwrite");
    kill_if_regular(fd);
    return real(fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off_t offset) { return pwrite(fd, bytes, length, offset); }
