// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * decap.bpf.c - runs at an endpoint: removes the outer header that encap.h adds, before
 * the kernel sees the packet. For kernels without tunnel devices, and for endpoints
 * that should not need one.
 *
 * It decapsulates a packet iff the outer source is a load balancer's, the outer
 * destination is this machine, and the inner destination is a VIP: otherwise attackers
 * could bypass filters by an outer header. All other packets go to the kernel
 * unchanged.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "decap/outer_header.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"

#define TC_NEXT (-1)
#define TC_SHOT 2
#define AF_INET 2
#define AF_INET6 10
#ifndef IPPROTO_IPIP
#define IPPROTO_IPIP 4
#endif

/* In network byte order; user space sets it. */
const volatile __be16 decap_port = 0xc017; /* 6080 */

/* VIP -> 1. Written by user before the program is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct ip_addr);
	__type(value, __u8);
} decap_vips SEC(".maps");

struct decap_source {
	__u32 prefix_length;
	struct ip_addr addr;
};

/* prefix of outer sources -> 1. Written by user before the program is attached. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, struct decap_source);
	__type(value, __u8);
} decap_sources SEC(".maps");

enum decap_count {
	DECAP_TAKEN, /* the outer header was removed */
	DECAP_SOURCE, /* left to the kernel: the outer source is not a load balancer */
	DECAP_VIP, /* left to the kernel: the inner destination is not a VIP */
	DECAP_CONGESTION, /* dropped: congestion occurred, but the sender does not understand the mark (RFC 6040) */
	DECAP_FAILED, /* dropped: out of memory */
	DECAP_COUNTS
};

/* enum decap_count -> packets, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DECAP_COUNTS);
	__type(key, __u32);
	__type(value, __u64);
} decap_counts SEC(".maps");

static __always_inline int decap_count(__u32 what, int verdict)
{
	__u64 *n = bpf_map_lookup_elem(&decap_counts, &what);

	if (n)
		(*n)++;
	return verdict;
}

/* Reports whether it contains an IP packet, and finds its version. */
static __always_inline bool outer_has_packet(ctx_t *ctx, struct outer *o)
{
	struct udphdr *udp;
	__u8 *version;

	if (o->protocol == IPPROTO_UDP) {
		udp = ctx_header(ctx, o->l3 + o->size, sizeof(*udp));
		if (!udp || udp->dest != decap_port)
			return false;
		o->size += sizeof(*udp);
	} else if (o->protocol != IPPROTO_IPIP && o->protocol != IPPROTO_IPV6) {
		return false;
	}
	version = ctx_header(ctx, o->l3 + o->size, 1);
	if (!version)
		return false;
	o->inner_ipv6 = *version >> 4 == 6;
	if (o->protocol != IPPROTO_UDP)
		return o->inner_ipv6 == (o->protocol == IPPROTO_IPV6);
	return o->inner_ipv6 || *version >> 4 == 4;
}

/* Reports whether the outer destination is this machine: there is no route for
 * forwarding to the machine itself, and none at all on a machine that does not
 * forward. */
static __noinline bool outer_is_local(ctx_t *ctx, const struct outer *o)
{
	struct bpf_fib_lookup fib = { .ifindex = ctx->ifindex };
	long code;

	fib.family = o->ipv6 ? AF_INET6 : AF_INET;
	if (o->ipv6)
		__builtin_memcpy(fib.ipv6_dst, &o->daddr, 16);
	else
		fib.ipv4_dst = o->daddr.word[3];
	code = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	return code == BPF_FIB_LKUP_RET_NOT_FWDED ||
	       code == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Checks the inner destination and writes the combined ECN field. Returns -1 if the
 * packet must be dropped, 0 if the destination is not a VIP, else 1. */
static __noinline int inner_admit(ctx_t *ctx, const struct outer *o)
{
	struct ip_addr daddr;
	struct ipv6hdr *ip6;
	struct iphdr *ip;

	if (o->inner_ipv6) {
		ip6 = ctx_header(ctx, o->l3 + o->size, sizeof(*ip6));
		if (!ip6)
			return 0;
		__builtin_memcpy(&daddr, &ip6->daddr, 16);
		if (is_mapped_ipv4(&daddr) ||
		    !bpf_map_lookup_elem(&decap_vips, &daddr))
			return 0;
		return ecn_write_ipv6(ctx, ip6, o->tos) ? 1 : -1;
	}
	ip = ctx_header(ctx, o->l3 + o->size, sizeof(*ip));
	if (!ip)
		return 0;
	map_ipv4(&daddr, ip->daddr);
	if (!bpf_map_lookup_elem(&decap_vips, &daddr))
		return 0;
	return ecn_write_ipv4(ip, o->tos) ? 1 : -1;
}

static __always_inline int decap(ctx_t *ctx, __u32 l3)
{
	struct decap_source source = { .prefix_length = 128 };
	struct outer o = { .l3 = l3 };
	int admitted;

	if (!ctx_is_for_us(ctx) || !outer_ip(ctx, &o) ||
	    !outer_has_packet(ctx, &o))
		return TC_NEXT;
	source.addr = o.saddr;
	if (!bpf_map_lookup_elem(&decap_sources, &source))
		return decap_count(DECAP_SOURCE, TC_NEXT);
	if (!outer_is_local(ctx, &o))
		return TC_NEXT;
	admitted = inner_admit(ctx, &o);
	if (!admitted)
		return decap_count(DECAP_VIP, TC_NEXT);
	if (admitted < 0)
		return decap_count(DECAP_CONGESTION, TC_SHOT);
	if (!outer_remove(ctx, &o))
		return decap_count(DECAP_FAILED, TC_SHOT);
	return decap_count(DECAP_TAKEN, TC_NEXT);
}

SEC("tc")
int loxilb_decap_ether(struct __sk_buff *ctx)
{
	return decap(ctx, ETH_HLEN);
}

SEC("tc")
int loxilb_decap_layer3(struct __sk_buff *ctx)
{
	return decap(ctx, 0);
}

/* Keeps the enum in the object's BTF: the code uses only its values. */
const struct {
	enum decap_count count;
} decap_enums = {};

char _license[] SEC("license") = "Dual BSD/GPL";
