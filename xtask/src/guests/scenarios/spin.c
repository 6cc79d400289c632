// Threads that run: `spin CPU...` starts one thread per argument. Each begins on its CPU and then opens its mask to all CPUs that the
// process may use, so that where it is afterwards is up to the kernel and to policies. Runs until it is killed.
// Each works for 1 ms and sleeps for 9: a guest's CPUs share one of the host's, and a thread that spins takes its time from the others.
// With SPIN_BUSY in the environment they do not sleep, and the kernel leaves one alone on its socket where it is.
// With SPIN_MEMORY=CPU the program has 16 MiB that were written on that CPU, so on its node; with SPIN_NODE=NODE on that node, which needs no CPU.
// With SPIN_BOUND besides they are bound to it; with SPIN_MIB=N they are so many. With SPIN_TOUCH=NODE there are 4 MiB more on that node, and they alone
// are touched. With SPIN_OWN=DIGITS each thread touches 4 MiB of its own instead, on the node that its digit names: bound to it, and scanned by the
// kernel's balancing all the same. With SPIN_MAPPINGS=N it has so many mappings more.
// With SPIN_TELL=FILE the program says how fast it is, ten times a second: as many units as threads stand on one node. An emulator has no caches, so a
// program that would be faster there is played.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// The emulator runs one CPU after the other, each for up to 100 ms; at this instruction it goes on to the next at once.
#ifdef __x86_64__
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() __asm__ volatile("yield")
#endif

static cpu_set_t all;
struct work {
	long cpu;
	volatile char *touched;
	volatile unsigned node;
};
#define TOUCHED (4 << 20)

static void must(int failed)
{
	if (failed) {
		perror("spin: affinity or memory policy");
		exit(1);
	}
}

static void bind(long cpu)
{
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	must(sched_setaffinity(0, sizeof one, &one));
}

// What is written next comes from that node; -1: as usual.
static void from_node(long node)
{
	unsigned long mask = node < 0 ? 0 : 1UL << node;
	must(syscall(SYS_set_mempolicy, node < 0 ? 0 : 2, node < 0 ? NULL : &mask, node < 0 ? 0UL : 64UL));
}

static long number(const char *name, long otherwise)
{
	return getenv(name) ? atol(getenv(name)) : otherwise;
}

static char *reserve(size_t bytes)
{
	void *there = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(there == MAP_FAILED);
	return there;
}

// A mapping of its own: neighbours with the same rights would be one.
static char *map(size_t bytes)
{
	char *there = reserve(bytes + 4096);
	must(mprotect(there, bytes, PROT_READ | PROT_WRITE));
	return there;
}

static void *spin(void *given)
{
	struct work work = *(struct work *)given;
	volatile unsigned *node = &((struct work *)given)->node;
	bind(work.cpu);
	must(sched_setaffinity(0, sizeof all, &all));
	for (;;) {
		struct timespec start, now, pause = { .tv_nsec = 9000000 };
		clock_gettime(CLOCK_MONOTONIC, &start);
		do {
			RELAX();
			clock_gettime(CLOCK_MONOTONIC, &now);
		} while ((now.tv_sec - start.tv_sec) * 1000000000L + now.tv_nsec - start.tv_nsec < 1000000);
		for (long at = 0; work.touched && at < TOUCHED; at += 4096)
			work.touched[at]++;
		unsigned cpu, on;
		must(getcpu(&cpu, &on));
		*node = on;
		if (!getenv("SPIN_BUSY"))
			nanosleep(&pause, NULL);
	}
	return NULL; // not reached; the compiler asks for it
}

// Says again and again how many threads stand on the node that has most of them.
static void tell(const char *path, const struct work *works, int n)
{
	FILE *file = fopen(path, "a");
	must(!file);
	for (;;) {
		struct timespec pause = { .tv_nsec = 100000000 };
		int most = 0, on[64] = { 0 };
		for (int i = 0; i < n; i++) {
			int here = ++on[works[i].node % 64];
			most = here > most ? here : most;
		}
		fprintf(file, "%d\n", most);
		fflush(file);
		nanosleep(&pause, NULL);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;
	if (argc < 2 || sched_getaffinity(0, sizeof all, &all)) {
		fprintf(stderr, "usage: spin CPU...\n");
		return 2;
	}
	const char *own = getenv("SPIN_OWN");
	struct work *works = calloc(argc, sizeof *works);
	must(!works);
	size_t bytes = (size_t)number("SPIN_MIB", 16) << 20;
	if (getenv("SPIN_MEMORY")) {
		bind(number("SPIN_MEMORY", 0));
		memset(map(bytes), 1, bytes);
		must(sched_setaffinity(0, sizeof all, &all));
	}
	if (getenv("SPIN_NODE")) {
		unsigned long mask = 1UL << number("SPIN_NODE", 0);
		char *memory = map(bytes);
		if (getenv("SPIN_BOUND"))
			must(syscall(SYS_mbind, memory, bytes, 2, &mask, 64UL, 0));
		from_node(number("SPIN_NODE", 0));
		memset(memory, 1, bytes);
		from_node(-1);
	}
	if (getenv("SPIN_TOUCH")) {
		char *there = map(TOUCHED);
		from_node(number("SPIN_TOUCH", 0));
		memset(there, 1, TOUCHED);
		from_node(-1);
		for (int i = 1; i < argc; i++)
			works[i].touched = there;
	}
	for (int i = 1; own && i < argc && own[i - 1]; i++) {
		unsigned long mask = 1UL << (own[i - 1] - '0');
		char *there = map(TOUCHED);
		// MPOL_BIND | MPOL_F_NUMA_BALANCING: pages stay, and faults are counted.
		must(syscall(SYS_mbind, there, TOUCHED, 2 | 1 << 13, &mask, 64UL, 0));
		memset(there, 1, TOUCHED);
		works[i].touched = there;
	}
	if (getenv("SPIN_MAPPINGS")) {
		// Neighbours with other rights are mappings of their own.
		long n = number("SPIN_MAPPINGS", 0);
		char *there = reserve(n * 4096);
		for (long i = 0; i < n; i += 2)
			must(mprotect(there + i * 4096, 4096, PROT_READ));
	}
	for (int i = 1; i < argc; i++) {
		works[i].cpu = atol(argv[i]);
		if (pthread_create(&thread, NULL, spin, &works[i])) {
			fprintf(stderr, "spin: cannot start thread %d\n", i);
			return 1;
		}
	}
	if (getenv("SPIN_TELL"))
		tell(getenv("SPIN_TELL"), works + 1, argc - 1);
	pthread_join(thread, NULL);
	return 0;
}
