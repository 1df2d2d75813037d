//go:build ignore
/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wire.bpf.c - one direction of a wire that is not perfect.
 *
 * A hash of the seed and the packet's number in this direction decides what happens to a
 * packet, so the n-th packet of a seed has the same faults in each run. Only IP
 * packets are numbered: the number of ARP requests depends on timing.
 *
 * A BPF program cannot hold packets. A delayed packet goes to an interface where a process
 * holds it for a time, and then returns it (hold.go).
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* The rates of faults, in 2^-32 of the packets. */
struct faults {
	__u64 lose;
	__u64 repeat;
	__u64 delay;
	__u64 corrupt;
	__u64 cut; /* 1: the wire is cut, and nothing passes */
};

struct counts {
	__u64 packets; /* that are numbered */
	__u64 lost;
	__u64 repeated;
	__u64 delayed;
	__u64 corrupted;
	__u64 cut;
};

enum draw {
	DRAW_LOSE,
	DRAW_REPEAT,
	DRAW_DELAY,
	DRAW_CORRUPT,
	DRAW_PLACE,
	DRAWS,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct faults);
} faults SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counts);
} counts SEC(".maps");

volatile const __u64 seed;
volatile const __u32 far_end; /* interface by which packets leave */
volatile const __u32 holder; /* interface of delayed packets */

/* Returns a pseudo-random number (splitmix64). A packet always gets the same ones. */
static __u64 draw(__u64 number, enum draw what)
{
	__u64 z = seed + (number * DRAWS + what + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
	return z ^ z >> 31;
}

static bool drawn(__u64 number, enum draw what, __u64 share)
{
	return (__u32)draw(number, what) < share;
}

/* Turns a bit of what follows the Ethernet header, and no checksum. */
static bool corrupt(struct __sk_buff *skb, __u64 number)
{
	__u64 place = draw(number, DRAW_PLACE);
	__u32 at;
	__u8 byte;

	if (skb->len <= ETH_HLEN)
		return false;
	at = ETH_HLEN + (place >> 3) % (skb->len - ETH_HLEN);
	if (bpf_skb_load_bytes(skb, at, &byte, 1))
		return false;
	byte ^= 1 << (place & 7);
	return !bpf_skb_store_bytes(skb, at, &byte, 1, 0);
}

/* Decides what happens to a packet that arrives at the near end: it goes to the far end, once
 * or twice, changed or late, or is lost. */
SEC("tc")
int carry(struct __sk_buff *skb)
{
	struct faults *f;
	struct counts *c;
	__u32 key = 0;
	__u64 number;

	f = bpf_map_lookup_elem(&faults, &key);
	c = bpf_map_lookup_elem(&counts, &key);
	if (!f || !c)
		return TC_ACT_SHOT;
	if (f->cut) {
		__sync_fetch_and_add(&c->cut, 1);
		return TC_ACT_SHOT;
	}
	if (skb->protocol != bpf_htons(ETH_P_IP) &&
	    skb->protocol != bpf_htons(ETH_P_IPV6))
		return bpf_redirect(far_end, 0);
	number = __sync_fetch_and_add(&c->packets, 1);
	if (drawn(number, DRAW_LOSE, f->lose)) {
		__sync_fetch_and_add(&c->lost, 1);
		return TC_ACT_SHOT;
	}
	if (drawn(number, DRAW_CORRUPT, f->corrupt) && corrupt(skb, number))
		__sync_fetch_and_add(&c->corrupted, 1);
	if (drawn(number, DRAW_REPEAT, f->repeat) &&
	    !bpf_clone_redirect(skb, far_end, 0))
		__sync_fetch_and_add(&c->repeated, 1);
	if (drawn(number, DRAW_DELAY, f->delay)) {
		__sync_fetch_and_add(&c->delayed, 1);
		return bpf_redirect(holder, 0);
	}
	return bpf_redirect(far_end, 0);
}

/* Passes a packet that has been held to the far end. */
SEC("tc")
int release(struct __sk_buff *skb)
{
	return bpf_redirect(far_end, 0);
}

char _license[] SEC("license") = "Dual BSD/GPL";
