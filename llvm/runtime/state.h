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

/* A thread's countdown: estimated instructions until the next call. Zero at its birth, so that its first mark calls. Also in shared libraries at a
 * fixed distance from the thread's base: found by a call, it would cost the loop its registers. These 8 bytes are all that a library takes
 * of the room that the dynamic linker keeps for such variables. */
#define COTENANT_COUNTDOWN __attribute__((weak, visibility("hidden"), tls_model("initial-exec"))) __thread int64_t

/* What else it keeps. */
#define COTENANT_STATE COTENANT_ONCE __thread

/* What its threads share. */
#define COTENANT_SHARED COTENANT_ONCE

/* One copy for all parts of a program. */
#define COTENANT_ONCE __attribute__((weak, visibility("hidden")))

#endif
