/* Calls the functions that C23 adds to free(), which another library of the process defines. */
#include <stdint.h>
#include <stdlib.h>

void free_sized(void *block, size_t size);
void free_aligned_sized(void *block, size_t alignment, size_t size);

uintptr_t allocate_and_free_sized(size_t size)
{
    void *block = malloc(size);
    free_sized(block, size);
    return (uintptr_t)block;
}

uintptr_t allocate_and_free_aligned_sized(size_t alignment, size_t size)
{
    void *block = aligned_alloc(alignment, size);
    free_aligned_sized(block, alignment, size);
    return (uintptr_t)block;
}

/* Freeing no block is allowed. */
void free_nothing(void)
{
    free_sized(NULL, 0);
    free_aligned_sized(NULL, 0, 0);
}
