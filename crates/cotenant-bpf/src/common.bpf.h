// What the objects share. SUB_BITS: a histogram's buckets an octave, as a power of two.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef _Bool bool;
enum { false, true };
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef signed long long __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define KERNEL __attribute__((preserve_access_index))
#define INLINE __attribute__((always_inline)) static inline

// GPL: the helpers that read the kernel's memory demand it. The source is under the project's licences.
char LICENSE[] SEC("license") = "Dual MIT/GPL";

// Histograms of nanoseconds: log-linear, from 512 ns to 68 s.
enum { LOWEST_BITS = 9, OCTAVES = 27, BUCKETS = OCTAVES << SUB_BITS };

INLINE u32 log2_of(u64 v) {
    u32 r = 0, s;
    s = (v > 0xffffffffULL) << 5; v >>= s; r |= s;
    s = (v > 0xffff) << 4; v >>= s; r |= s;
    s = (v > 0xff) << 3; v >>= s; r |= s;
    s = (v > 0xf) << 2; v >>= s; r |= s;
    s = (v > 3) << 1; v >>= s; r |= s;
    return r | (v >> 1);
}

INLINE u32 bucket_of(u64 ns) {
    if (ns < (1 << LOWEST_BITS)) return 0;
    u32 octave = log2_of(ns);
    u32 bucket = ((octave - LOWEST_BITS) << SUB_BITS) + ((ns >> (octave - SUB_BITS)) & ((1 << SUB_BITS) - 1));
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}
