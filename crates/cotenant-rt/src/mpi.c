/* libcotenant-mpi: counts a program's calls of MPI, so that Cotenant sees how fast it goes. Loaded by LD_PRELOAD.
 *
 * The usual calls that move data or wait for it count. Those that only ask whether something has come (MPI_Test,
 * MPI_Iprobe, reads and flushes of one-sided communication) do not, for a program that waits makes more of them. The
 * call goes on to the next library that has it: MPI, or another tool. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Of libcotenant. */
extern uint64_t *cotenant_mpi_1(void);

/* All arguments of these calls are integers and pointers, at most 13 of them, so that forwarding as many words forwards
 * whatever the call really has: six or eight in registers, the others from where the caller put them. Implementations
 * differ in their types, so there is no header that would serve all. */
typedef long word;
#define PARAMETERS \
    word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l, word m
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l, m
typedef word call(PARAMETERS);

/* The nth library that is loaded. */
struct nth {
    int left;
    char name[4096];
};

static int look(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct nth *nth = argument;
    if (nth->left--) return 0;
    snprintf(nth->name, sizeof nth->name, "%s", info->dlpi_name);
    return 1;
}

/* In a library that the program loaded for itself, as Python's modules do: there is no next one then. */
static void *find_loaded(const char *name, void *ours) {
    for (int n = 0;; n++) {
        struct nth nth = {n, ""};
        if (!dl_iterate_phdr(look, &nth)) return NULL;
        /* Not while they are listed: the loader would take its locks in the wrong order. */
        void *library = *nth.name ? dlopen(nth.name, RTLD_LAZY | RTLD_NOLOAD) : NULL;
        void *found = library ? dlsym(library, name) : NULL;
        if (found && found != ours) return found; /* and stays */
        if (library) dlclose(library);
    }
}

static call *find(const char *name, call *ours) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) found = find_loaded(name, (void *)ours);
    if (!found) {
        fprintf(stderr, "libcotenant-mpi: no MPI library has %s; run without LD_PRELOAD=libcotenant-mpi.so.0\n", name);
        abort();
    }
    return (call *)found;
}

static void count(void) {
    static uint64_t *counter;
    uint64_t *mine = __atomic_load_n(&counter, __ATOMIC_RELAXED);
    if (!mine) __atomic_store_n(&counter, mine = cotenant_mpi_1(), __ATOMIC_RELAXED);
    __atomic_fetch_add(mine, 1, __ATOMIC_RELAXED);
}

/* Calls that a call makes are its own affair: MPICH's of Fortran go through those of C. */
static __thread int depth;

#define WRAP(name)                                                                        \
    word name(PARAMETERS) {                                                               \
        static call *next;                                                                \
        call *to = __atomic_load_n(&next, __ATOMIC_RELAXED);                              \
        if (!to) __atomic_store_n(&next, to = find(#name, name), __ATOMIC_RELAXED);       \
        if (!depth++) count();                                                            \
        word answer = to(ARGUMENTS);                                                      \
        depth--;                                                                          \
        return answer;                                                                    \
    }

/* For C, for Fortran and for its module mpi_f08. */
#define CALL(c, fortran) WRAP(MPI_##c) WRAP(mpi_##fortran##_) WRAP(mpi_##fortran##_f08_)

CALL(Send, send) CALL(Bsend, bsend) CALL(Ssend, ssend) CALL(Rsend, rsend) CALL(Recv, recv) CALL(Mrecv, mrecv)
CALL(Isend, isend) CALL(Ibsend, ibsend) CALL(Issend, issend) CALL(Irsend, irsend) CALL(Irecv, irecv)
CALL(Imrecv, imrecv) CALL(Sendrecv, sendrecv) CALL(Sendrecv_replace, sendrecv_replace) CALL(Start, start)
CALL(Startall, startall) CALL(Wait, wait) CALL(Waitall, waitall) CALL(Waitany, waitany) CALL(Waitsome, waitsome)
CALL(Barrier, barrier) CALL(Bcast, bcast) CALL(Reduce, reduce) CALL(Allreduce, allreduce) CALL(Scan, scan)
CALL(Exscan, exscan) CALL(Gather, gather) CALL(Gatherv, gatherv) CALL(Scatter, scatter) CALL(Scatterv, scatterv)
CALL(Allgather, allgather) CALL(Allgatherv, allgatherv) CALL(Alltoall, alltoall) CALL(Alltoallv, alltoallv)
CALL(Alltoallw, alltoallw) CALL(Reduce_scatter, reduce_scatter) CALL(Reduce_scatter_block, reduce_scatter_block)
CALL(Ibarrier, ibarrier) CALL(Ibcast, ibcast) CALL(Ireduce, ireduce) CALL(Iallreduce, iallreduce)
CALL(Iallgather, iallgather) CALL(Iallgatherv, iallgatherv) CALL(Ialltoall, ialltoall) CALL(Ialltoallv, ialltoallv)
CALL(Neighbor_allgather, neighbor_allgather) CALL(Neighbor_alltoall, neighbor_alltoall)
CALL(Neighbor_alltoallv, neighbor_alltoallv) CALL(Put, put) CALL(Win_fence, win_fence)
CALL(Win_complete, win_complete) CALL(Win_wait, win_wait)
