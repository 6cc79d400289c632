/* libcotenant: report the speed of a program to Cotenant, and nap when Cotenant asks for it.
 *
 * All functions may be called from any thread, and after a thread's first report from signal handlers. None fails or changes
 * errno; none blocks but marks, which nap when Cotenant orders it. Without Cotenant they do the same, and the counts are not read. The layout of the shared memory is no part of this interface. */
#ifndef COTENANT_H
#define COTENANT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prepares the process and the calling thread, so that the first report is as quick as the others and Cotenant finds the program early.
 * Optional. False where the system gave no memory that Cotenant could find, or the program has closed its descriptor: then the
 * reports are not read. */
bool cotenant_init(void);

/* Reports n units of work as done. */
void cotenant_units(uint64_t n);

/* Reports how long something took, in nanoseconds. It does not count as a unit by itself. */
void cotenant_latency_ns(uint64_t ns);

/* The counter of the calling thread's units, to add to without a call:
 *     __atomic_fetch_add(slot, n, __ATOMIC_RELAXED);
 * It stays valid for ever; once the thread has ended it may be another thread's. */
uint64_t *cotenant_units_slot(void);

/* Naps if Cotenant has ordered it and the order is fresh, at most 1 s: for loops of batch programs that the compiler pass has not marked. It
 * costs a look at the clock: call it once in 10 us to 1 ms of work. */
void cotenant_mark(void);

/* What the compiler pass (`cotenant cc`) calls when a thread's countdown has fallen below zero; it sets the countdown anew, so that the next call comes
 * after a millisecond or so. All zero at first; for one thread. Programs have no need to call it. */
struct cotenant_marker {
    int64_t countdown; /* estimated instructions until the next call */
    uint64_t room[7];
};
void cotenant_marker_1(struct cotenant_marker *marker);

/* Version of the shared memory's layout: major << 16 | minor. */
uint32_t cotenant_layout_version(void);

#ifdef __cplusplus
}
#endif

#endif
