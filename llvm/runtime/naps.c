/* Called by marks in the mode `naps` when the countdown has ended: algorithm 3 of Tang's dissertation (§5.3.2), for each thread by itself, with a
 * counter that tunes itself. Execution is measured by the thread's CPU time, so that waiting does not count. Stretches of execution that turn
 * out longer, and timers that are late, are made up for: the rate granularity / (granularity + duration) of equation 5.10 holds on average. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

COTENANT_COUNTDOWN __cotenant_naps;
COTENANT_STATE struct {
    long thread;         /* whose all this is; a forked child has a copy of what its parent's was */
    int64_t reload;      /* what the countdown began from */
    uint64_t checked_ns; /* CPU time at the last call */
    uint64_t woke_ns;    /* CPU time at the end of the last nap */
    uint64_t most_ns;    /* what a stretch counts at most */
    int64_t owed_ns;     /* nap that is still to be taken; below zero where too much was */
} __cotenant_nap_state;

/* What threads ran that ended before it was time to nap, and what tells when one ends. */
COTENANT_SHARED struct {
    uint64_t left_ns;
    long process;   /* whose that is, likewise */
    unsigned begun; /* the key, plus one; 0 = nothing tells */
} __cotenant_nap_shared;

/* Where threads are another library's, a program without it has none. */
#pragma weak pthread_key_create
#pragma weak pthread_key_delete
#pragma weak pthread_setspecific

/* A value of a key from here on may be stored by an allocation (glibc), which a mark in a signal handler must not make. */
#define KEYS 32

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The kernel's timers are up to 50 us late unless a program says otherwise. What is longer, a thread waited for a CPU, as it may at any time. */
#define LATE_NS 60000

/* Naps for so long; how long it was, waiting for a CPU left out. */
static int64_t nap(int64_t time_ns)
{
    uint64_t begin = now_ns(CLOCK_MONOTONIC), until = begin + (uint64_t)time_ns;
    struct timespec t = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    int before = errno;
    /* The system call itself: libc's function is a place where threads are cancelled, and a loop is none. */
    while (syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, TIMER_ABSTIME, &t, (void *)0) != 0 && errno == EINTR)
        ;
    errno = before;
    int64_t slept = (int64_t)(now_ns(CLOCK_MONOTONIC) - begin);
    return slept < time_ns + LATE_NS ? slept : time_ns + LATE_NS;
}

static double clamp(double x, double least, double most)
{
    return x < least ? least : x > most ? most : x;
}

/* Takes what threads that ended have left, up to a stretch. */
static uint64_t inherit(uint64_t most)
{
    long process = syscall(SYS_getpid);
    if (__atomic_exchange_n(&__cotenant_nap_shared.process, process, __ATOMIC_RELAXED) != process)
        __atomic_store_n(&__cotenant_nap_shared.left_ns, 0, __ATOMIC_RELAXED);
    uint64_t left = __atomic_load_n(&__cotenant_nap_shared.left_ns, __ATOMIC_RELAXED), taken;
    do
        taken = left < most ? left : most;
    while (!__atomic_compare_exchange_n(&__cotenant_nap_shared.left_ns, &left, left - taken, 1, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED));
    return taken;
}

/* A thread ends. */
static void bequeath(void *value)
{
    __typeof__(__cotenant_nap_state) *state = value;
    if (state->thread != syscall(SYS_gettid))
        return;
    uint64_t ran = now_ns(CLOCK_THREAD_CPUTIME_ID) - state->woke_ns;
    __atomic_fetch_add(&__cotenant_nap_shared.left_ns, ran < state->most_ns ? ran : state->most_ns, __ATOMIC_RELAXED);
    state->thread = 0;
}

/* Every part of a program brings these two along, and each calls the one copy that there is. */
COTENANT_ONCE __attribute__((constructor)) void __cotenant_nap_loaded(void)
{
    pthread_key_t key;
    if (__cotenant_nap_shared.begun || !pthread_key_create || !pthread_key_delete || !pthread_setspecific ||
        pthread_key_create(&key, bequeath) != 0)
        return;
    if (key < KEYS)
        __cotenant_nap_shared.begun = key + 1;
    else
        pthread_key_delete(key);
}

/* Threads that outlive a library that is unloaded would else end in code that is gone. */
COTENANT_ONCE __attribute__((destructor)) void __cotenant_nap_unloaded(void)
{
    unsigned begun = __cotenant_nap_shared.begun;
    __cotenant_nap_shared.begun = 0;
    if (begun)
        pthread_key_delete(begun - 1);
}

COTENANT_CALLED void __cotenant_nap(uint64_t granularity_ns, uint64_t duration_ns)
{
    __typeof__(__cotenant_nap_state) *state = &__cotenant_nap_state;
    double granularity = (double)granularity_ns, duration = (double)duration_ns;
    uint64_t now = now_ns(CLOCK_THREAD_CPUTIME_ID);
    long thread = syscall(SYS_gettid);
    int begins = state->thread != thread;
    if (begins) {
        state->thread = thread;
        state->most_ns = 2 * granularity_ns;
        state->woke_ns = now - inherit(state->most_ns);
        state->owed_ns = 0;
        if (__cotenant_nap_shared.begun)
            pthread_setspecific(__cotenant_nap_shared.begun - 1, state);
    }
    double counted = (double)(state->reload - __cotenant_naps), took = (double)(now - state->checked_ns) + 1;
    uint64_t ran = now - state->woke_ns;
    if (ran >= granularity_ns) {
        /* Longer stretches without a mark are code that is not to be slowed down. */
        state->owed_ns += (int64_t)(duration * clamp((double)ran / granularity, 1, 2));
        if (state->owed_ns > 0)
            state->owed_ns -= nap(state->owed_ns);
        state->owed_ns = (int64_t)clamp((double)state->owed_ns, -duration, duration);
        state->woke_ns = now = now_ns(CLOCK_THREAD_CPUTIME_ID);
        ran = 0;
    }
    if (begins) {
        state->reload = 1 << 16;
    } else {
        /* Half of what is left, so that the last look is close to the end whatever the speed was before. */
        double left = clamp((granularity - (double)ran) / 2, granularity / 32, granularity);
        state->reload = (int64_t)clamp(counted * left / took, 1, clamp((double)state->reload * 8, 1, 1e15));
    }
    __cotenant_naps = state->reload;
    state->checked_ns = now;
}
