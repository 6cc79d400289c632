#include "kernels.h"

#define WORDS 64

/* Two or more threads take turns at the same words (SAM §2.1): `knob` steps of computation, then one access to shared data. An access leaves
   the thread's id in a word that stands alone in its line and returns whose it was, so that a transfer is counted where one happened.
   All threads visit the words in one order: when a thread comes back to a word, the others have been there since.
   Unit: shared accesses. */
void ck_coherence(struct ck_work *w)
{
    const uint64_t id = w->id, compute = w->knob, batch = 65536 / (compute + 64) + 1;
    unsigned char *const shared = w->shared;
    uint64_t x = id, at = id * 7, transfers = 0;
    /* Always 0, which the compiler must not know: the next address has to wait for the last access, or the transfers would overlap. */
    volatile uint64_t opaque = 0;
    const uint64_t none = opaque;
    for (uint64_t n = ck_next(w, 0, batch); n; n = ck_next(w, n, batch)) {
        for (uint64_t i = 0; i < n; i++) {
            for (uint64_t s = 0; s < compute; s++)
                x = ck_step(x);
            at += 27 + (x & none); /* odd, so that all the words are visited; not a step that prefetchers know */
            _Atomic uint64_t *word = (_Atomic uint64_t *)(shared + at % WORDS * CK_APART);
            uint64_t before = atomic_exchange_explicit(word, id, memory_order_acq_rel);
            transfers += before != id && before != 0;
            x += before;
        }
    }
    w->transfers = transfers;
    w->sum = x;
}
