/* What every loop gets and gives. Layout: `Work` in src/ffi.rs, asserted on both sides. */
#ifndef COTENANT_KERNELS_H
#define COTENANT_KERNELS_H

#include <stdatomic.h>
#include <stdint.h>

/* Shared words stand this far apart: the largest line of the processors that run Linux (A64FX, s390x: 256), and more than the pairs of
   64-byte lines that x86 prefetchers fetch together. */
#define CK_APART 256

/* What memory is counted in, whatever the machine's line is. */
#define CK_LINE 64

struct ck_work {
    _Atomic uint64_t *progress;    /* units done, for others to see; more threads than counters share some */
    const _Atomic uint32_t *stop;  /* not 0: end at the next batch */
    unsigned char *own;            /* this thread's memory, page-aligned */
    uint64_t own_bytes;
    unsigned char *shared;         /* memory of all threads, page-aligned */
    uint64_t shared_bytes;
    uint64_t id;                   /* of the thread, from 1 */
    uint64_t limit;                /* units to do at most */
    uint64_t knob;                 /* the kernel's own: steps, bytes, see each */
    double rate;                   /* units per second, 0 = as fast as it goes */
    uint64_t deadline_ns;          /* by CLOCK_MONOTONIC: end at the next batch after it; UINT64_MAX = none */
    /* Results. */
    uint64_t units;
    uint64_t transfers;            /* coherence kernels: accesses that found another thread's write */
    uint64_t span_ns;              /* paced kernels: from the start of the schedule to the last time stamp */
    uint64_t skipped_ns;           /* paced kernels: of this, what was given up because the schedule could not be kept */
    uint64_t wrong;                /* results that are not what they must be, for kernels that are checked */
    uint64_t sum;                  /* depends on everything that was computed, so that nothing can be left out */
};

/* Whether the deadline is past, by a clock that is read in a few nanoseconds and is late by a tick at most. */
int ck_too_late(const struct ck_work *w);

static inline int ck_ends(const struct ck_work *w)
{
    return atomic_load_explicit(w->stop, memory_order_relaxed) || (w->deadline_ns != UINT64_MAX && ck_too_late(w));
}

/* Books `done` units and says how many to do next: `batch` at most, 0 = end. Others see the count once per batch, not per access. The thread looks
   at the clock itself: where thousands wait for a CPU, a thread that would stop it waits for one, too. */
static inline uint64_t ck_next(struct ck_work *w, uint64_t done, uint64_t batch)
{
    w->units += done;
    if (done)
        atomic_fetch_add_explicit(w->progress, done, memory_order_relaxed);
    if (ck_ends(w))
        return 0;
    uint64_t left = w->limit - w->units;
    return left < batch ? left : batch;
}

/* What fits without going past `end`. */
static inline uint64_t ck_fit(uint64_t want, uint64_t at, uint64_t end)
{
    return want < end - at ? want : end - at;
}

/* Whether preparing is in vain; asked every 65,536 words. */
static inline int ck_in_vain(const struct ck_work *w, uint64_t i)
{
    return i % 65536 == 0 && atomic_load_explicit(w->stop, memory_order_relaxed);
}

/* A step of computation: a 64-bit multiplication and an addition, each waiting for the one before. 4 cycles on x86 since Haswell and Zen. */
static inline uint64_t ck_step(uint64_t x)
{
    return x * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX generator */
}

/* A stride that visits all `n` places before it repeats one, far away each time: coprime to n and near n divided by the golden ratio. */
static inline uint64_t ck_golden(uint64_t n)
{
    uint64_t step = (uint64_t)((double)n * 0.6180339887498949) | 1;
    for (;; step += 2) {
        uint64_t a = n, b = step;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return step % n;
    }
}

_Static_assert(sizeof(struct ck_work) == 17 * 8, "Work in src/ffi.rs has 17 words");

#endif
