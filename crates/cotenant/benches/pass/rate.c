/* Works for so much CPU time and prints what share of the time it executed: time on a CPU / (time on a CPU + time asleep). Time in which it
 * wanted to run and others did is neither. `rate MILLISECONDS` */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

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

int main(int argc, char **argv)
{
    enum { N = 1 << 16 };
    static uint64_t a[N];
    if (argc != 2)
        return 2;
    uint64_t x = 1;
    double until = atof(argv[1]) * 1e6, began, ran0, waited0, ran, waited;
    /* The first nap comes after a granularity that nobody counts; begin behind it. */
    for (int k = 0; k < 2000; k++)
        for (int i = 0; i < N; i++)
            x = x * 5 + (a[i] ^= x);
    schedstat(&ran0, &waited0);
    began = now();
    do {
        for (int k = 0; k < 20; k++)
            for (int i = 0; i < N; i++)
                x = x * 5 + (a[i] ^= x);
        schedstat(&ran, &waited);
    } while (ran - ran0 < until);
    double whole = now() - began;
    printf("%.5f %llu\n", (ran - ran0) / (whole - (waited - waited0)), (unsigned long long)x);
    return 0;
}
