/* How the called part is compiled. */
#ifndef COTENANT_STATE_H
#define COTENANT_STATE_H

#include <stdint.h>

/* Marks save no registers around the call: it is rare, and they stand in hot loops. One copy for all parts of a program. */
#if defined(__x86_64__) || defined(__aarch64__)
#define COTENANT_CALLED __attribute__((weak, visibility("hidden"), noinline, cold, preserve_most))
#else
#define COTENANT_CALLED __attribute__((weak, visibility("hidden"), noinline, cold))
#endif

/* What a thread keeps; begins with the countdown (int64_t, estimated instructions until the next call). Zero at the thread's birth, so that its
 * first mark calls. */
#define COTENANT_STATE __attribute__((weak, visibility("hidden"))) __thread

#endif
