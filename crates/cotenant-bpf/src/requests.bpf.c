// How long requests to one service take: at the server from when a request can be read until the first byte of its
// answer leaves, and at clients on this machine from when they sent it until they took the first of the answer.
//
// `tp_btf` alone, as in waits.bpf.c. Of TCP's headers ports, sequence numbers and the push flag are read; no payload.

// Quantiles are within 1 %.
enum { SUB_BITS = 6 };
#include "common.bpf.h"
#include <bpf/bpf_endian.h>

struct ns_common {
    unsigned int inum;
} KERNEL;
struct net {
    struct ns_common ns;
} KERNEL;
typedef struct {
    struct net *net;
} KERNEL possible_net_t;
struct in6_addr {
} KERNEL;
struct sock_common {
    __be32 skc_daddr, skc_rcv_saddr;
    __be16 skc_dport;
    u16 skc_num;
    unsigned short skc_family;
    volatile unsigned char skc_state;
    possible_net_t skc_net;
    struct in6_addr skc_v6_daddr, skc_v6_rcv_saddr;
} KERNEL;
struct sock {
    struct sock_common __sk_common;
    u16 sk_type, sk_protocol;
} KERNEL;
struct tcp_sock {
    u32 snd_nxt, rcv_nxt;
    u64 bytes_received;
} KERNEL;
struct sk_buff {
    struct sock *sk;
    unsigned int len;
    u16 transport_header;
    unsigned char *head, *data;
} KERNEL;
struct super_block {
    u32 s_dev;
} KERNEL;
struct inode {
    unsigned long i_ino;
    struct super_block *i_sb;
} KERNEL;
struct dentry {
    struct inode *d_inode;
} KERNEL;
struct path {
    struct dentry *dentry;
} KERNEL;
struct unix_sock {
    struct path path;
    struct sock *peer;
} KERNEL;

enum { AF_UNIX = 1, AF_INET6 = 10, SOCK_STREAM = 1, IPPROTO_TCP = 6 };
enum { TCP_ESTABLISHED = 1, TCP_TIME_WAIT = 6, TCP_LISTEN = 10, TCP_NEW_SYN_RECV = 12 };

// What is read and written of maps; `object.rs` has the same in Rust.

// Which requests are counted. A window ends by two steps: requests that have begun are followed to their answer, as
// leaving out the long ones would make all look short; then nothing is done at all.
enum counted { ALL, BEGUN, NONE };

// A port in a network namespace, or the inode of a socket; 0: none.
struct service {
    u64 inode;
    u32 device, netns, port;
    u32 counted;
    u32 window;  // its number: what began in an earlier one does not count in it
    u32 pad;
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, u32);
    __type(value, struct service);
} service SEC(".maps");

enum side {
    SERVED,  // all requests, at the server
    LOCAL,   // those of clients on this machine, at the client
    REMOTE,  // all others, at the server
    SIDES,
};
struct latencies {
    u64 joined;  // requests, or pieces of one, that came before the answer to the one before
    u64 begun;   // of all requests at the server
    u64 buckets[BUCKETS];
};
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, SIDES);
    __type(key, u32);
    __type(value, struct latencies);
} latencies SEC(".maps");

// ---- State

// Of a connection's end; it goes with its socket. An address tells nothing: the kernel gives it to the next socket.
struct end {
    u64 since;  // server: a request lies there since; client: it was sent then; 0: none
    u32 sent;   // sequence number of the last segment that was sent
    u32 early;  // what joined while it was not known whether the connection ends at the service
    u32 window;
    u16 port;  // of a client: the kernel forgets it when a connection ends before the answer is taken
    u8 server, local, taken, open;  // open: the last segment did not end a write
};
struct {
    __uint(type, BPF_MAP_TYPE_SK_STORAGE);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, int);
    __type(value, struct end);
} ends SEC(".maps");

// Connections of clients that are not known to end at the service: the port may be another machine's.
struct flow {
    u32 client[4], server[4];
    u16 client_port, server_port;
    u32 netns;  // of loopback addresses: these are in each
};
struct {
    __uint(type, BPF_MAP_TYPE_LRU_HASH);
    __uint(max_entries, 16384);
    __type(key, struct flow);
    __type(value, u32);  // whether the service received something on it
} flows SEC(".maps");

// ---- Requests

enum role { NEITHER, SERVER, CLIENT };

INLINE void count(u32 side, u64 ns) {
    struct latencies *l = bpf_map_lookup_elem(&latencies, &side);
    u32 bucket = bucket_of(ns);
    if (l && bucket < BUCKETS) __sync_fetch_and_add(&l->buckets[bucket], 1);
}

INLINE void join(u32 side, u32 requests) {
    struct latencies *l = bpf_map_lookup_elem(&latencies, &side);
    if (l) __sync_fetch_and_add(&l->joined, requests);
}

// `ends`: whether this piece ends a write.
INLINE void server_received(struct service *s, struct end *end, u64 now, bool ends) {
    if (!end->since) {
        u32 side = SERVED;
        struct latencies *l = bpf_map_lookup_elem(&latencies, &side);
        if (s->counted != ALL || !l) return;
        __sync_fetch_and_add(&l->begun, 1);
        end->since = now;
    } else if (!end->open) {
        join(SERVED, 1);
        if (!end->local) join(REMOTE, 1);
    }
    end->open = !ends;
}

// What is sent before a request was taken is no answer.
INLINE void server_sent(struct end *end, u64 now) {
    if (!end->since || !end->taken) return;
    count(SERVED, now - end->since);
    if (!end->local) count(REMOTE, now - end->since);
    end->since = end->taken = 0;
}

INLINE void client_sent(struct service *s, struct end *end, u64 now, bool ends) {
    if (!end->since) {
        if (s->counted != ALL) return;
        end->since = now;
        end->taken = 0;
    } else if (!end->open) {
        if (end->local) join(LOCAL, 1);
        else end->early++;
    }
    end->open = !ends;
}

INLINE void client_took(struct end *end, u64 now) {
    if (end->local) count(LOCAL, now - end->since);
    end->since = 0;
}

// The service, while any of its requests are counted.
INLINE struct service *watched(void) {
    u32 zero = 0;
    struct service *s = bpf_map_lookup_elem(&service, &zero);
    return s && s->counted != NONE ? s : 0;
}

INLINE struct end *end_of(struct sock *sk, struct service *s, enum role role, bool create) {
    create = create && s->counted == ALL;
    struct end *end = bpf_sk_storage_get(&ends, sk, 0, create ? BPF_SK_STORAGE_GET_F_CREATE : 0);
    if (!end) return 0;
    end->server = role == SERVER;
    if (end->window != s->window) {
        end->window = s->window;
        end->since = end->early = end->taken = end->open = 0;
    }
    return end;
}

// ---- TCP

INLINE enum role role_of(struct sock *sk, struct service *s) {
    if (!s->port) return NEITHER;
    if (sk->__sk_common.skc_num == s->port) {
        return BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum) == s->netns ? SERVER : NEITHER;
    }
    return sk->__sk_common.skc_dport == bpf_htons(s->port) ? CLIENT : NEITHER;
}

INLINE void address(u32 *to, struct sock *sk, bool remote) {
    if (sk->__sk_common.skc_family == AF_INET6) {
        if (remote) bpf_core_read(to, 16, &sk->__sk_common.skc_v6_daddr);
        else bpf_core_read(to, 16, &sk->__sk_common.skc_v6_rcv_saddr);
    } else {
        // As IPv6 has it: the server's socket may be one of both.
        to[2] = bpf_htonl(0xffff);
        to[3] = remote ? sk->__sk_common.skc_daddr : sk->__sk_common.skc_rcv_saddr;
    }
}

INLINE bool is_loopback(const u32 *address) {
    if (address[0] || address[1]) return false;
    return address[2] ? (bpf_ntohl(address[3]) >> 24) == 127 : address[3] == bpf_htonl(1);
}

// `here`: the port of this end.
INLINE void flow_of(struct flow *flow, struct sock *sk, u16 here, bool client) {
    u16 there = bpf_ntohs(sk->__sk_common.skc_dport);
    __builtin_memset(flow, 0, sizeof *flow);
    address(client ? flow->client : flow->server, sk, false);
    address(client ? flow->server : flow->client, sk, true);
    flow->client_port = client ? here : there;
    flow->server_port = client ? there : here;
    if (is_loopback(flow->server)) flow->netns = BPF_CORE_READ(sk, __sk_common.skc_net.net, ns.inum);
}

// The service received something: if a client on this machine sent it, both know it from now on.
INLINE void meet_client(struct end *end, struct sock *sk) {
    struct flow flow;
    if (end->local) return;
    flow_of(&flow, sk, sk->__sk_common.skc_num, false);
    u32 *received = bpf_map_lookup_elem(&flows, &flow);
    if (!received) return;
    *received = 1;
    end->local = 1;
}

struct segment {
    u32 sequence, payload;
    bool push, ours;
};

// Of a header at `at`, with `bytes` from there on.
INLINE struct segment segment_of(unsigned char *at, u32 bytes, u16 from) {
    struct {
        __be16 source, dest;
        __be32 sequence, acknowledged;
        u8 words, flags, rest[6];
    } header = {};
    bpf_probe_read_kernel(&header, sizeof header, at);
    u32 length = (header.words >> 4) * 4;
    struct segment segment = {
        .sequence = bpf_ntohl(header.sequence),
        .payload = bytes > length ? bytes - length : 0,
        .push = header.flags & 8,
        .ours = header.source == bpf_htons(from),
    };
    return segment;
}

SEC("tp_btf/tcp_probe") int BPF_PROG(tcp_received, struct sock *sk, struct sk_buff *skb) {
    struct service *s = watched();
    enum role role = s ? role_of(sk, s) : NEITHER;
    if (role == NEITHER) return 0;
    struct segment segment = segment_of(skb->data, skb->len, bpf_ntohs(sk->__sk_common.skc_dport));
    // Neither what came before, nor what something is missing before: the application gets neither now.
    u32 next = BPF_CORE_READ((struct tcp_sock *)sk, rcv_nxt);
    if ((s32)(segment.sequence - next) > 0 || (s32)(segment.sequence + segment.payload - next) <= 0) return 0;
    struct end *end = end_of(sk, s, role, role == SERVER);
    if (!end) return 0;
    if (role == SERVER) {
        meet_client(end, sk);
        server_received(s, end, bpf_ktime_get_ns(), segment.push);
    } else if (end->since) {
        end->taken = 1;
    }
    return 0;
}

SEC("tp_btf/tcp_rcv_space_adjust") int BPF_PROG(tcp_took, struct sock *sk) {
    struct service *s = watched();
    enum role role = s ? role_of(sk, s) : NEITHER;
    if (role == NEITHER) return 0;
    u64 now = bpf_ktime_get_ns();
    struct end *end = end_of(sk, s, role, false);
    if (role == SERVER) {
        if (!end) {
            // splice(2) comes here before anything was received, too.
            if (!BPF_CORE_READ((struct tcp_sock *)sk, bytes_received)) return 0;
            // Its first segment was part of the handshake (TCP_DEFER_ACCEPT): tcp_probe does not see these.
            end = end_of(sk, s, role, true);
            if (!end) return 0;
            meet_client(end, sk);
            server_received(s, end, now, true);
        }
        if (end->since) end->taken = 1;
        return 0;
    }
    if (!end || !end->since) return 0;
    // A client that has closed its half is not seen to receive.
    if (!end->taken && sk->__sk_common.skc_state == TCP_ESTABLISHED) return 0;
    if (!end->local) {
        struct flow flow;
        flow_of(&flow, sk, end->port, true);
        u32 *received = bpf_map_lookup_elem(&flows, &flow);
        if (received && *received) {
            end->local = 1;
            bpf_map_delete_elem(&flows, &flow);
            join(LOCAL, end->early);
        }
    }
    client_took(end, now);
    return 0;
}

SEC("tp_btf/net_dev_queue") int BPF_PROG(tcp_sent, struct sk_buff *skb) {
    struct service *s = watched();
    if (!s) return 0;
    struct sock *sk = skb->sk;
    if (!sk || sk->sk_protocol != IPPROTO_TCP) return 0;
    u8 state = sk->__sk_common.skc_state;
    if (state == TCP_TIME_WAIT || state == TCP_LISTEN || state == TCP_NEW_SYN_RECV) return 0;
    enum role role = role_of(sk, s);
    if (role == NEITHER) return 0;
    unsigned char *head = skb->head;
    u32 offset = skb->transport_header, bytes = skb->len + (u32)(skb->data - head) - offset;
    struct segment segment = segment_of(head + offset, bytes, sk->__sk_common.skc_num);
    if (!segment.payload || !segment.ours) return 0;
    // Sent again, or passed on by a device to the next one.
    if (segment.sequence != BPF_CORE_READ((struct tcp_sock *)sk, snd_nxt)) return 0;
    struct end *end = end_of(sk, s, role, role == CLIENT);
    if (!end || end->sent == segment.sequence) return 0;
    end->sent = segment.sequence;
    u64 now = bpf_ktime_get_ns();
    if (role == SERVER) {
        server_sent(end, now);
        return 0;
    }
    if (!end->local) {
        end->port = sk->__sk_common.skc_num;
        struct flow flow;
        u32 received = 0;
        flow_of(&flow, sk, end->port, true);
        bpf_map_update_elem(&flows, &flow, &received, BPF_NOEXIST);
    }
    client_sent(s, end, now, segment.push);
    return 0;
}

// ---- Unix streams

INLINE bool is_service(struct unix_sock *u, struct service *s) {
    struct inode *inode = BPF_CORE_READ(u, path.dentry, d_inode);
    return inode && BPF_CORE_READ(inode, i_ino) == s->inode && BPF_CORE_READ(inode, i_sb, s_dev) == s->device;
}

// In the sender's thread, of the socket that receives.
SEC("tp_btf/sk_data_ready") int BPF_PROG(unix_received, struct sock *sk) {
    struct service *s = watched();
    if (!s || sk->__sk_common.skc_family != AF_UNIX || sk->sk_type != SOCK_STREAM) return 0;
    if (!s->inode || sk->__sk_common.skc_state != TCP_ESTABLISHED) return 0;
    struct unix_sock *u = bpf_skc_to_unix_sock(sk);
    if (!u) return 0;
    struct sock *peer = u->peer;
    if (!peer) return 0;
    bool at_server = is_service(u, s);
    if (!at_server && !is_service((struct unix_sock *)peer, s)) return 0;
    u64 now = bpf_ktime_get_ns();
    struct end *receiver = end_of(sk, s, at_server ? SERVER : CLIENT, at_server);
    struct end *sender = end_of(peer, s, at_server ? CLIENT : SERVER, at_server);
    if (!receiver || !sender) return 0;
    receiver->local = sender->local = 1;
    if (at_server) {
        server_received(s, receiver, now, true);
        client_sent(s, sender, now, true);
    } else {
        server_sent(sender, now);
    }
    return 0;
}

SEC("tp_btf/sock_recv_length") int BPF_PROG(unix_took, struct sock *sk, int bytes) {
    struct service *s = watched();
    if (!s || bytes <= 0 || sk->__sk_common.skc_family != AF_UNIX) return 0;
    struct end *end = bpf_sk_storage_get(&ends, sk, 0, 0);
    if (!end || !end->since || end->window != s->window) return 0;
    if (end->server) end->taken = 1;
    else client_took(end, bpf_ktime_get_ns());
    return 0;
}
