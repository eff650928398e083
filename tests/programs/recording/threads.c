/* Threads that Python does not know, which allocate, run allocating destructors, and pass blocks to each other. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_THREADS 128

/* What one thread does. Some functions store other numbers in these fields: rounds or a size in `n_blocks`, a seed in
   `size`, and a number of yields in `tid`. */
struct task {
    size_t size;
    int n_blocks;
    int tid;
};

static struct task tasks[MAX_THREADS];

static void run(int n_threads, void *(*work)(void *), int *tids)
{
    pthread_t threads[MAX_THREADS];
    for (int at = 0; at < n_threads; at++)
        if (pthread_create(&threads[at], NULL, work, &tasks[at]) != 0) abort();
    for (int at = 0; at < n_threads; at++) {
        pthread_join(threads[at], NULL);
        if (tids != NULL) tids[at] = tasks[at].tid;
    }
}

/* Allocates blocks that are never freed; also called from Python threads. */
void allocate(size_t size, int n_blocks)
{
    for (int at = 0; at < n_blocks; at++)
        if (malloc(size) == NULL) abort();
}

static void *allocate_in_thread(void *data)
{
    struct task *task = data;
    task->tid = gettid();
    allocate(task->size, task->n_blocks);
    return NULL;
}

/* Each thread allocates blocks of its own size: the first size plus the thread's number. */
void allocate_in_threads(int n_threads, size_t first_size, int n_blocks, int *tids)
{
    for (int at = 0; at < n_threads; at++) tasks[at] = (struct task){first_size + at, n_blocks, 0};
    run(n_threads, allocate_in_thread, tids);
}

static atomic_int n_done;

static void *allocate_and_count(void *data)
{
    struct task *task = data;
    allocate(task->size, task->n_blocks);
    atomic_fetch_add(&n_done, 1);
    for (int n_left = task->tid; n_left > 0; n_left--) sched_yield();
    return NULL;
}

/* Returns when all threads have allocated. They end one after the other some time later. */
void allocate_in_ending_threads(int n_threads, size_t size, int n_blocks)
{
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    atomic_store(&n_done, 0);
    for (int at = 0; at < n_threads; at++) {
        pthread_t thread;
        tasks[at] = (struct task){size, n_blocks, at * 10};
        if (pthread_create(&thread, &detached, allocate_and_count, &tasks[at]) != 0) abort();
    }
    while (atomic_load(&n_done) < n_threads) sched_yield();
    pthread_attr_destroy(&detached);
}

/* -------------------------------------------------------------- destructors */

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Allocates and frees in every round of destructors that the C library runs, one byte more each time. */
static void allocate_at_exit(void *data)
{
    struct task *task = data;
    free(malloc(task->size++));
    pthread_setspecific(key, task);
}

static void make_key(void)
{
    if (pthread_key_create(&key, allocate_at_exit) != 0) abort();
}

static void *end_with_destructors(void *data)
{
    struct task *task = data;
    task->tid = gettid();
    free(malloc(task->n_blocks));
    pthread_setspecific(key, task);
    return NULL;
}

void allocate_in_destructors(int n_threads, size_t first_size, size_t size_before, int *tids)
{
    pthread_once(&once, make_key);
    for (int at = 0; at < n_threads; at++) tasks[at] = (struct task){first_size, (int)size_before, 0};
    run(n_threads, end_with_destructors, tids);
}

/* -------------------------------------------------------------- passing on */

#define N_OWN 64
#define N_SHARED 16
static const size_t sizes[] = {24, 40, 104, 1032};
static _Atomic(void *) shared[N_SHARED];

static void *pass_blocks_on(void *data)
{
    struct task *task = data;
    uint64_t state = task->size * 0x9e3779b97f4a7c15u + 1;
    void *own[N_OWN] = {0};
    for (int round = 0; round < task->n_blocks; round++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        void **slot = &own[state % N_OWN];
        size_t size = sizes[state >> 8 & 3];
        unsigned choice = state >> 16 & 15;
        if (choice < 6) {
            free(*slot);
            *slot = malloc(size);
        } else if (choice < 9) {
            *slot = realloc(*slot, size);
        } else if (choice < 12) {
            free(*slot);
            *slot = NULL;
        } else {
            /* The received block often comes from another thread. */
            *slot = atomic_exchange(&shared[state >> 24 & (N_SHARED - 1)], *slot);
        }
    }
    for (int at = 0; at < N_OWN; at++) free(own[at]);
    return NULL;
}

/* Runs threads that allocate, free and reallocate blocks of few sizes and exchange them; all are freed at the end. */
void pass_blocks(int n_threads, int n_rounds)
{
    for (int at = 0; at < n_threads; at++) tasks[at] = (struct task){at + 1, n_rounds, 0};
    run(n_threads, pass_blocks_on, NULL);
    for (int at = 0; at < N_SHARED; at++) free(atomic_exchange(&shared[at], NULL));
}
