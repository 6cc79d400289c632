/* A batch program: copies two arrays back and forth (as SmashBench's sledge), after `ready` for MILLISECONDS of CPU time, or with 0 until
 * SIGTERM. Prints the share of the time that it executed, time on a CPU / (time on a CPU + time asleep), and copies per second. Time in which it
 * wanted to run and others did is neither. `batch MILLISECONDS [KILOBYTES]` */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void end(int signal)
{
    (void)signal;
    stop = 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void schedstat(double *ran, double *waited)
{
    FILE *f = fopen("/proc/thread-self/schedstat", "r");
    if (!f || fscanf(f, "%lf %lf", ran, waited) != 2)
        exit(1);
    fclose(f);
}

__attribute__((noinline)) static void copy(uint64_t *to, const uint64_t *from, long n)
{
    for (long i = 0; i < n; i++)
        to[i] = from[i] * 3 + 1;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* its parent may be killed */
    signal(SIGTERM, end);
    long n = (argc > 2 ? atol(argv[2]) : 512) * 1024 / 2 / (long)sizeof(uint64_t);
    uint64_t *a = malloc((size_t)n * sizeof *a), *b = malloc((size_t)n * sizeof *b);
    if (n <= 0 || !a || !b)
        return 1;
    for (long i = 0; i < n; i++)
        a[i] = b[i] = (uint64_t)i;
    double until = atof(argv[1]) * 1e6, ran0, waited0, ran, waited;
    long each = n < 1 << 17 ? (1 << 17) / n : 1, copies = 0; /* between two looks */
    /* The first nap comes after a granularity that is not counted; begin behind it. */
    schedstat(&ran0, &waited0);
    do {
        for (long k = 0; k < each; k++)
            copy(k & 1 ? a : b, k & 1 ? b : a, n);
        schedstat(&ran, &waited);
    } while (ran - ran0 < 60e6);
    schedstat(&ran0, &waited0);
    double began = now();
    puts("ready");
    fflush(stdout);
    do {
        for (long k = 0; k < each; k++, copies++)
            copy(k & 1 ? a : b, k & 1 ? b : a, n);
        schedstat(&ran, &waited);
    } while (!stop && (until == 0 || ran - ran0 < until));
    double whole = now() - began;
    printf("%.5f %.6g %llu\n", (ran - ran0) / (whole - (waited - waited0)), (double)copies / (whole / 1e9), (unsigned long long)a[n / 2]);
    return 0;
}
