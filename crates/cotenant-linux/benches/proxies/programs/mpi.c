// Computes, and exchanges with the other rank; rank 0 counts the steps.
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { N = 4096 };

int main(int argc, char **argv) {
    int rank, fd = open("counter", O_RDWR);
    volatile unsigned long *count = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    static double mine[N], all[N];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (;;) {
        for (int k = 0; k < 40; k++)
            for (int i = 0; i < N; i++)
                mine[i] = mine[i] * 0.999 + all[i] * 0.5 + i;
        MPI_Allreduce(mine, all, N, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            ++*count;
    }
}
