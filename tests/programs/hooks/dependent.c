/* A library with a dependency. It also calls dlsym in ways whose result depends on the calling library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>

extern void *dependency_allocate(size_t size);

void *dependent_allocate(size_t size)
{
    return malloc(size);
}

void *allocate_in_dependency(size_t size)
{
    return dependency_allocate(size);
}

const char *who_am_i(void)
{
    return "dependent";
}

/* The next definition after this library, which is that of the dependency. */
const char *find_with_rtld_next(void)
{
    const char *(*next)(void) = (const char *(*)(void))dlsym(RTLD_NEXT, "who_am_i");
    return next == NULL ? "nobody" : next();
}

/* The first definition in the scope of this library, which is its own: it is loaded with RTLD_LOCAL. */
const char *find_with_rtld_default(void)
{
    const char *(*first)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT, "who_am_i");
    return first == NULL ? "nobody" : first();
}

/* The linker's error message about a name that does not exist. */
const char *error_for(const char *name)
{
    dlerror();
    return dlsym(RTLD_DEFAULT, name) == NULL ? dlerror() : "found";
}
