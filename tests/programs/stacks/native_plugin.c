/* A library whose allocating function is named by the compiler flag FUNCTION. */
#include <stdlib.h>

static void *volatile kept;

__attribute__((noinline)) void FUNCTION(size_t size) {
    kept = malloc(size);
    __asm__ volatile("" ::: "memory");
}

void plugin_run(size_t size) {
    FUNCTION(size);
    __asm__ volatile("" ::: "memory");
}
