/* A library that defines `malloc` and must always call its own. With -DVISIBLE the function is exported and calls go
 * through an import slot; without it, the linker does not know the name.
 */
#include <stddef.h>

#ifdef VISIBLE
#define SCOPE
#else
#define SCOPE static
#endif

static char pool[1 << 20];
static size_t used;

__attribute__((noinline)) SCOPE void *malloc(size_t size)
{
    void *block = pool + used;
    used += (size + 15) / 16 * 16;
    return block;
}

__attribute__((noinline)) SCOPE void free(void *block)
{
    (void)block;
}

int is_of_pool(void *block)
{
    return (char *)block >= pool && (char *)block < pool + sizeof pool;
}

/* Whether a block of this size, allocated by this library, comes from the pool. */
int takes_from_its_pool(size_t size)
{
    void *block = malloc(size);
    int own = is_of_pool(block);
    if (own) free(block);
    return own;
}
