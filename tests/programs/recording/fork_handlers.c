/* A library whose fork handlers allocate and free, like those of numerical libraries. */

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static char *volatile kept;

static void allocate(void) {
    char *fresh = malloc(1000);
    if (fresh != NULL) {
        memset(fresh, 1, 1000);
    }
    free(kept);
    kept = fresh;
}

int register_handlers(void) {
    return pthread_atfork(allocate, allocate, allocate);
}
