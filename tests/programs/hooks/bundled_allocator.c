/* Resembles a library with an allocator linked into it: it imports the functions that allocators need and contains a
 * message of mimalloc. The memory it maps is its arena. */
#include <stddef.h>
#include <sys/mman.h>

static const char message[] = "mimalloc: warning: only a test";

const char *arena_message(void) { return message; }

void *arena_grow(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(memory, size, MADV_NORMAL);
    return memory;
}

void arena_shrink(void *memory, size_t size) { munmap(memory, size); }
