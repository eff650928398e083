/* Frees an old block and immediately allocates a new one with realloc(NULL, size). */
#include <stdlib.h>

void *make(size_t size) { return malloc(size); }

void *free_and_realloc(void *old, size_t size) {
    free(old);
    return realloc(NULL, size);
}
