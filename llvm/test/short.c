// A forked child naps for what it executes itself, and threads that are short as often as one that is not.
// Holds compile/naps.
// RUN: for level in 0 2; do env COTENANT_PASS="mode=naps granularity_ns=10000000 duration_ns=1000000" %clang -O$level %s -o %t && %t || exit 1; done
// RUN: env COTENANT_PASS="mode=naps" %clang -O2 -flto -fuse-ld=lld -Wl,--load-pass-plugin=%plugin %s -o %t && %t
//
// A library that is gone when the thread ends that executed its code.
// RUN: env COTENANT_PASS="mode=naps" %clang -O2 -fPIC -shared -DPART %s -o %t.so && env COTENANT_PASS="mode=naps" %clang -O2 -DREST %s -o %t -ldl && %t %t.so

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

uint64_t work(uint64_t n);

#ifndef REST
__attribute__((noinline)) uint64_t work(uint64_t n)
{
    uint64_t h = 7;
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ i) * 1099511628211ull;
    return h;
}
#endif

#ifndef PART
static atomic_int naps;

// In the place of libc's: counts naps, which end at once.
long syscall(long number, ...)
{
    if (number == SYS_gettid)
        return gettid();
    if (number == SYS_getpid)
        return getpid();
    if (number != SYS_clock_nanosleep)
        abort();
    naps++;
    return 0;
}

static double cpu(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

#ifdef REST
static void *in_library(void *path)
{
    void *library = dlopen(path, RTLD_NOW);
    uint64_t (*work)(uint64_t) = library ? (uint64_t(*)(uint64_t))dlsym(library, "work") : NULL;
    if (!work)
        abort();
    work(10000000);
    dlclose(library);
    return dlopen(path, RTLD_NOW | RTLD_NOLOAD);
}

int main(int count, char **words)
{
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *is_left;
        pthread_create(&thread, NULL, in_library, words[count - 1]);
        pthread_join(thread, &is_left);
        if (is_left)
            return 1;
    }
    return 0;
}
#else
static void *run(void *seconds)
{
    double begin = cpu(CLOCK_THREAD_CPUTIME_ID);
    while (cpu(CLOCK_THREAD_CPUTIME_ID) - begin < *(double *)seconds)
        work(20000);
    return NULL;
}

// Naps of so many threads, one after the other, per 10 ms of what they executed.
static double napping(int threads, double seconds)
{
    double begin = cpu(CLOCK_PROCESS_CPUTIME_ID);
    naps = 0;
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, &seconds);
        pthread_join(thread, NULL);
    }
    return naps / ((cpu(CLOCK_PROCESS_CPUTIME_ID) - begin) / 0.01);
}

int main(void)
{
    double one = napping(1, 0.3), many = napping(60, 0.005);
    double before = 0.05, in_child = 0.006;
    int in_children = 0;
    run(&before);
    for (int i = 0; i < 10; i++) {
        int status;
        if (fork() == 0) {
            naps = 0;
            run(&in_child);
            _exit(naps);
        }
        wait(&status);
        in_children += WEXITSTATUS(status);
    }
    printf("naps per 10 ms: %.2f of one thread, %.2f of threads of 5 ms; %d of children of 6 ms\n", one, many, in_children);
    return one > 0.5 && many > one * 0.7 && many < one * 1.4 && in_children == 0 ? 0 : 1;
}
#endif
#endif
