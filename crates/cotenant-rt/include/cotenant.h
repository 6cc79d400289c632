/* libcotenant: tell Cotenant how fast a program goes.
 *
 * All functions may be called from any thread, and after a thread's first report from signal handlers. None fails, blocks or changes
 * errno. Without Cotenant they do the same, and nobody reads it. The layout of the shared memory is no part of this interface. */
#ifndef COTENANT_H
#define COTENANT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prepares the process and the calling thread, so that the first report is as quick as the others and Cotenant finds the program early.
 * Optional. False where the system gave no memory that Cotenant could find, or the program has closed its descriptor: then nobody
 * reads the reports. */
bool cotenant_init(void);

/* Reports n units of work as done. */
void cotenant_units(uint64_t n);

/* Reports how long something took, in nanoseconds. It does not count as a unit by itself. */
void cotenant_latency_ns(uint64_t ns);

/* The counter of the calling thread's units, to add to without a call:
 *     __atomic_fetch_add(slot, n, __ATOMIC_RELAXED);
 * It stays valid for ever; once the thread has ended it may be another thread's. */
uint64_t *cotenant_units_slot(void);

/* Version of the shared memory's layout: major << 16 | minor. */
uint32_t cotenant_layout_version(void);

#ifdef __cplusplus
}
#endif

#endif
