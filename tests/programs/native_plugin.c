/* One library under two names: which of its functions allocates depends on how it was compiled. */
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
