/* Loads a plugin by its file name, which the linker finds only through the run path of this library. */
#include <dlfcn.h>
#include <stddef.h>

static void *plugin;

/* Returns the linker's error message, or NULL. */
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
