/* Calls a hooked function of the C library by its name, for the shared library and the extension module of the tests.
 * The calls go through the import slots of the including library, which are under test. The answer also contains `errno`
 * after the call, and the value that the call stored through a pointer.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define N_ARGUMENTS 5

struct answer {
    uintptr_t result;
    uintptr_t stored;
    int error;
};

#define IS(known) (strcmp(name, known) == 0)
#define P(index) ((void *)argument[index])

/* Functions inside which the C library allocates. */
static uintptr_t library_call(const char *name, const uintptr_t *argument, struct answer *answer)
{
    if (IS("strdup")) {
        char *text = malloc(argument[0] + 1);
        memset(text, 'x', argument[0]);
        text[argument[0]] = 0;
        char *copy = strdup(text);
        free(text);
        return (uintptr_t)copy;
    }
    if (IS("getline")) {
        /* Stores the final size of the line buffer, which the test compares with the record. */
        char *line = NULL;
        size_t size = 0;
        ssize_t length = getline(&line, &size, P(0));
        answer->stored = length < 0 ? 0 : size;
        return (uintptr_t)line;
    }
    if (IS("fopen")) return (uintptr_t)fopen(P(0), "r");
    if (IS("fclose")) return fclose(P(0));
    if (IS("opendir")) return (uintptr_t)opendir(P(0));
    if (IS("closedir")) return closedir(P(0));
    abort();
}

static uintptr_t chosen_call(const char *name, const uintptr_t *argument, struct answer *answer)
{
    if (IS("malloc")) return (uintptr_t)malloc(argument[0]);
    if (IS("calloc")) return (uintptr_t)calloc(argument[0], argument[1]);
    if (IS("realloc")) return (uintptr_t)realloc(P(0), argument[1]);
    if (IS("reallocarray")) return (uintptr_t)reallocarray(P(0), argument[1], argument[2]);
    if (IS("free")) return free(P(0)), 0;
    if (IS("posix_memalign")) return posix_memalign((void **)&answer->stored, argument[0], argument[1]);
    if (IS("aligned_alloc")) return (uintptr_t)aligned_alloc(argument[0], argument[1]);
    if (IS("memalign")) return (uintptr_t)memalign(argument[0], argument[1]);
    if (IS("valloc")) return (uintptr_t)valloc(argument[0]);
    if (IS("pvalloc")) return (uintptr_t)pvalloc(argument[0]);
    if (IS("mmap")) return (uintptr_t)mmap(P(0), argument[1], argument[2], argument[3], argument[4], 0);
    if (IS("mmap64")) return (uintptr_t)mmap64(P(0), argument[1], argument[2], argument[3], argument[4], 0);
    if (IS("munmap")) return munmap(P(0), argument[1]);
    if (IS("mremap")) return (uintptr_t)mremap(P(0), argument[1], argument[2], argument[3], P(4));
    return library_call(name, argument, answer);
}

/* `stored` starts as an impossible address, so that a hook that records a failed call is detected. */
static void checked_call(const char *name, const uintptr_t *argument, int error_before, struct answer *answer)
{
    answer->stored = 0xdead0;
    errno = error_before;
    answer->result = chosen_call(name, argument, answer);
    answer->error = errno;
}

/* Counts the calls of `n_rounds` rounds after which errno had changed. */
static void *count_errno_changes(void *n_rounds)
{
    uintptr_t n_changes = 0;
    for (uintptr_t round = 0; round < (uintptr_t)n_rounds; round++) {
        errno = 77;
        void *block = malloc(33);
        n_changes += errno != 77;
        errno = 78;
        block = realloc(block, 34);
        n_changes += errno != 78;
        errno = 79;
        free(block);
        n_changes += errno != 79;
    }
    errno = 80;
    void *mapping = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(mapping, 4096);
    n_changes += errno != 80;
    return (void *)n_changes;
}

/* The same in a new thread, whose first event takes another path through the hooks. */
static uintptr_t count_errno_changes_in_a_thread(uintptr_t n_rounds)
{
    pthread_t thread;
    void *n_changes = NULL;
    if (pthread_create(&thread, NULL, count_errno_changes, (void *)n_rounds) != 0) abort();
    pthread_join(thread, &n_changes);
    return (uintptr_t)n_changes;
}
