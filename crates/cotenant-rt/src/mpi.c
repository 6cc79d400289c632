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

/* Of libcotenant. */
extern void cotenant_mpi_0(void);
extern uint64_t *cotenant_mpi_1(void);

/* Before the program can have a seccomp filter. */
__attribute__((constructor)) static void at_load(void) { cotenant_mpi_0(); }

/* All arguments of these calls are integers and pointers, at most 13 of them, so that forwarding as many words forwards
 * whatever the call really has: six or eight in registers, the others from where the caller put them. Implementations
 * differ in their types, so there is no header that would serve all. */
typedef long word;
#define PARAMETERS \
    word a, word b, word c, word d, word e, word f, word g, word h, word i, word j, word k, word l, word m
#define ARGUMENTS a, b, c, d, e, f, g, h, i, j, k, l, m
typedef word call(PARAMETERS);

/* The libraries of MPI that were found: where each begins and ends. Calls that they make are their own affair: MPICH's
 * of Fortran go through those of C. Recognised by the caller, and not by calls that have not returned: an error
 * handler may jump out of a call, and an exception leave it. */
enum { LIBRARIES = 8 };
static struct library {
    uintptr_t begin, end;
} libraries[LIBRARIES];
static unsigned found_libraries;

static int is_of_mpi(uintptr_t code) {
    unsigned n = __atomic_load_n(&found_libraries, __ATOMIC_ACQUIRE);
    for (unsigned i = 0; i < n && i < LIBRARIES; i++)
        if (code - libraries[i].begin < libraries[i].end - libraries[i].begin) return 1;
    return 0;
}

/* The library that holds an address: begin is the address at first. */
static int hold(struct dl_phdr_info *info, size_t size, void *argument) {
    (void)size;
    struct library *of = argument;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int n = 0; n < info->dlpi_phnum; n++) {
        if (info->dlpi_phdr[n].p_type != PT_LOAD) continue;
        uintptr_t at = info->dlpi_addr + info->dlpi_phdr[n].p_vaddr;
        if (at < begin) begin = at;
        if (at + info->dlpi_phdr[n].p_memsz > end) end = at + info->dlpi_phdr[n].p_memsz;
    }
    if (of->begin < begin || of->begin >= end) return 0;
    *of = (struct library){begin, end};
    return 1;
}

static void remember(uintptr_t code) {
    static char busy;
    struct library of = {code, 0};
    if (is_of_mpi(code) || !dl_iterate_phdr(hold, &of)) return;
    /* A thread that comes meanwhile leaves it to its next call. */
    if (__atomic_test_and_set(&busy, __ATOMIC_ACQUIRE)) return;
    unsigned n = found_libraries;
    if (n < LIBRARIES && !is_of_mpi(code)) {
        libraries[n] = of;
        __atomic_store_n(&found_libraries, n + 1, __ATOMIC_RELEASE);
    }
    __atomic_clear(&busy, __ATOMIC_RELEASE);
}

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

/* A program may ask whether there is a call (a weak symbol), and finds ours where MPI has none, or is not there at all.
 * Then those that only wait have nothing to wait for. The others have failed, as MPI says that of itself: nothing was
 * moved. */
static word nothing(PARAMETERS) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h, (void)i, (void)j, (void)k, (void)l, (void)m;
    return 0;
}
static word failed(PARAMETERS) {
    enum { MPI_ERR_OTHER = 15 }; /* MPICH's; no implementation has another meaning for it that is no error */
    return nothing(ARGUMENTS) + MPI_ERR_OTHER;
}

static call *find(const char *name, call *ours, call *otherwise) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found)
        remember((uintptr_t)found);
    else
        found = find_loaded(name, (void *)ours);
    return found ? (call *)found : otherwise;
}

#define WRAP_OR(name, otherwise)                                                                   \
    word name(PARAMETERS) {                                                                        \
        static call *next;                                                                         \
        call *to = __atomic_load_n(&next, __ATOMIC_RELAXED);                                       \
        if (!to) {                                                                                 \
            to = find(#name, name, otherwise);                                                     \
            /* Where there is none yet, there may be one later. */                                 \
            if (to != otherwise) __atomic_store_n(&next, to, __ATOMIC_RELAXED);                    \
        }                                                                                          \
        if (to != otherwise && !is_of_mpi((uintptr_t)__builtin_return_address(0)))                 \
            __atomic_fetch_add(cotenant_mpi_1(), 1, __ATOMIC_RELAXED);                             \
        return to(ARGUMENTS);                                                                      \
    }

/* For C, for Fortran and for its module mpi_f08. */
#define CALL_OR(c, fortran, otherwise) \
    WRAP_OR(MPI_##c, otherwise) WRAP_OR(mpi_##fortran##_, otherwise) WRAP_OR(mpi_##fortran##_f08_, otherwise)
#define CALL(c, fortran) CALL_OR(c, fortran, failed)
#define WAIT(c, fortran) CALL_OR(c, fortran, nothing)

CALL(Send, send) CALL(Bsend, bsend) CALL(Ssend, ssend) CALL(Rsend, rsend) CALL(Recv, recv) CALL(Mrecv, mrecv)
CALL(Isend, isend) CALL(Ibsend, ibsend) CALL(Issend, issend) CALL(Irsend, irsend) CALL(Irecv, irecv)
CALL(Imrecv, imrecv) CALL(Sendrecv, sendrecv) CALL(Sendrecv_replace, sendrecv_replace) CALL(Start, start)
CALL(Startall, startall) WAIT(Wait, wait) WAIT(Waitall, waitall) CALL(Waitany, waitany) CALL(Waitsome, waitsome)
WAIT(Barrier, barrier) CALL(Bcast, bcast) CALL(Reduce, reduce) CALL(Allreduce, allreduce) CALL(Scan, scan)
CALL(Exscan, exscan) CALL(Gather, gather) CALL(Gatherv, gatherv) CALL(Scatter, scatter) CALL(Scatterv, scatterv)
CALL(Allgather, allgather) CALL(Allgatherv, allgatherv) CALL(Alltoall, alltoall) CALL(Alltoallv, alltoallv)
CALL(Alltoallw, alltoallw) CALL(Reduce_scatter, reduce_scatter) CALL(Reduce_scatter_block, reduce_scatter_block)
CALL(Ibarrier, ibarrier) CALL(Ibcast, ibcast) CALL(Ireduce, ireduce) CALL(Iallreduce, iallreduce)
CALL(Iallgather, iallgather) CALL(Iallgatherv, iallgatherv) CALL(Ialltoall, ialltoall) CALL(Ialltoallv, ialltoallv)
CALL(Neighbor_allgather, neighbor_allgather) CALL(Neighbor_alltoall, neighbor_alltoall)
CALL(Neighbor_alltoallv, neighbor_alltoallv) CALL(Put, put) WAIT(Win_fence, win_fence)
WAIT(Win_complete, win_complete) WAIT(Win_wait, win_wait)
