/* Calls `malloc` without defining one: the flags with which it and its dependency are loaded decide which it gets. */
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
