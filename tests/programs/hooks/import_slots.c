/* Counts, independently of the profiler, the import slots of all loaded libraries that point into a given library.
 * Also calls through its own slots, directly and through a stored pointer, and loads libraries on a native thread.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __aarch64__
#define IS_SLOT(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define IS_SLOT(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#endif

struct search {
    uintptr_t target;
    uintptr_t start, end;
    size_t n_found, n_slots;
};

static int spans(struct dl_phdr_info *info, uintptr_t address, uintptr_t *start, uintptr_t *end)
{
    *start = UINTPTR_MAX, *end = 0;
    for (int at = 0; at < info->dlpi_phnum; at++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[at];
        if (header->p_type != PT_LOAD) continue;
        uintptr_t from = info->dlpi_addr + header->p_vaddr, to = from + header->p_memsz;
        if (from < *start) *start = from;
        if (to > *end) *end = to;
    }
    return address >= *start && address < *end;
}

static int find_target(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    return spans(info, search->target, &search->start, &search->end);
}

static void count_in(struct search *search, uintptr_t base, uintptr_t table, size_t length)
{
    const ElfW(Rela) *entry = (const ElfW(Rela) *)table;
    for (size_t at = 0; at < length / sizeof *entry; at++) {
        if (!IS_SLOT(ELF64_R_TYPE(entry[at].r_info))) continue;
        uintptr_t value = *(const uintptr_t *)(base + entry[at].r_offset);
        search->n_slots++;
        search->n_found += value >= search->start && value < search->end;
    }
}

static int count_slots(struct dl_phdr_info *info, size_t size, void *data)
{
    struct search *search = data;
    uintptr_t start, end;
    if (spans(info, search->target, &start, &end)) return 0;
    for (int at = 0; at < info->dlpi_phnum; at++) {
        if (info->dlpi_phdr[at].p_type != PT_DYNAMIC) continue;
        uintptr_t rela = 0, jmprel = 0;
        size_t rela_length = 0, jmprel_length = 0;
        const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[at].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            if (entry->d_tag == DT_RELA) rela = entry->d_un.d_ptr;
            if (entry->d_tag == DT_RELASZ) rela_length = entry->d_un.d_val;
            if (entry->d_tag == DT_JMPREL) jmprel = entry->d_un.d_ptr;
            if (entry->d_tag == DT_PLTRELSZ) jmprel_length = entry->d_un.d_val;
        }
        /* The kernel's vDSO holds offsets instead of addresses, and has no slots. */
        if (rela > info->dlpi_addr) count_in(search, info->dlpi_addr, rela, rela_length);
        if (jmprel > info->dlpi_addr) count_in(search, info->dlpi_addr, jmprel, jmprel_length);
    }
    return 0;
}

/* Counts the slots of other libraries that point into the library of `target`, or with 0 all slots. */
size_t slots_into(uintptr_t target)
{
    struct search search = {.target = target, .start = 1, .end = 1};
    if (target != 0) dl_iterate_phdr(find_target, &search);
    dl_iterate_phdr(count_slots, &search);
    return target != 0 ? search.n_found : search.n_slots;
}

static void *(*volatile kept_malloc)(size_t);
static void (*volatile kept_free)(void *);

/* Keeps the addresses of `malloc` and `free`, like a program that stores function pointers. */
uintptr_t keep_pointers(void)
{
    kept_malloc = malloc;
    kept_free = free;
    return (uintptr_t)kept_malloc;
}

int use_kept_pointers(size_t size)
{
    char *block = kept_malloc(size);
    if (block == NULL) return 0;
    block[size - 1] = 1;
    kept_free(block);
    return 1;
}

void *allocate(size_t size)
{
    return malloc(size);
}

void release(void *block)
{
    free(block);
}

static pthread_t loader;
static atomic_int loads_on;
static atomic_size_t n_loads;

static void *load_repeatedly(void *path)
{
    while (atomic_load(&loads_on)) {
        void *library = dlopen(path, RTLD_NOW);
        if (library == NULL) break;
        dlsym(library, "allocate");
        dlclose(library);
        atomic_fetch_add(&n_loads, 1);
    }
    return NULL;
}

/* Starts a thread that loads this library, resolves a function and unloads it, until `stop_loading`. */
int start_loading(const char *path)
{
    atomic_store(&loads_on, 1);
    return pthread_create(&loader, NULL, load_repeatedly, (void *)path);
}

size_t stop_loading(void)
{
    atomic_store(&loads_on, 0);
    pthread_join(loader, NULL);
    return atomic_load(&n_loads);
}
