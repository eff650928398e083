/* Checks that handlers of SIGBUS run with the mask, the flags and the arguments that the program chose.

   `check` returns 0, or the line of the first check that failed. Each fault is an access beyond the end of a file. The
   handlers leave by siglongjmp or map a page over the fault, as programs do. */

#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *page;
static sigjmp_buf after;
static volatile int n_calls, had_info, had_address, blocks_usr1, blocks_bus, on_stack;
static char other_stack[1 << 16];

static void fault(void) { *(volatile char *)page = 1; }

static void note(void) {
    sigset_t mask;
    char here;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    n_calls++;
    blocks_usr1 = sigismember(&mask, SIGUSR1);
    blocks_bus = sigismember(&mask, SIGBUS);
    on_stack = &here >= other_stack && &here < other_stack + sizeof other_stack;
}

static void plain(int number) {
    (void)number;
    note();
    siglongjmp(after, 1);
}

static void detailed(int number, siginfo_t *info, void *context) {
    note();
    had_info = number == SIGBUS && context != NULL;
    had_address = info->si_addr == (void *)page;
    mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static int map_beyond_the_end(void) {
    char name[] = "/tmp/heaptide-bus-XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return page != MAP_FAILED;
}

#define CHECK(condition) if (!(condition)) return __LINE__

int check(void) {
    struct sigaction action, old;
    stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
    CHECK(map_beyond_the_end());
    CHECK(sigaction(SIGBUS, NULL, &old) == 0 && old.sa_handler == SIG_DFL);

    /* A handler with one argument, which leaves by a jump: SIGBUS is blocked while it runs. */
    CHECK(signal(SIGBUS, plain) == SIG_DFL);
    if (sigsetjmp(after, 1) == 0) fault();
    CHECK(n_calls == 1 && blocks_bus && !blocks_usr1 && !on_stack);
    if (sigsetjmp(after, 1) == 0) fault();
    CHECK(n_calls == 2);

    /* A handler with three arguments, a mask, another stack and without blocking SIGBUS. */
    CHECK(sigaltstack(&stack, NULL) == 0);
    memset(&action, 0, sizeof action);
    action.sa_sigaction = detailed;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigaddset(&action.sa_mask, SIGUSR1);
    CHECK(sigaction(SIGBUS, &action, &old) == 0 && old.sa_handler == plain && (old.sa_flags & SA_RESTART));
    fault();
    CHECK(n_calls == 3 && had_info && had_address && blocks_usr1 && !blocks_bus && on_stack);
    CHECK(sigaction(SIGBUS, NULL, &old) == 0 && old.sa_sigaction == detailed && (old.sa_flags & SA_NODEFER));
    CHECK(sigismember(&old.sa_mask, SIGUSR1) && !sigismember(&old.sa_mask, SIGUSR2));

    /* A handler for one signal only. */
    CHECK(map_beyond_the_end());
    action.sa_flags = SA_SIGINFO | SA_RESETHAND;
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    fault();
    CHECK(n_calls == 4 && !on_stack);
    CHECK(sigaction(SIGBUS, NULL, &old) == 0 && old.sa_handler == SIG_DFL);

    /* A signal that is sent and not raised by an access. */
    action.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGBUS, &action, NULL) == 0 && raise(SIGBUS) == 0 && n_calls == 5 && !had_address);
    CHECK(signal(SIGBUS, SIG_IGN) != SIG_ERR && raise(SIGBUS) == 0 && n_calls == 5);
    CHECK(signal(SIGBUS, SIG_DFL) == SIG_IGN);
    return 0;
}
