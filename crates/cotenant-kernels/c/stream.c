#include "kernels.h"

/* STREAM (McCalpin) over a, b and c: copy c = a, scale b = q·c, add c = a + b, triad a = b + q·c. `knob` 0 to 3 repeats one of them, 4 does all in
   turn. q = √2 − 1 brings a back to itself after the four, so that values stay finite however long it runs; STREAM's own 3 would not.
   Unit: elements written. */

#define ALL 4
#define CLASSES 8 /* element i begins like element i + CLASSES, unlike its neighbours: a result in the wrong place is noticed */

static const double q = 0.41421356237309503;

static uint64_t elements(const struct ck_work *w)
{
    return w->own_bytes / 24 / CLASSES * CLASSES;
}

static double first_a(uint64_t i) { return 1.0 + (double)(i % CLASSES) / CLASSES; }
static double first_b(uint64_t i) { return 2.0 + (double)(i % CLASSES) / CLASSES; }
static double first_c(uint64_t i) { return 3.0 + (double)(i % CLASSES) / CLASSES; }

/* Not inlined, so that a profiler finds the loops under one name. */
__attribute__((noinline)) static void ck_stream_pass(uint64_t op, double *restrict a, double *restrict b, double *restrict c, uint64_t n)
{
    switch (op) {
    case 0:
        for (uint64_t i = 0; i < n; i++)
            c[i] = a[i];
        break;
    case 1:
        for (uint64_t i = 0; i < n; i++)
            b[i] = q * c[i];
        break;
    case 2:
        for (uint64_t i = 0; i < n; i++)
            c[i] = a[i] + b[i];
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            a[i] = b[i] + q * c[i];
    }
}

static uint64_t op_of(const struct ck_work *w, uint64_t passes)
{
    return w->knob == ALL ? passes % 4 : w->knob;
}

void ck_stream_init(struct ck_work *w)
{
    uint64_t n = elements(w);
    double *a = (double *)w->own, *b = a + n, *c = b + n;
    for (uint64_t i = 0; i < n && !ck_in_vain(w, i); i++) {
        a[i] = first_a(i);
        b[i] = first_b(i);
        c[i] = first_c(i);
    }
}

void ck_stream(struct ck_work *w)
{
    uint64_t n = elements(w), at = 0, passes = 0;
    double *a = (double *)w->own, *b = a + n, *c = b + n;
    for (uint64_t m = ck_next(w, 0, 8192); m; m = ck_next(w, m, 8192)) {
        for (uint64_t left = m, some; left; left -= some) {
            some = ck_fit(left, at, n);
            ck_stream_pass(op_of(w, passes), a + at, b + at, c + at, some);
            at += some;
            if (at == n) {
                at = 0;
                passes++;
            }
        }
    }
}

/* Every element is what the same operations make of its first value, to the last bit. The last pass may have ended anywhere. */
void ck_stream_check(struct ck_work *w)
{
    uint64_t n = elements(w), passes = w->units / n, at = w->units % n;
    double *a = (double *)w->own, *b = a + n, *c = b + n;
    for (uint64_t k = 0; k < CLASSES; k++) {
        double x = first_a(k), y = first_b(k), z = first_c(k);
        for (uint64_t p = 0; p < passes; p++)
            ck_stream_pass(op_of(w, p), &x, &y, &z, 1);
        for (uint64_t i = at + (k + CLASSES - at % CLASSES) % CLASSES; i < n; i += CLASSES)
            w->wrong += a[i] != x || b[i] != y || c[i] != z;
        ck_stream_pass(op_of(w, passes), &x, &y, &z, 1);
        for (uint64_t i = k; i < at; i += CLASSES)
            w->wrong += a[i] != x || b[i] != y || c[i] != z;
    }
}
