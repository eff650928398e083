/* The hooked functions as a shared library for ctypes. */
#include "allocator_calls.h"

void call(const char *name, const uintptr_t *argument, int error_before, struct answer *answer)
{
    checked_call(name, argument, error_before, answer);
}

uintptr_t errno_changes(uintptr_t n_rounds, int in_a_thread)
{
    return in_a_thread ? count_errno_changes_in_a_thread(n_rounds) : (uintptr_t)count_errno_changes((void *)n_rounds);
}
