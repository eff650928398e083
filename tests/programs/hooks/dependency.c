/* A library that other libraries depend on or load as a plugin. */
#include <stdlib.h>

void *dependency_allocate(size_t size)
{
    return malloc(size);
}

void dependency_release(void *block)
{
    free(block);
}

const char *who_am_i(void)
{
    return "dependency";
}
