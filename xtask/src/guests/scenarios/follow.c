// How the kernel's NUMA balancing moves memory after threads: `follow NAME THREADS OWN SHARED MAPPINGS TO [SCANS]` runs
// threads with OWN MiB each for itself and SHARED MiB in common, all of it on node 0, in pages of 4 KiB that they touch
// at random. It is mapped "apart", each thread's memory and the shared, or as "one", which is another thing for the
// kernel's scan: a thread leaves out mappings that it does not access.
// The threads run on node 1 (TO is "other"), half of them on each node ("halves") or where the kernel puts them
// ("anywhere"): from their first touch on or, with SCANS, after so many scans of the process's memory on node 0.
// NAME is for the output: JSON, a line whenever something has changed, and one that sums up.
// All CPUs of a guest share one of the host's, so seconds say little: what counts is the pass, as many page table
// entries marked by the scan as the process has pages.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096UL
#define MOST_THREADS 16
#define LOOKED_AT 400 // pages of each kind
#define MOST_SAMPLES 4000
// So few faults and marks between two samples are none.
#define QUIET 20
// A situation is over when nothing has changed for so long, shorter where all memory has come; at the latest after so
// long.
#define STILL_PASSES 10
#define STILL_S 60
#define STILL_AT_THE_END_S 10
#define LONGEST_S 200

// The emulator runs one CPU after the other, each for up to 100 ms; at this instruction it goes on to the next at once.
#ifdef __x86_64__
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() __asm__ volatile("yield")
#endif

// What the process that is watched and its watcher share.
static volatile struct common {
	char *own[MOST_THREADS], *shared;
	pid_t tid[MOST_THREADS];
	unsigned node[MOST_THREADS];
	int ready, go;
} *common;
static long threads, own_mib, shared_mib, cpus;
static int apart;

static void must(int failed, const char *what)
{
	if (failed) {
		perror(what);
		exit(1);
	}
}

static double now(void)
{
	struct timespec at;
	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec + at.tv_nsec / 1e9;
}

static void wait_a_little(void)
{
	nanosleep(&(struct timespec){ .tv_nsec = 100000000 }, NULL);
}

// Puts a thread on these nodes' CPUs; each has half of them.
static void put(pid_t tid, int first, int last)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	for (long cpu = first * cpus / 2; cpu < (last + 1) * cpus / 2; cpu++)
		CPU_SET(cpu, &set);
	must(sched_setaffinity(tid, sizeof set, &set), "affinity");
}

// Takes memory from what is reserved. The kernel fills it at once: first touches would be work of the process's, and
// the scan would begin meanwhile.
static char *take(char **reserved, long mib)
{
	char *there = *reserved;
	// Neighbours with the same rights are one mapping.
	*reserved += (mib << 20) + (apart ? PAGE : 0);
	must(mprotect(there, mib << 20, PROT_READ | PROT_WRITE), "rights");
	must(madvise(there, mib << 20, MADV_NOHUGEPAGE), "small pages");
	must(madvise(there, mib << 20, MADV_POPULATE_WRITE), "memory");
	return there;
}

static void *touch(void *given)
{
	long me = (long)given;
	common->tid[me] = gettid();
	while (!common->go)
		wait_a_little();
	volatile char *own = common->own[me], *shared = common->shared;
	unsigned long own_pages = (own_mib << 20) / PAGE, shared_pages = (shared_mib << 20) / PAGE;
	unsigned long random = me * 7919 + 1;
	for (;;) {
		for (int i = 0; i < 256; i++) {
			random = random * 6364136223846793005 + 1442695040888963407;
			unsigned long page = random >> 33, byte = random >> 20 & (PAGE - 1);
			if (own_pages)
				own[page % own_pages * PAGE + byte]++;
			if (shared_pages)
				(void)shared[(page >> 3) % shared_pages * PAGE + byte];
		}
		unsigned node;
		getcpu(NULL, &node);
		common->node[me] = node;
		RELAX();
	}
	return NULL; // not reached; the compiler asks for it
}

static void work(void)
{
	put(0, 0, 0);
	pthread_t thread;
	size_t most = ((threads * own_mib + shared_mib) << 20) + (threads + 1) * PAGE;
	char *reserved = mmap(NULL, most, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	must(reserved == MAP_FAILED, "mmap");
	if (shared_mib)
		common->shared = take(&reserved, shared_mib);
	for (long i = 0; i < threads; i++) {
		common->own[i] = own_mib ? take(&reserved, own_mib) : NULL;
		must(pthread_create(&thread, NULL, touch, (void *)i), "thread");
	}
	common->ready = 1;
	pthread_join(thread, NULL);
}

// The number behind a word at the beginning of a line, and behind a colon if there is one; -1 without such a line.
static double number(const char *text, const char *word)
{
	size_t length = strlen(word);
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
		if (!strncmp(line, word, length) && line[length] == ' ')
			return atof(line + length + strspn(line + length, " :"));
	return -1;
}

static void balance(int on)
{
	FILE *file = fopen("/proc/sys/kernel/numa_balancing", "w");
	must(!file || fprintf(file, "%d\n", on) < 0 || fclose(file), "balancing");
}

static const char *file(const char *path)
{
	static char text[32768];
	FILE *file = fopen(path, "r");
	must(!file, path);
	text[fread(text, 1, sizeof text - 1, file)] = 0;
	fclose(file);
	return text;
}

// What the scheduler says of a thread.
static const char *scheduler(pid_t pid, pid_t tid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%d/sched", pid, tid);
	return file(path);
}

// How many percent of some pages of a mapping are on node 1.
static double there(pid_t pid, char *mapping, long mib, long looked_at)
{
	void *pages[LOOKED_AT];
	int status[LOOKED_AT], here = 0;
	long all = (mib << 20) / PAGE;
	for (long i = 0; i < looked_at; i++)
		pages[i] = mapping + i * all / looked_at * PAGE;
	must(syscall(SYS_move_pages, pid, looked_at, pages, NULL, status, 0) < 0, "move_pages");
	for (long i = 0; i < looked_at; i++)
		here += status[i] == 1;
	return 100.0 * here / looked_at;
}

// Since the threads were put where they are. The counters are the whole system's, of which the process is all but
// everything; `scans`, the CPU time and the preferred node are what the first thread says.
static struct sample {
	double s, pass, own, shared, updates, faults, migrated, scans, ran_s, preferred;
	char nodes[MOST_THREADS + 1];
} samples[MOST_SAMPLES], start;
static double resident;

static struct sample look(pid_t pid)
{
	struct sample to = { .s = now() - start.s };
	const char *text = file("/proc/vmstat");
	to.updates = number(text, "numa_pte_updates") - start.updates;
	to.faults = number(text, "numa_hint_faults") - start.faults;
	to.migrated = number(text, "numa_pages_migrated") - start.migrated;
	to.pass = resident ? to.updates / resident : 0;
	text = scheduler(pid, common->tid[0]);
	to.scans = number(text, "mm->numa_scan_seq") - start.scans;
	to.ran_s = number(text, "se.sum_exec_runtime") / 1e3 - start.ran_s;
	to.preferred = number(text, "numa_preferred_nid");
	for (long i = 0; own_mib && i < threads; i++)
		to.own += there(pid, common->own[i], own_mib, LOOKED_AT / threads) / threads;
	if (shared_mib)
		to.shared = there(pid, common->shared, shared_mib, LOOKED_AT);
	for (long i = 0; i < threads; i++)
		to.nodes[i] = '0' + common->node[i];
	return to;
}

static void tell(const char *name, const struct sample *at)
{
	printf("{\"situation\":\"%s\",\"s\":%.1f,\"pass\":%.2f,\"scans\":%.0f,\"own\":%.1f,\"shared\":%.1f,", name, at->s,
	       at->pass, at->scans, at->own, at->shared);
	printf("\"nodes\":\"%s\",\"updates\":%.0f,\"faults\":%.0f,\"migrated\":%.0f,", at->nodes, at->updates, at->faults,
	       at->migrated);
	printf("\"ran_s\":%.1f,\"preferred\":%.0f}\n", at->ran_s, at->preferred);
	fflush(stdout);
}

// The first sample in which so much of the last share is there.
static const struct sample *arrived(int n, int shared, double part)
{
	const struct sample *at = samples, *last = &samples[n - 1];
	while (shared ? at->shared < part * last->shared : at->own < part * last->own)
		at++;
	return at;
}

static void sum_up(pid_t pid, const char *name, int n)
{
	const struct sample *last = &samples[n - 1];
	struct utsname kernel;
	must(uname(&kernel), "uname");
	// What the kernel has found out: the node that it prefers for each thread, and how many threads it saw sharing.
	char preferred[MOST_THREADS + 1] = "";
	int sharing = 0;
	for (long i = 0; i < threads; i++) {
		const char *text = scheduler(pid, common->tid[i]), *group = strstr(text, "numa_group_id=");
		double node = number(text, "numa_preferred_nid");
		preferred[i] = node < 0 ? '-' : '0' + node;
		sharing += group && atol(strchr(group, '=') + 1);
	}
	printf("{\"sum\":\"%s\",\"kernel\":\"%s\",\"threads\":%ld,\"own_mib\":%ld,\"shared_mib\":%ld,", name,
	       kernel.release, threads, own_mib, shared_mib);
	printf("\"mappings\":\"%s\",\"resident_mib\":%.0f,\"nodes\":\"%s\",\"preferred\":\"%s\",\"sharing\":%d,",
	       apart ? "apart" : "one", resident * PAGE / (1 << 20), last->nodes, preferred, sharing);
	for (int shared = 0; shared < 2; shared++) {
		if (!(shared ? shared_mib : own_mib))
			continue;
		const struct sample *half = arrived(n, shared, 0.5), *most = arrived(n, shared, 0.95);
		printf("\"%s\":{\"share\":%.1f,", shared ? "shared" : "own", shared ? last->shared : last->own);
		printf("\"half_pass\":%.2f,\"half_scans\":%.0f,\"half_s\":%.1f,", half->pass, half->scans, half->s);
		printf("\"most_pass\":%.2f,\"most_scans\":%.0f,\"most_s\":%.1f},", most->pass, most->scans, most->s);
	}
	printf("\"passes\":%.2f,\"scans\":%.0f,\"s\":%.1f,\"ran_s\":%.1f,", last->pass, last->scans, last->s, last->ran_s);
	printf("\"updates\":%.0f,\"faults\":%.0f,\"migrated\":%.0f}\n", last->updates, last->faults, last->migrated);
	fflush(stdout);
}

static int differ(const struct sample *a, const struct sample *b, double percent)
{
	double own = a->own - b->own, shared = a->shared - b->shared;
	return own > percent || own < -percent || shared > percent || shared < -percent || strcmp(a->nodes, b->nodes);
}

static int over(const struct sample *last, const struct sample *moved)
{
	int all = (!own_mib || last->own > 99.9) && (!shared_mib || last->shared > 99.9);
	return last->s >= LONGEST_S || last->pass >= moved->pass + STILL_PASSES ||
	       last->s >= moved->s + (all ? STILL_AT_THE_END_S : STILL_S);
}

int main(int argc, char **argv)
{
	if (argc < 7) {
		fprintf(stderr, "usage: follow NAME THREADS OWN SHARED MAPPINGS TO [SCANS]\n");
		return 2;
	}
	const char *name = argv[1], *to = argv[6];
	threads = atol(argv[2]), own_mib = atol(argv[3]), shared_mib = atol(argv[4]);
	apart = !strcmp(argv[5], "apart");
	double before = argc > 7 ? atof(argv[7]) : 0;
	cpus = sysconf(_SC_NPROCESSORS_ONLN);
	common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(common == MAP_FAILED || threads > MOST_THREADS, "common");
	balance(0); // while memory is filled
	pid_t pid = fork();
	must(pid < 0, "fork");
	if (!pid)
		work();
	int gone = 0;
	while (!common->ready && !(gone = waitpid(pid, NULL, WNOHANG)))
		wait_a_little();
	must(gone, "the process that is watched");

	start.s = now();
	struct sample at = look(pid), moved = { 0 };
	tell(name, &at);
	balance(1);
	common->go = before > 0;
	// What the scan has marked on node 0 must have been touched there: an emulated CPU takes seconds for that.
	struct sample last = at;
	do {
		last = at;
		wait_a_little();
		at = look(pid);
	} while (before && at.s < LONGEST_S &&
		 (at.scans < before || at.faults > last.faults + QUIET || at.updates > last.updates + QUIET));
	int other = !strcmp(to, "other"), halves = !strcmp(to, "halves");
	for (long i = 0; i < threads; i++)
		put(common->tid[i], other || (halves && i % 2), !halves || i % 2);
	common->go = 1;
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/statm", pid);
	resident = atof(strchr(file(path), ' '));
	start = look(pid);
	start.s = now();

	int n = 0;
	do {
		wait_a_little();
		samples[n] = look(pid);
		if (!n || differ(&samples[n], &at, 2) || samples[n].pass >= at.pass + 0.25) {
			at = samples[n];
			tell(name, &at);
		}
		if (!n || differ(&samples[n], &moved, 1))
			moved = samples[n];
	} while (!over(&samples[n], &moved) && ++n < MOST_SAMPLES);
	sum_up(pid, name, n < MOST_SAMPLES ? n + 1 : n);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	return 0;
}
