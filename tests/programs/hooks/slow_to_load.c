/* A library that takes the linker long to load: it has many slots to fill, in pages that become read-only. */
#include <stdlib.h>

#define FUNCTIONS(n) (void *)malloc, (void *)free, (void *)calloc, (void *)realloc,
#define TEN(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n) FUNCTIONS(n)
#define HUNDRED(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n) TEN(n)
#define THOUSAND(n) HUNDRED(n) HUNDRED(n) HUNDRED(n) HUNDRED(n) HUNDRED(n) HUNDRED(n) HUNDRED(n) HUNDRED(n) HUNDRED(n) HUNDRED(n)

void *const table[] = {THOUSAND(0) THOUSAND(1) THOUSAND(2) THOUSAND(3) THOUSAND(4)};

void *allocate(size_t size)
{
    return malloc(size);
}
