/* Calls one function from two callers at different distances on the stack. A stack allocation of varying size changes
   the distance. At some size both calls use the same stack memory, which still holds the return addresses of the
   previous call. */
#include <stdlib.h>

#define KEPT __attribute__((noinline, noclone))
/* After a call, so that the compiler does not turn it into a jump and drop the frame of the caller. */
#define STAY() __asm__ volatile("" ::: "memory")

KEPT static void make(size_t size) {
    void *volatile block = malloc(size);
    free(block);
    STAY();
}

KEPT static void with_room(size_t room, size_t size) {
    volatile char *taken = __builtin_alloca(room);
    taken[0] = 1;
    make(size);
    STAY();
}

KEPT static void from_near(size_t room, size_t size) {
    with_room(room, size);
    STAY();
}

KEPT static void from_far(size_t room, size_t size) {
    volatile char between[160];
    between[0] = 1;
    with_room(room, size);
    between[1] = between[0];
    STAY();
}

/* Allocates blocks of increasing sizes, alternately from far and from near. Returns the number of blocks. */
size_t alternate(size_t size) {
    size_t n_blocks = 0;
    for (size_t more = 0; more <= 320; more += 16) {
        from_far(64, size + n_blocks++);
        from_near(64 + more, size + n_blocks++);
    }
    return n_blocks;
}
