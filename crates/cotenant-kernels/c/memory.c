#include "kernels.h"

/* Copies one half of the memory to the other, `knob` contiguous bytes at a time (SAM §2.2: a line of a DRAM row, or the whole row), and then
   goes on far away. Unit: lines copied. */
void ck_membench(struct ck_work *w)
{
    uint64_t chunks = w->own_bytes / 2 / w->knob, lines = w->knob / CK_LINE, step = ck_golden(chunks), chunk = 0, line = 0;
    uint64_t *from = (uint64_t *)w->own, *to = from + chunks * w->knob / 8;
    for (uint64_t n = ck_next(w, 0, 1024); n; n = ck_next(w, n, 1024)) {
        for (uint64_t left = n, some; left; left -= some) {
            some = ck_fit(left, line, lines);
            uint64_t first = (chunk * lines + line) * 8;
            for (uint64_t i = first; i < first + some * 8; i += 8)
                for (int k = 0; k < 8; k++)
                    to[i + k] = from[i + k];
            line += some;
            if (line == lines) {
                line = 0;
                chunk += step;
                if (chunk >= chunks)
                    chunk -= chunks;
            }
        }
    }
    w->sum = to[0];
}

/* Reads, changes and writes a word every `knob` bytes, from the first to the last and again. Unit: accesses. */
void ck_rmw(struct ck_work *w)
{
    uint64_t words = w->own_bytes / 8, stride = w->knob / 8, places = words / stride, place = 0;
    uint64_t *word = (uint64_t *)w->own;
    for (uint64_t n = ck_next(w, 0, 4096); n; n = ck_next(w, n, 4096)) {
        for (uint64_t left = n, some; left; left -= some) {
            some = ck_fit(left, place, places);
            for (uint64_t i = place; i < place + some; i++)
                word[i * stride] += 1;
            place = place + some == places ? 0 : place + some;
        }
    }
    w->sum = word[0];
}

/* Writes every line, so that the pages are this thread's own. */
void ck_fill(struct ck_work *w)
{
    uint64_t *words = (uint64_t *)w->own;
    for (uint64_t i = 0; i < w->own_bytes / 8 && !ck_in_vain(w, i); i++)
        words[i] = i;
}

/* A cycle through all lines in random order (Sattolo): each line holds the number of the next. */
void ck_chase_init(struct ck_work *w)
{
    uint64_t lines = w->own_bytes / CK_LINE, x = w->id;
    uint64_t *words = (uint64_t *)w->own;
    for (uint64_t i = 0; i < lines && !ck_in_vain(w, i); i++)
        words[i * 8] = i;
    for (uint64_t i = lines - 1; i > 0 && !ck_in_vain(w, i); i--) {
        x = ck_step(x);
        uint64_t j = (x >> 32) % i, next = words[j * 8];
        words[j * 8] = words[i * 8];
        words[i * 8] = next;
    }
}

/* Follows the cycle: each load's address is the last one's value. Unit: loads. */
void ck_chase(struct ck_work *w)
{
    const uint64_t *words = (const uint64_t *)w->own;
    uint64_t at = 0;
    for (uint64_t n = ck_next(w, 0, 1024); n; n = ck_next(w, n, 1024))
        for (uint64_t i = 0; i < n; i++)
            at = words[at * 8];
    w->sum = at;
}
