// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * probe.bpf.c - redirects probes of endpoints that answer clients directly (MODE_DSR)
 * to the VIP.
 *
 * The socket of a probe is connected to the endpoint's own address, so that the kernel
 * finds the route, the MAC address and the source. On egress, the VIP replaces that
 * address, and the packet gets the same outer header as packets of clients. On ingress,
 * the endpoint's address replaces the VIP again. docs/adr/0048-direct-return.md has
 * the alternatives.
 *
 * Packets that no socket of this machine sent cost one comparison.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/icmp_types.h"
#include "packet/outer.h"
#include "packet/packet.h"
#include "parse/parse.h"
#include "probe/probe_answers.h"
#include "protocol/protocol.h"

#define TC_NEXT (-1)
#define TC_SHOT 2

enum probe_tunnel {
	PROBE_NO_TUNNEL,
	PROBE_IPIP,
	PROBE_GUE,
};

/* Where packets of a probe's socket go. */
struct probe_path {
	struct ip_addr vip;
	__u32 tunnel; /* enum probe_tunnel */
	__u32 wait; /* how long to wait for an answer, in jiffies */
};

/* socket -> the path of its packets. Written by user before the socket sends; the
 * kernel frees it with the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct probe_path);
} probe_ways SEC(".maps");

/* The parts of a packet that are needed here. */
struct headers {
	struct ip_addr saddr;
	struct ip_addr daddr;
	__u32 l3;
	__u32 l4; /* 0: a later fragment without a layer 4 header */
	__u32 check; /* offset of the checksum that covers the addresses; 0: none */
	__be16 sport; /* of an echo request, its identifier; of a reply 0 */
	__be16 dport; /* the reverse: of a reply the identifier, of a request 0 */
	__u8 protocol;
	__u8 ipv6;
	__u8 error; /* an ICMP error; there are no ports */
	__u8 tos;
};

#define ICMP_HEADER sizeof(struct icmp_header)

static __always_inline bool headers_ip(ctx_t *ctx, struct headers *h)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;

	if (h->ipv6) {
		ip6 = ctx_header(ctx, h->l3, sizeof(*ip6));
		if (!ip6 || ip6->version != 6)
			return false;
		__builtin_memcpy(&h->saddr, &ip6->saddr, 16);
		__builtin_memcpy(&h->daddr, &ip6->daddr, 16);
		h->protocol = ip6->nexthdr;
		h->tos = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
		h->l4 = h->l3 + sizeof(*ip6);
		return true;
	}
	ip = ctx_header(ctx, h->l3, sizeof(*ip));
	if (!ip || ip->version != 4 || ip->ihl < 5)
		return false;
	map_ipv4(&h->saddr, ip->saddr);
	map_ipv4(&h->daddr, ip->daddr);
	h->protocol = ip->protocol;
	h->tos = ip->tos;
	h->l4 = ip->frag_off & IP_OFFSET_MASK ? 0 : h->l3 + ip->ihl * 4;
	return true;
}

/* Reads the identifier of an echo, which stands for the port of the requesting side. */
static __always_inline void headers_icmp(struct headers *h,
					 const struct echo_header *echo)
{
	h->sport = 0;
	h->dport = 0;
	h->error = icmp_is_error(h->ipv6, echo->type);
	if (h->ipv6)
		h->check =
			h->l4 + __builtin_offsetof(struct echo_header, check);
	if (echo->type == (h->ipv6 ? ECHO6_REQUEST : ECHO_REQUEST))
		h->sport = echo->id;
	else if (echo->type == (h->ipv6 ? ECHO6_REPLY : ECHO_REPLY))
		h->dport = echo->id;
}

/* Reads the headers at h->l3; the caller sets the version. */
static __noinline bool headers_read(ctx_t *ctx, struct headers *h)
{
	__u8 *l4;

	if (!headers_ip(ctx, h))
		return false;
	h->check = 0;
	h->error = 0;
	if (!h->l4)
		return true;
	l4 = ctx_header(ctx, h->l4, ICMP_HEADER);
	if (!l4)
		return false;
	if (h->protocol == icmp_protocol(h->ipv6)) {
		headers_icmp(h, (const struct echo_header *)l4);
		return true;
	}
	if (!protocol_of(h->protocol).has_ports)
		return false;
	if (protocol_of(h->protocol).sum_has_addresses)
		h->check = h->l4 + protocol_of(h->protocol).sum_offset;
	h->sport = ((__be16 *)l4)[0];
	h->dport = ((__be16 *)l4)[1];
	return true;
}

/* Replaces an address at its offset in the IP header, and corrects all checksums. */
static __noinline bool address_write(ctx_t *ctx, const struct headers *h,
				     __u32 off, const struct ip_addr *old,
				     const struct ip_addr *new)
{
	__u16 delta = sum_fold64(address_sum(new) + address_sum_not(old));
	__u64 flags = BPF_F_PSEUDO_HDR;

	if (protocol_of(h->protocol).sum_is_optional)
		flags |= BPF_F_MARK_MANGLED_0;
	if (h->check && bpf_l4_csum_replace(ctx, h->check, 0, delta, flags))
		return false;
	if (!h->ipv6)
		return !bpf_l3_csum_replace(ctx, h->l3 + 10, old->word[3],
					    new->word[3], 4) &&
		       !bpf_skb_store_bytes(ctx, off, &new->word[3], 4, 0);
	if (bpf_skb_store_bytes(ctx, off, new, 16, 0))
		return false;
	/* the helper assumes that a header checksum compensates the addresses, but
	 * IPv6 has none */
	bpf_csum_update(ctx, delta);
	return true;
}

static __always_inline __u32 saddr_offset(const struct headers *h)
{
	return h->l3 + (h->ipv6 ? 8 : 12);
}

static __always_inline __u32 daddr_offset(const struct headers *h)
{
	return h->l3 + (h->ipv6 ? 24 : 16);
}

/* Stores how to recognize the answer: no other probe has its port, or its echo
 * identifier. Most packets of a probe find the row there. */
static __always_inline void answer_expect(const struct headers *h,
					  const struct probe_path *w)
{
	struct connection_key key = { .saddr = w->vip,
				      .daddr = h->saddr,
				      .sport = h->dport,
				      .dport = h->sport,
				      .protocol = h->protocol };
	struct probe_answer a = { .endpoint = h->daddr,
				  .seen = ctx_now(),
				  .wait = w->wait };
	void *rows = probe_answers_get();
	struct probe_answer *known;

	if (!rows)
		return;
	known = bpf_map_lookup_elem(rows, &key);
	if (known && same_addr(&known->endpoint, &h->daddr)) {
		known->seen = a.seen;
		known->wait = a.wait;
		return;
	}
	bpf_map_update_elem(rows, &key, &a, BPF_ANY);
}

/* Adds the outer header that encap.h adds to packets of clients. */
static __noinline bool tunnel_enter(ctx_t *ctx, const struct headers *h,
				    __u32 tunnel)
{
	struct packet p = { .l3 = h->l3 };
	struct inner in = { .hash = ((__u64)h->sport << 16 | h->dport) *
				    HASH_FACTOR,
			    .length = ctx->len - h->l3,
			    .protocol = h->ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP,
			    .tos = h->tos,
			    .dont_fragment = 1,
			    .gue = tunnel == PROBE_GUE };

	if (in.gue)
		in.protocol = IPPROTO_UDP;
	return h->ipv6 ? encap_ipv6(ctx, &p, &h->saddr, &h->daddr, &in) :
			 encap_ipv4(ctx, &p, &h->saddr, &h->daddr, &in);
}

static __noinline int probe_send_by_path(ctx_t *ctx, const struct probe_path *w,
					 __u32 l3)
{
	struct headers h = { .l3 = l3 };

	h.ipv6 = ctx->protocol == bpf_htons(ETH_P_IPV6);
	if (!headers_read(ctx, &h))
		return TC_NEXT;
	if (h.l4)
		answer_expect(&h, w);
	if (!address_write(ctx, &h, daddr_offset(&h), &h.daddr, &w->vip))
		return TC_SHOT;
	if (w->tunnel && !tunnel_enter(ctx, &h, w->tunnel))
		return TC_SHOT;
	return TC_NEXT;
}

static __always_inline int probe_out(ctx_t *ctx, __u32 l3)
{
	struct bpf_sock *sk = ctx->sk;
	struct probe_path *w;

	if (likely(!sk))
		return TC_NEXT;
	sk = bpf_sk_fullsock(sk);
	if (!sk)
		return TC_NEXT;
	w = bpf_sk_storage_get(&probe_ways, sk, NULL, 0);
	return likely(!w) ? TC_NEXT : probe_send_by_path(ctx, w, l3);
}

/* Returns the endpoint whose answer has these members, or NULL. */
static __always_inline const struct ip_addr *
answer_find(const struct ip_addr *saddr, const struct ip_addr *daddr,
	    __be16 sport, __be16 dport, __u8 protocol)
{
	struct connection_key key = { .saddr = *saddr,
				      .daddr = *daddr,
				      .sport = sport,
				      .dport = dport,
				      .protocol = protocol };
	const struct probe_answer *a = probe_answer_find(&key, ctx_now());

	return a ? &a->endpoint : NULL;
}

/* Handles an ICMP error that quotes a probe: the kernel knows the probe by the
 * endpoint's address. */
static __noinline int probe_error(ctx_t *ctx, struct headers *h)
{
	struct headers quoted = { .l3 = h->l4 + ICMP_HEADER, .ipv6 = h->ipv6 };
	const struct ip_addr *endpoint;
	__u16 delta;

	if (!headers_read(ctx, &quoted) || !quoted.l4 || quoted.error)
		return TC_NEXT;
	endpoint = answer_find(&quoted.daddr, &quoted.saddr, quoted.dport,
			       quoted.sport, quoted.protocol);
	if (!endpoint)
		return TC_NEXT;
	delta = sum_fold64(address_sum(endpoint) +
			   address_sum_not(&quoted.daddr));
	if (h->ipv6) {
		if (bpf_l4_csum_replace(ctx, h->check, 0, delta, 0) ||
		    bpf_skb_store_bytes(ctx, daddr_offset(&quoted), endpoint,
					16, 0))
			return TC_SHOT;
	} else {
		/* the quoted header's checksum compensates its address, so ICMP's
		 * stays */
		if (bpf_l3_csum_replace(ctx, quoted.l3 + 10,
					quoted.daddr.word[3], endpoint->word[3],
					4) ||
		    bpf_skb_store_bytes(ctx, daddr_offset(&quoted),
					&endpoint->word[3], 4, 0))
			return TC_SHOT;
	}
	if (same_addr(&h->saddr, &quoted.daddr) &&
	    !address_write(ctx, h, saddr_offset(h), &h->saddr, endpoint))
		return TC_SHOT;
	return TC_NEXT;
}

static __always_inline int probe_in(ctx_t *ctx, __u32 l3)
{
	struct headers h = { .l3 = l3 };
	const struct ip_addr *endpoint;

	h.ipv6 = ctx->protocol == bpf_htons(ETH_P_IPV6);
	if (!h.ipv6 && ctx->protocol != bpf_htons(ETH_P_IP))
		return TC_NEXT;
	if (!headers_read(ctx, &h) || !h.l4)
		return TC_NEXT;
	if (h.error)
		return probe_error(ctx, &h);
	endpoint =
		answer_find(&h.saddr, &h.daddr, h.sport, h.dport, h.protocol);
	if (likely(!endpoint))
		return TC_NEXT;
	return address_write(ctx, &h, saddr_offset(&h), &h.saddr, endpoint) ?
		       TC_NEXT :
		       TC_SHOT;
}

SEC("tc")
int loxilb_probe_out(struct __sk_buff *ctx)
{
	return probe_out(ctx, ETH_HLEN);
}

SEC("tc")
int loxilb_probe_out3(struct __sk_buff *ctx)
{
	return probe_out(ctx, 0);
}

SEC("tc")
int loxilb_probe_in(struct __sk_buff *ctx)
{
	return probe_in(ctx, ETH_HLEN);
}

SEC("tc")
int loxilb_probe_in3(struct __sk_buff *ctx)
{
	return probe_in(ctx, 0);
}

/* Keeps the enum in the object's BTF: the code uses only its values. */
const struct {
	enum probe_tunnel tunnel;
} probe_enums = {};

char _license[] SEC("license") = "Dual BSD/GPL";
