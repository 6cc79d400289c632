/* Called by marks in the mode `markers` when the countdown has ended. The nap engine is in libcotenant; a program without it runs on. */
#include "state.h"

struct cotenant_marker { /* crates/cotenant-rt/include/cotenant.h */
    int64_t countdown;
    uint64_t room[7];
};
extern __attribute__((weak)) void cotenant_marker_1(struct cotenant_marker *);

COTENANT_COUNTDOWN __cotenant_markers;
COTENANT_STATE struct cotenant_marker __cotenant_marker;

COTENANT_CALLED void __cotenant_marked(void)
{
    struct cotenant_marker *marker = &__cotenant_marker;
    marker->countdown = __cotenant_markers;
    __cotenant_markers = INT64_MAX; /* no call meanwhile; for ever, where there is no engine */
    if (cotenant_marker_1) {
        cotenant_marker_1(marker);
        __cotenant_markers = marker->countdown;
    }
}
