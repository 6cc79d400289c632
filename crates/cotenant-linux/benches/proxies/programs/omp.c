// Sums a matrix row by row, and counts its passes where only programs that map the file see it.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { N = 600 };

int main(void) {
    int fd = open("counter", O_RDWR);
    volatile unsigned long *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    double *a = malloc(sizeof(double) * N * N), *sum = calloc(N, sizeof(double));
    for (int i = 0; i < N * N; i++)
        a[i] = i % 97;
    for (;;) {
#pragma omp parallel for schedule(static)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                sum[i] = sum[i] * 0.5 + a[i * N + j] * a[j * N + i];
        ++*count;
    }
}
