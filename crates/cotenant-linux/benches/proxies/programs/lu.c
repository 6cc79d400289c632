// Factorises a matrix again and again, each time with ever shorter loops; counts the elements that it has updated.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { N = 1200 };

int main(void) {
    int fd = open("counter", O_RDWR);
    volatile unsigned long *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    static double from[N][N], a[N][N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            from[i][j] = (i * 7 + j * 3) % 97 + (i == j) * N;
    for (;;) {
        memcpy(a, from, sizeof a);
        for (int k = 0; k < N - 1; k++) {
#pragma omp parallel for schedule(static)
            for (int i = k + 1; i < N; i++) {
                double l = a[i][k] /= a[k][k];
                for (int j = k + 1; j < N; j++)
                    a[i][j] -= l * a[k][j];
            }
            *count += (unsigned long)(N - 1 - k) * (N - 1 - k);
        }
    }
}
