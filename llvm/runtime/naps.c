/* Called by marks in the mode `naps` when the countdown has ended: algorithm 3 of Tang's dissertation (§5.3.2), for each thread by itself, with a
 * counter that tunes itself. Execution is measured by the thread's CPU time, so that waiting does not count. Stretches of execution that turn
 * out longer, and timers that are late, are made up for: the rate granularity / (granularity + duration) of equation 5.10 holds on average. */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

COTENANT_COUNTDOWN __cotenant_naps;
COTENANT_STATE struct {
    int64_t reload;      /* what the countdown began from; 0 = the thread's first call */
    uint64_t checked_ns; /* CPU time at the last call */
    uint64_t woke_ns;    /* CPU time at the end of the last nap */
    int64_t owed_ns;     /* nap that is still to be taken; below zero where too much was */
} __cotenant_nap_state;

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

COTENANT_CALLED void __cotenant_nap(uint64_t granularity_ns, uint64_t duration_ns)
{
    __typeof__(__cotenant_nap_state) *state = &__cotenant_nap_state;
    uint64_t now = now_ns(CLOCK_THREAD_CPUTIME_ID), ran = now - state->woke_ns;
    if (state->reload == 0) {
        state->woke_ns = state->checked_ns = now;
        __cotenant_naps = state->reload = 1 << 16;
        return;
    }
    double granularity = (double)granularity_ns, duration = (double)duration_ns;
    double counted = (double)(state->reload - __cotenant_naps), took = (double)(now - state->checked_ns) + 1;
    if (ran >= granularity_ns) {
        /* Longer stretches without a mark are code that is not to be slowed down. */
        state->owed_ns += (int64_t)(duration * clamp((double)ran / granularity, 1, 2));
        if (state->owed_ns > 0)
            state->owed_ns -= nap(state->owed_ns);
        state->owed_ns = (int64_t)clamp((double)state->owed_ns, -duration, duration);
        state->woke_ns = now = now_ns(CLOCK_THREAD_CPUTIME_ID);
        ran = 0;
    }
    /* Half of what is left, so that the last look is close to the end whatever the speed was before. */
    double left = clamp((granularity - (double)ran) / 2, granularity / 32, granularity);
    __cotenant_naps = state->reload = (int64_t)clamp(counted * left / took, 1, clamp((double)state->reload * 8, 1, 1e15));
    state->checked_ns = now;
}
