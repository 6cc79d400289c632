/* Each kernel of cotenant-kernels in two builds, in one process and in turn: prints, per kernel, the median over the pairs of CPU time of
 * the second / CPU time of the first. `kernels FIRST.so SECOND.so PAIRS` */
#define _GNU_SOURCE
#include "kernels.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

typedef uint64_t clock_function(void);
typedef void body(struct ck_work *);

static const struct kernel {
    const char *name, *init, *body;
    uint64_t bytes, knob;
} kernels[] = {
    {"cpu", 0, "ck_cpu", 4096, 0},
    {"hubench", 0, "ck_coherence", 1 << 16, 192},
    {"lubench", 0, "ck_coherence", 1 << 16, 961},
    {"membench-high", "ck_fill", "ck_membench", 64 << 20, 4096},
    {"membench-low", "ck_fill", "ck_membench", 64 << 20, 64},
    {"stream", "ck_stream_init", "ck_stream", 48 << 20, 4},
    {"stream-copy, first-level cache", "ck_stream_init", "ck_stream", 24 << 10, 0},
    {"stream-scale, first-level cache", "ck_stream_init", "ck_stream", 24 << 10, 1},
    {"stream-add, first-level cache", "ck_stream_init", "ck_stream", 24 << 10, 2},
    {"stream-triad, first-level cache", "ck_stream_init", "ck_stream", 24 << 10, 3},
    {"rmw", "ck_fill", "ck_rmw", 64 << 20, 64},
    {"rmw, first-level cache", "ck_fill", "ck_rmw", 16 << 10, 8},
    {"chase", "ck_chase_init", "ck_chase", 64 << 20, 0},
    {"chase, first-level cache", "ck_chase_init", "ck_chase", 16 << 10, 0},
    {"inject-l2", "ck_fill", "ck_inject", 256 << 10, 0},
    {"inject-memory", "ck_fill", "ck_inject", 64 << 20, 0},
    {"bst-4mb", "ck_bst_init", "ck_bst", 4 << 20, 0},
    {"bst-50mb", "ck_bst_init", "ck_bst", 50 << 20, 0},
    {"naive-4mb", "ck_fill", "ck_naive", 4 << 20, 0},
    {"naive-50mb", "ck_fill", "ck_naive", 50 << 20, 0},
    {"er-naive-4mb", "ck_fill", "ck_er_naive", 4 << 20, 0},
    {"er-naive-50mb", "ck_fill", "ck_er_naive", 50 << 20, 0},
    {"blockie-small", "ck_fill", "ck_blockie", 1 << 20, 0},
    {"blockie-large", "ck_fill", "ck_blockie", 50 << 20, 0},
    {"sledge-small", "ck_fill", "ck_sledge", 1 << 20, 0},
    {"sledge-large", "ck_fill", "ck_sledge", 50 << 20, 0},
};

static const _Atomic uint32_t go;
static _Atomic uint64_t progress;
static clock_function *cpu_ns;

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    return found;
}

static struct ck_work work(const struct kernel *k, unsigned char *own, unsigned char *shared, uint64_t units)
{
    return (struct ck_work){.progress = &progress, .stop = (const _Atomic uint32_t *)&go, .own = own, .own_bytes = k->bytes,
                            .shared = shared, .shared_bytes = 1 << 16, .id = 1, .limit = units, .knob = k->knob, .deadline_ns = UINT64_MAX};
}

static double run(body *f, const struct kernel *k, unsigned char *own, unsigned char *shared, uint64_t units)
{
    struct ck_work w = work(k, own, shared, units);
    uint64_t before = cpu_ns();
    f(&w);
    return (double)(cpu_ns() - before);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    void *first = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL), *second = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
    if (!first || !second)
        return fprintf(stderr, "%s\n", dlerror()), 1;
    cpu_ns = (clock_function *)symbol(first, "ck_cpu_time_ns");
    int pairs = atoi(argv[3]);
    double *ratios = calloc((size_t)pairs, sizeof *ratios);
    for (const struct kernel *k = kernels; k < kernels + sizeof kernels / sizeof *kernels; k++) {
        unsigned char *own = mmap(0, k->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        unsigned char *shared = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (own == MAP_FAILED || shared == MAP_FAILED)
            return perror("mmap"), 1;
        if (k->init) {
            struct ck_work w = work(k, own, shared, 0);
            ((body *)symbol(first, k->init))(&w);
        }
        body *without = (body *)symbol(first, k->body), *with = (body *)symbol(second, k->body);
        uint64_t units = 1024;
        while (run(without, k, own, shared, units) < 5e6) /* 5 to 10 ms of CPU time */
            units *= 2;
        run(with, k, own, shared, units);
        for (int i = 0; i < pairs; i++) { /* A B, B A, … */
            double a, b;
            if (i % 2) {
                b = run(with, k, own, shared, units);
                a = run(without, k, own, shared, units);
            } else {
                a = run(without, k, own, shared, units);
                b = run(with, k, own, shared, units);
            }
            ratios[i] = b / a;
        }
        qsort(ratios, (size_t)pairs, sizeof *ratios, ascending);
        printf("%s\t%.5f\n", k->name, ratios[pairs / 2]);
        fflush(stdout);
        munmap(own, k->bytes);
        munmap(shared, 1 << 16);
    }
    return 0;
}
