// Sorts an array by halves, each a task; counts the sorted arrays.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { N = 1 << 20, SMALL = 1 << 12 };

static int compare(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static void sort(int *a, int *room, int n) {
    if (n <= SMALL) {
        qsort(a, n, sizeof *a, compare);
        return;
    }
#pragma omp task
    sort(a, room, n / 2);
#pragma omp task
    sort(a + n / 2, room + n / 2, n - n / 2);
#pragma omp taskwait
    for (int i = 0, j = n / 2, k = 0; k < n; k++)
        room[k] = j >= n || (i < n / 2 && a[i] <= a[j]) ? a[i++] : a[j++];
    memcpy(a, room, n * sizeof *a);
}

int main(void) {
    int fd = open("counter", O_RDWR);
    volatile unsigned long *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    static int a[N], room[N];
    for (unsigned x = 1;;) {
        for (int i = 0; i < N; i++)
            a[i] = x = x * 1664525 + 1013904223;
#pragma omp parallel
#pragma omp single
        sort(a, room, N);
        ++*count;
    }
}
