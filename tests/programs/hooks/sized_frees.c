/* The functions that C23 adds to free(), for C libraries that lack them. They call free() through an import slot, as
 * allocators may do.
 */
#include <stdlib.h>

static int n_calls;

void free_sized(void *block, size_t size)
{
    (void)size;
    n_calls++;
    free(block);
}

void free_aligned_sized(void *block, size_t alignment, size_t size)
{
    (void)alignment;
    (void)size;
    n_calls++;
    free(block);
}

int n_sized_frees(void)
{
    return n_calls;
}
