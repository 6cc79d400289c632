#include "kernels.h"

#define LINE 64

/* Copies one half of the memory to the other, `knob` contiguous bytes at a time (SAM §2.2: a line of a DRAM row, or the whole row), and then
   goes on far away. Unit: lines copied. */
void ck_membench(struct ck_work *w)
{
    uint64_t chunks = w->own_bytes / 2 / w->knob, step = ck_golden(chunks), at = 0, words = w->knob / 8;
    uint64_t lines = w->knob / LINE, batch = lines > 1024 ? lines : 1024 / lines * lines;
    uint64_t *from = (uint64_t *)w->own, *to = from + chunks * words;
    /* Whole chunks only: a limit is rounded up to the next one. */
    for (uint64_t n = ck_next(w, 0, batch), done; n; n = ck_next(w, done, batch)) {
        for (done = 0; done < n; done += lines) {
            uint64_t *a = from + at * words, *b = to + at * words;
            for (uint64_t i = 0; i < words; i += 8)
                for (int k = 0; k < 8; k++)
                    b[i + k] = a[i + k];
            at += step;
            if (at >= chunks)
                at -= chunks;
        }
        if (w->units + done > w->limit)
            w->limit = w->units + done;
    }
    w->sum = to[0];
}

/* Writes every line, so that the pages are this thread's own. */
void ck_membench_init(struct ck_work *w)
{
    uint64_t *words = (uint64_t *)w->own;
    for (uint64_t i = 0; i < w->own_bytes / 8 && !ck_in_vain(w, i); i++)
        words[i] = i;
}

/* A cycle through all lines in random order (Sattolo): each line holds the number of the next. */
void ck_chase_init(struct ck_work *w)
{
    uint64_t lines = w->own_bytes / LINE, x = w->id;
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
