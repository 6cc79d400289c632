// Programs do the same with every mode at every level, alone and when the linker optimises, and keep their line numbers.
// Promise compile/same: Programs print the same with every mode of the pass at every level of optimisation, with LTO
// and in shared libraries.
// RUN: clang -O2 %s -o %t.plain && %t.plain > %t.expected
// RUN: for mode in markers naps "padding coverage=0"; do for level in 0 1 2 3 s z; do \
// RUN:   env COTENANT_PASS="mode=$mode" %clang -O$level -g %s -o %t && %t | cmp - %t.expected && ! llvm-dwarfdump --verify %t | grep error: || exit 1; \
// RUN: done; done
// RUN: for mode in markers naps padding; do for lto in full thin; do \
// RUN:   env COTENANT_PASS="mode=$mode" %clang -O2 -flto=$lto -fuse-ld=lld -Wl,--load-pass-plugin=%plugin %s -o %t && %t | cmp - %t.expected || exit 1; \
// RUN:   llvm-objdump -d --no-show-raw-insn %t | FileCheck %s --check-prefix=$mode || exit 1; \
// RUN: done; done
// RUN: env COTENANT_PASS="mode=markers" %clang -O2 -fPIC -shared -DPART %s -o %t.so && env COTENANT_PASS="mode=markers" %clang -O1 -DREST %s %t.so -o %t -Wl,-rpath,%T && %t | cmp - %t.expected
// RUN: env COTENANT_PASS="mode=markers" %clang -O3 -S -emit-llvm -g %s -o - | FileCheck %s --check-prefix=VECTOR
//
// markers: call{{.*}}__cotenant_marked
// naps: call{{.*}}__cotenant_nap
// padding: nop
//
// A vectorised loop stays one, with no mark in it.
// VECTOR-LABEL: define {{.*}} @scale(
// VECTOR: load <2 x double>
// VECTOR-NOT: threadlocal.address
// VECTOR: br i1 {{.*}}!llvm.loop
// VECTOR: threadlocal.address

#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

void scale(double *restrict a, const double *restrict b, long n);
uint64_t bytes(const unsigned char *text);
uint64_t every_kind_of_loop(long n);

#ifndef REST
__attribute__((noinline)) void scale(double *restrict a, const double *restrict b, long n)
{
    for (long i = 0; i < n; i++)
        a[i] = b[i] * 3;
}

__attribute__((noinline)) uint64_t bytes(const unsigned char *text)
{
    uint64_t sum = 0;
    while (*text)
        sum = sum * 31 + *text++;
    return sum;
}

static _Thread_local jmp_buf back;

// Up and down, by other steps, small types that wrap, bounds that are met at once, early ends, labels, switches, setjmp.
__attribute__((noinline)) uint64_t every_kind_of_loop(long n)
{
    uint64_t sum = 1;
    for (long i = n; i > 0; i -= 3)
        sum = sum * 7 + (uint64_t)i;
    for (long i = n; i-- != 0;)
        sum ^= sum << 5 ^ (uint64_t)i;
    for (unsigned char c = 1; c != 0; c++)
        sum += c * sum;
    for (unsigned short s = 40000; s >= 40000; s++)
        sum = sum * 3 + s;
    for (unsigned i = 0x7fffff00u; i < 0x7fffff00u + (unsigned)n; i++)
        sum = sum * 5 + i;
    for (int i = -5000; i <= (int)n; i += 7)
        sum = sum * 9 + (unsigned)i;
    long at = 5;
    do
        sum = sum * 11 + (uint64_t)at;
    while (++at < n - 2 * n);
    for (long i = 0; i < n; i++) {
        if (sum % 65521 == 17)
            break;
        switch (sum % 5) {
        case 0: continue;
        case 1: sum += 3; break;
        default: sum = sum * 13 + 1;
        }
    }
    volatile long times = 0;
    volatile uint64_t kept = sum; // what changes between setjmp and longjmp must be volatile
    for (volatile long i = 0; i < 10; i++) {
        if (setjmp(back) == 0)
            for (long j = 0; j < n; j++) {
                kept += (uint64_t)(i * j);
                if (j == n / 2 && times++ < 5)
                    longjmp(back, 1);
            }
    }
    return kept + (uint64_t)times;
}
#endif

#ifndef PART
static int itself(int n) { return n < 2 ? n : itself(n - 1) + itself(n - 2); }

static void *thread(void *sum)
{
    *(uint64_t *)sum = every_kind_of_loop(200000);
    return NULL;
}

int main(void)
{
    enum { N = 300000 };
    double *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b), all = 0;
    unsigned char *text = malloc(N + 1);
    for (long i = 0; i < N; i++)
        b[i] = (double)i / 8, text[i] = (unsigned char)(i % 255 + 1);
    text[N] = 0;
    for (long n = 0; n < N; n = n * 2 + 1) {
        scale(a, b, n);
        all += a[n / 2];
    }
    uint64_t sums[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, thread, &sums[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("%.17g %llu %llu %llu %d\n", all, (unsigned long long)bytes(text), (unsigned long long)sums[0],
           (unsigned long long)(sums[1] ^ sums[2] ^ sums[3]), itself(22));
    for (long n = 0; n < 40; n++)
        printf("%llu\n", (unsigned long long)every_kind_of_loop(n));
    return 0;
}
#endif
