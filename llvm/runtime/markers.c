/* Called by marks in the mode `markers` when the countdown has ended. The nap engine is in libcotenant; a program without it runs on. */
#include "state.h"

struct cotenant_marker; /* crates/cotenant-rt/include/cotenant.h */
extern __attribute__((weak)) void cotenant_marker_1(struct cotenant_marker *);

COTENANT_STATE struct {
    int64_t countdown;
    uint64_t room[7]; /* the engine's */
} __cotenant_markers;

COTENANT_CALLED void __cotenant_marked(void)
{
    if (cotenant_marker_1)
        cotenant_marker_1((struct cotenant_marker *)&__cotenant_markers);
    else
        __cotenant_markers.countdown = INT64_MAX;
}
