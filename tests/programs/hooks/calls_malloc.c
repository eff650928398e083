/* Calls `malloc` without defining it. Which definition it calls depends on how it and its dependency are loaded. */
#include <stdlib.h>

static void *last;

void *allocate(size_t size)
{
    return last = malloc(size);
}

void release_last(void)
{
    free(last);
}
