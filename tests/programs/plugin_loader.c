/* Loads a plugin by a bare name, which the linker finds only through this library's own run path. */
#include <dlfcn.h>
#include <stddef.h>

static void *plugin;

/* What the linker complains of, or NULL. */
const char *load_plugin(const char *name)
{
    plugin = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return plugin == NULL ? dlerror() : NULL;
}

void *allocate_in_plugin(size_t size)
{
    void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(plugin, "dependency_allocate");
    return allocate == NULL ? NULL : allocate(size);
}
