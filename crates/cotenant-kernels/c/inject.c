#define _POSIX_C_SOURCE 199309L
#include "kernels.h"

#include <time.h>

/* How far behind its schedule an injector may be before it gives up what it missed: bursts that catch up with a long pause would be a load that
   was not asked for. */
#define SLACK_NS 10000000.0

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Waits until the units done so far are due, by the clock. */
static void keep_pace(struct ck_work *w, uint64_t start)
{
    double due = (double)w->units / w->rate * 1e9;
    for (;;) {
        w->span_ns = now_ns() - start;
        double ahead = due - (double)(w->span_ns - w->skipped_ns);
        if (ahead < -SLACK_NS)
            w->skipped_ns += (uint64_t)-ahead;
        if (ahead <= 0 || ck_ends(w))
            return;
        relax();
    }
}

/* Loads a word of every line of its memory, each line once before any comes again and far from the one before, so that neither the cache above
   nor a prefetcher helps: hits in the cache that holds the memory, or memory accesses (Feliu et al. §4). `rate` per second. Unit: loads. */
void ck_inject(struct ck_work *w)
{
    uint64_t lines = w->own_bytes / CK_LINE, step = ck_golden(lines), at = 0, sum = 0, start = now_ns();
    const uint64_t *word = (const uint64_t *)w->own;
    uint64_t batch = 1024;
    if (w->rate > 0 && w->rate < 1024e5) /* some 10 µs of work between two time stamps */
        batch = (uint64_t)(w->rate / 1e5) + 1;
    for (uint64_t n = ck_next(w, 0, batch); n; n = ck_next(w, n, batch)) {
        if (w->rate > 0) {
            keep_pace(w, start);
            if (ck_ends(w))
                break;
        }
        for (uint64_t i = 0; i < n; i++) {
            sum += word[at * 8];
            at += step;
            if (at >= lines)
                at -= lines;
        }
    }
    w->sum = sum;
}
