/* What was there before, given back, and at once something new that is "made longer" from nothing. */
#include <stdlib.h>

void *make(size_t size) { return malloc(size); }

void *give_back_and_make(void *old, size_t size) {
    free(old);
    return realloc(NULL, size);
}
