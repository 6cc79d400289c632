// What the threads of applications wait for, and behind which others, seen by the scheduler's tracepoints.
//
// `tp_btf` alone: fentry and lsm are refused on some machines, and arm64 has them late. No vmlinux.h: the structures
// below name the fields that are read; where each lies is found when the object is loaded (CO-RE).

enum { SUB_BITS = 3 };
#include "common.bpf.h"

struct kernfs_node {
    u64 id;
} KERNEL;
struct cgroup {
    struct kernfs_node *kn;
} KERNEL;
struct css_set {
    struct cgroup *dfl_cgrp;
} KERNEL;
struct rq {
    u64 prev_steal_time_rq;
} KERNEL;
struct cfs_rq;
struct task_group {
    struct cfs_rq **cfs_rq;
} KERNEL;
struct cfs_rq {
    struct rq *rq;
    struct task_group *tg;
    u64 throttled_clock_self_time;
    u64 throttled_clock_pelt_time;
} KERNEL;
struct sched_entity {
    struct cfs_rq *cfs_rq;
} KERNEL;
struct thread_info {
    u32 cpu;
} KERNEL;
struct task_struct {
    struct thread_info thread_info;
    unsigned int __state;
    unsigned int flags;
    struct sched_entity se;
    int pid, tgid;
    struct task_struct *group_leader;
    char comm[16];
    struct css_set *cgroups;
} KERNEL;
struct bpf_iter_meta;
struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
} KERNEL;

enum { PF_KTHREAD = 0x00200000 };

// What is read of maps; `object.rs` has the same in Rust.

// Applications at a time.
enum { APPS = 256 };
// Segments of the past that are kept for each CPU. Where a CPU switches 1,000 times in a wait of 0.7 s, as beside a
// dozen busy programs, 512 lost half of the blame.
enum { SEGMENTS = 2048 };

enum cause {
    C_APP,         // an application: `id` is its slot
    C_PROGRAM,     // another program: `id` is its control group, `comm` the name of its process
    C_KERNEL,      // a thread of the kernel
    C_WAKING,      // the CPU was idle
    C_HYPERVISOR,  // the host had taken the CPU away
    C_QUOTA,       // its own quota of CPU time was used up
    C_UNKNOWN,     // longer ago than what is kept, or more causes than the table holds
};

// Of an application.
struct waits {
    u64 ns, count;
    u64 buckets[BUCKETS];
};

// Which wait is laid on what.
struct blame_key {
    u32 victim, cause;
    u64 id;
    char comm[16];
};

// ---- State

// Of a thread of an application, as long as it lives.
struct thread {
    u32 app;
    u32 pad;
    u64 ready;      // since when it has been ready to run, 0: it is not
    u64 since;      // since when on that CPU
    u64 throttled;  // its group's throttled time there at that moment
};
struct {
    __uint(type, BPF_MAP_TYPE_TASK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct thread);
} threads SEC(".maps");

// Process → slot of the application that it is part of.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 65536);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, u32);
    __type(value, u32);
} processes SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, APPS);
    __type(key, u32);
    __type(value, struct waits);
} waits SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, 16384);
    __type(key, struct blame_key);
    __type(value, u64);
} blamed SEC(".maps");

// What had a CPU from `from` until the next segment.
struct segment {
    u64 from, steal, id;
    u32 cause, pad;
    char comm[16];
};
struct past {
    u32 head, pad;
    struct segment segments[SEGMENTS];
};
// One for each CPU; the number is set when it is loaded.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct past);
} pasts SEC(".maps");

// ---- Blame

static __attribute__((noinline)) void add_blame(struct blame_key *key, u64 ns) {
    u64 none = 0;
    if (!key) return;
    u64 *known = bpf_map_lookup_elem(&blamed, key);
    if (!known) {
        struct blame_key unknown = {.victim = key->victim, .cause = C_UNKNOWN};
        if (bpf_map_update_elem(&blamed, key, &none, BPF_NOEXIST) == 0) known = bpf_map_lookup_elem(&blamed, key);
        if (!known) known = bpf_map_lookup_elem(&blamed, &unknown);
    }
    if (known) __sync_fetch_and_add(known, ns);
}

INLINE void blame_cause(u32 victim, u32 cause, u64 ns) {
    struct blame_key key = {.victim = victim, .cause = cause};
    add_blame(&key, ns);
}

// A walk over a CPU's past, from now backwards.
struct walk {
    struct past *past;
    u64 from, until, steal;
    u32 victim, head;
};

static long step(u32 i, struct walk *w) {
    struct segment *s = &w->past->segments[(w->head - 1 - i) & (SEGMENTS - 1)];
    u64 from = s->from > w->from ? s->from : w->from;
    if (w->until > from) {
        struct blame_key key = {.victim = w->victim, .cause = s->cause, .id = s->id};
        __builtin_memcpy(key.comm, s->comm, sizeof key.comm);
        u64 ns = w->until - from;
        // What the host took in this segment, its program did not have.
        u64 stolen = w->steal > s->steal && s->steal ? w->steal - s->steal : 0;
        if (s->from < w->from) stolen = 0;
        if (stolen > ns) stolen = ns;
        if (stolen) blame_cause(w->victim, C_HYPERVISOR, stolen);
        if (ns > stolen) add_blame(&key, ns - stolen);
        w->until = from;
    }
    w->steal = s->steal;
    return s->from <= w->from;
}

// Lays a wait from `from` to `until` on that CPU on the programs that ran there meanwhile. `steal`: what the host had
// taken until then, 0: not known.
INLINE void lay(u32 victim, u32 cpu, u64 from, u64 until, u64 steal) {
    struct walk w = {.past = bpf_map_lookup_elem(&pasts, &cpu), .from = from, .until = until, .steal = steal,
                     .victim = victim};
    if (!w.past) return;
    w.head = w.past->head;
    bpf_loop(SEGMENTS, step, &w, 0);
    if (w.until > from) blame_cause(victim, C_UNKNOWN, w.until - from);
}

// ---- Waits

INLINE u64 throttled_in(struct cfs_rq *queue) {
    if (bpf_core_field_exists(queue->throttled_clock_self_time)) return BPF_CORE_READ(queue, throttled_clock_self_time);
    if (bpf_core_field_exists(queue->throttled_clock_pelt_time)) return BPF_CORE_READ(queue, throttled_clock_pelt_time);
    return 0;
}

INLINE u64 throttled(struct task_struct *task) { return throttled_in(BPF_CORE_READ(task, se.cfs_rq)); }

INLINE u64 steal_of(struct task_struct *task) {
    struct rq *queue = BPF_CORE_READ(task, se.cfs_rq, rq);
    return queue && bpf_core_field_exists(queue->prev_steal_time_rq) ? BPF_CORE_READ(queue, prev_steal_time_rq) : 0;
}

INLINE void ready(struct thread *thread, struct task_struct *task, u64 now) {
    thread->ready = thread->since = now;
    thread->throttled = throttled(task);
}

// The part of a wait that it spent on one CPU is over: its quota comes first, since a group that has none left is
// served last.
INLINE void waited(struct thread *thread, struct task_struct *task, u32 cpu, u64 now, u64 steal) {
    u64 from = thread->since, quota = throttled(task) - thread->throttled;
    if (quota && quota < (1ULL << 40)) {
        if (quota > now - from) quota = now - from;
        blame_cause(thread->app, C_QUOTA, quota);
        from += quota;
    }
    if (now > from) lay(thread->app, cpu, from, now, steal);
}

SEC("tp_btf/sched_waking") int BPF_PROG(waking, struct task_struct *task) {
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (thread) ready(thread, task, bpf_ktime_get_ns());
    return 0;
}

// The first wait of a new thread.
SEC("tp_btf/sched_wakeup_new") int BPF_PROG(waking_new, struct task_struct *task) {
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (thread) ready(thread, task, bpf_ktime_get_ns());
    return 0;
}

SEC("tp_btf/sched_migrate_task") int BPF_PROG(migrate, struct task_struct *task, int cpu) {
    struct thread *thread = bpf_task_storage_get(&threads, task, 0, 0);
    if (!thread || !thread->ready) return 0;
    u64 now = bpf_ktime_get_ns();
    waited(thread, task, BPF_CORE_READ(task, thread_info.cpu), now, 0);
    thread->since = now;
    struct cfs_rq **queues = BPF_CORE_READ(task, se.cfs_rq, tg, cfs_rq), *queue = 0;
    bpf_probe_read_kernel(&queue, sizeof queue, &queues[cpu]);
    thread->throttled = queue ? throttled_in(queue) : 0;
    return 0;
}

SEC("tp_btf/sched_switch") int BPF_PROG(switched, bool preempted, struct task_struct *prev, struct task_struct *next) {
    u64 now = bpf_ktime_get_ns();
    u32 cpu = bpf_get_smp_processor_id();
    struct thread *thread = bpf_task_storage_get(&threads, prev, 0, 0);
    if (thread && (preempted || BPF_CORE_READ(prev, __state) == 0)) ready(thread, prev, now);

    u64 steal = steal_of(next);
    struct segment segment = {.from = now, .steal = steal, .cause = C_PROGRAM};
    thread = bpf_task_storage_get(&threads, next, 0, 0);
    if (thread) {
        segment.cause = C_APP;
        segment.id = thread->app;
        if (thread->ready) {
            u32 app = thread->app;
            struct waits *sums = bpf_map_lookup_elem(&waits, &app);
            u64 ns = now - thread->ready;
            u32 bucket = bucket_of(ns);
            if (sums && bucket < BUCKETS) {
                __sync_fetch_and_add(&sums->ns, ns);
                __sync_fetch_and_add(&sums->count, 1);
                __sync_fetch_and_add(&sums->buckets[bucket], 1);
            }
            waited(thread, next, cpu, now, steal);
            thread->ready = 0;
        }
    } else if (next->pid == 0) {
        segment.cause = C_WAKING;
    } else if (next->flags & PF_KTHREAD) {
        segment.cause = C_KERNEL;
        __builtin_memcpy(segment.comm, next->comm, sizeof segment.comm);
    } else {
        segment.id = BPF_CORE_READ(next, cgroups, dfl_cgrp, kn, id);
        bpf_probe_read_kernel(segment.comm, sizeof segment.comm, next->group_leader->comm);
    }
    struct past *past = bpf_map_lookup_elem(&pasts, &cpu);
    if (past) {
        past->segments[past->head & (SEGMENTS - 1)] = segment;
        past->head++;
    }
    return 0;
}

// ---- Which threads

// Memory for a thread's state is taken here and in `mark` alone, since no lock of the scheduler is held there.
SEC("tp_btf/sched_process_fork") int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child) {
    struct thread *of = bpf_task_storage_get(&threads, parent, 0, 0);
    if (!of) return 0;
    u32 app = of->app, process = child->tgid;
    if (child->pid == child->tgid) bpf_map_update_elem(&processes, &process, &app, BPF_ANY);
    struct thread fresh = {.app = app};
    bpf_task_storage_get(&threads, child, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
    return 0;
}

SEC("tp_btf/sched_process_exit") int BPF_PROG(exited, struct task_struct *task) {
    u32 process = task->tgid;
    if (task->pid == task->tgid) bpf_map_delete_elem(&processes, &process);
    return 0;
}

// Read whenever it has changed which processes are observed.
SEC("iter/task") int mark(struct bpf_iter__task *ctx) {
    struct task_struct *task = ctx->task;
    if (!task) return 0;
    u32 process = task->tgid;
    u32 *app = bpf_map_lookup_elem(&processes, &process);
    if (!app) {
        bpf_task_storage_delete(&threads, task);
        return 0;
    }
    struct thread fresh = {.app = *app};
    struct thread *thread = bpf_task_storage_get(&threads, task, &fresh, BPF_LOCAL_STORAGE_GET_F_CREATE);
    if (thread) thread->app = *app;
    return 0;
}
