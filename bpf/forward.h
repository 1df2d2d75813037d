/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * forward.h - next hop and redirect.
 */
#ifndef LOXILB_FORWARD_H
#define LOXILB_FORWARD_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "ctx.h"
#include "epoch.h"
#include "ethernet.h"
#include "maps.h"
#include "nexthop.h"
#include "packet.h"
#include "parse.h"

#define AF_INET 2
#define AF_INET6 10
#define LOOPBACK_IFINDEX 1

/* The header of IPv6 is longer than that of IPv4 by so much. */
#define FAMILY_GROWTH 20

/* Does this direction of a connection leave as IPv6? */
static __always_inline bool leaves_as_ipv6(const struct connection *c)
{
	return !is_mapped_ipv4(&c->daddr);
}

/* To whom the packets of an entry are sent, whatever they say. NULL: no more. */
static __always_inline const struct ip_addr *
next_hop_target(const struct connection *c)
{
	__u32 id = c->endpoint;
	struct endpoint *ep;

	if (!(c->traits & CONN_ONE_WAY))
		return &c->daddr;
	ep = bpf_map_lookup_elem(&endpoints, &id);
	return ep ? &ep->addr : NULL;
}

/* From whom to whom, asked as if the packet came from loopback: then only that
 * interface's forwarding sysctl matters, and a machine need not become a router
 * for all its interfaces to be a load balancer. */
static __always_inline void fib_addresses(struct bpf_fib_lookup *fib, bool ipv6,
					  const struct ip_addr *src,
					  const struct ip_addr *dst)
{
	fib->ifindex = LOOPBACK_IFINDEX;
	fib->family = ipv6 ? AF_INET6 : AF_INET;
	if (ipv6) {
		__builtin_memcpy(fib->ipv6_src, src, 16);
		__builtin_memcpy(fib->ipv6_dst, dst, 16);
	} else {
		fib->ipv4_src = src->word[3];
		fib->ipv4_dst = dst->word[3];
	}
}

/* Did a look-up find a next hop? FRAG_NEEDED speaks of that packet only, and a
 * neighbour that is missing will be found. */
static __always_inline bool fib_found(long code)
{
	return code == BPF_FIB_LKUP_RET_SUCCESS ||
	       code == BPF_FIB_LKUP_RET_NO_NEIGH ||
	       code == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

/* Asks the kernel's routing table for the way of a direction of a connection. */
static __always_inline long fib_lookup(ctx_t *ctx, const struct packet *p,
				       const struct connection *c,
				       const struct ip_addr *target,
				       struct bpf_fib_lookup *fib)
{
	fib->l4_protocol = p->tuple.protocol;
	fib->sport = c->sport;
	fib->dport = c->dport;
	fib_addresses(fib, !is_mapped_ipv4(target), &c->saddr, target);
	if (c->traits & CONN_ONE_WAY) /* its source: of either family */
		__builtin_memset(fib->ipv6_src, 0, sizeof(fib->ipv6_src));
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* The MTU of the route, which may be smaller than that of the interface, when
 * the look-up of the next hop has not told it. */
static __always_inline __u16 route_mtu(ctx_t *ctx, const struct packet *p,
				       const struct connection *c,
				       const struct ip_addr *target,
				       struct bpf_fib_lookup *fib)
{
	long code;

	__builtin_memset(fib, 0, sizeof(*fib));
	fib->tot_len = 0xffff;
	code = fib_lookup(ctx, p, c, target, fib);
	return code == BPF_FIB_LKUP_RET_FRAG_NEEDED ? fib->mtu_result : 0xffff;
}

/* The next hop, in fib, and the MTU on the way to it, in c. A packet of one byte
 * is what asks for both at once; who has no neighbour yet must ask again. An MTU
 * of 65,536, of loopback alone, reads 0. */
static __always_inline long next_hop_lookup(ctx_t *ctx, const struct packet *p,
					    struct connection *c,
					    const struct ip_addr *target,
					    struct bpf_fib_lookup *fib)
{
	long code;

	fib->tot_len = 1;
	code = fib_lookup(ctx, p, c, target, fib);
	c->mtu = fib->mtu_result ? fib->mtu_result : 0xffff;
	if (code == BPF_FIB_LKUP_RET_SUCCESS)
		return code;
	c->mtu = route_mtu(ctx, p, c, target, fib);
	__builtin_memset(fib, 0, sizeof(*fib));
	return fib_lookup(ctx, p, c, target, fib);
}

/* The largest packet that arrives and still fits an MTU when it leaves as of the
 * other IP version. */
static __always_inline __u16 family_mtu(const struct connection *c, __u16 mtu)
{
	if (leaves_as_ipv6(c))
		return mtu - FAMILY_GROWTH;
	return mtu < 0xffff - FAMILY_GROWTH ? mtu + FAMILY_GROWTH : 0xffff;
}

static __always_inline enum verdict fib_drop(struct packet *p, long code)
{
	switch (code) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return drop(p, DROP_ROUTE_UNREACHABLE);
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return drop(p, DROP_FORWARDING_OFF);
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return drop(p, DROP_ROUTE_ENCAP);
	default:
		return drop(p, DROP_NO_ROUTE);
	}
}

/* Nothing in the stack resolves a neighbour for us: this packet goes through
 * the kernel's neighbour queue, and a later one finds the address. */
static __always_inline enum verdict
redirect_neigh(struct packet *p, const struct bpf_fib_lookup *fib)
{
	struct bpf_redir_neigh nh = { .nh_family = fib->family };

	if (fib->family == AF_INET6)
		__builtin_memcpy(nh.ipv6_nh, fib->ipv6_dst, 16);
	else
		nh.ipv4_nh = fib->ipv4_dst;
	p->action = bpf_redirect_neigh(fib->ifindex, &nh, sizeof(nh), 0);
	return VERDICT_REDIRECT;
}

/* Is the next hop the target itself, and no router? */
static __always_inline bool is_on_link(const struct bpf_fib_lookup *fib,
				       const struct ip_addr *target)
{
	if (is_mapped_ipv4(target))
		return fib->family == AF_INET &&
		       fib->ipv4_dst == target->word[3];
	return !__builtin_memcmp(fib->ipv6_dst, target, sizeof(*target));
}

static __always_inline __u8 link_hop_kind(const struct packet *p, __u32 ifindex)
{
	__u32 *flags = bpf_map_lookup_elem(&links, &ifindex);

	if (!flags)
		return HOP_REDIRECT;
	if (*flags & LINK_LAYER3)
		return HOP_LAYER3;
	return redirect_peer && (*flags & LINK_PEER) ? HOP_PEER : HOP_REDIRECT;
}

/* How much the outer header of a tunnel makes a packet longer. */
static __always_inline __u16 tunnel_overhead(const struct connection *c,
					     const struct ip_addr *target)
{
	return (is_mapped_ipv4(target) ? sizeof(struct iphdr) :
					 sizeof(struct ipv6hdr)) +
	       (c->hop & HOP_TUNNEL_GUE ? sizeof(struct udphdr) : 0);
}

/* Is it an address of this machine? Not if it is a VIP that only the load
 * balancer has put there. */
static __noinline bool is_local_address(const struct ip_addr *target)
{
	struct ip_addr addr = *target;

	return bpf_map_lookup_elem(&local_addresses, &addr);
}

/* Finds the next hop and caches it (CONTINUE), or leaves that to the kernel
 * (REDIRECT). Once per direction and epoch, and global: the verifier looks at it
 * by itself instead of in each of its callers' states. */
__noinline enum verdict next_hop_resolve(ctx_t *ctx, struct packet *p,
					 struct connection *c)
{
	struct bpf_fib_lookup fib = {};
	const struct ip_addr *target;
	bool plain; /* does the way depend on the target alone? */
	long code;
	__u8 kind;

	if (!p || !c) /* for the verifier */
		return VERDICT_DROP;
	target = next_hop_target(c);
	if (!target)
		return drop(p, DROP_NO_ROUTE);
	plain = p->l3 && !(c->traits & CONN_ONE_WAY) && !(c->hop & ~HOP_KINDS);
	if (plain && next_hop_cache_get(target, hop_epoch(p), c)) {
		c->hop_epoch = hop_epoch(p);
		return VERDICT_CONTINUE;
	}
	code = next_hop_lookup(ctx, p, c, target, &fib);
	if (c->hop & HOP_FAMILY)
		c->mtu = family_mtu(c, c->mtu);
	if (c->hop & HOP_TUNNELS)
		c->mtu -= tunnel_overhead(c, target);

	if (code == BPF_FIB_LKUP_RET_NOT_FWDED &&
	    !(c->hop & (HOP_FAMILY | HOP_TUNNELS)) &&
	    is_local_address(target)) {
		c->hop = (c->hop & ~HOP_KINDS) | HOP_LOCAL;
		c->mtu = 0xffff;
		c->hop_epoch = hop_epoch(p);
		return VERDICT_CONTINUE;
	}
	if (!fib_found(code))
		return fib_drop(p, code);
	kind = link_hop_kind(p, fib.ifindex);
	if ((c->traits & CONN_ONE_WAY) && !(c->hop & HOP_TUNNELS) &&
	    kind != HOP_LAYER3 && !is_on_link(&fib, target))
		return drop(p, DROP_DSR_ROUTED);
	/* redirect_neigh takes an Ethernet header off, and silently drops what
	 * came without one */
	if (kind != HOP_LAYER3 && !p->l3) {
		if (bpf_skb_change_head(ctx, ETH_HLEN, 0))
			return drop(p, DROP_NOT_LINEAR);
		p->l3 += ETH_HLEN;
		p->l4 += ETH_HLEN;
		return redirect_neigh(p, &fib);
	}
	if (kind != HOP_LAYER3 && code == BPF_FIB_LKUP_RET_NO_NEIGH)
		return redirect_neigh(p, &fib);
	c->ifindex = fib.ifindex;
	__builtin_memcpy(c->dmac, fib.dmac, 6);
	__builtin_memcpy(c->smac, fib.smac, 6);
	c->hop = (c->hop & ~HOP_KINDS) | kind;
	/* a packet without a link-layer header asks anew each time */
	if (p->l3)
		c->hop_epoch = hop_epoch(p);
	if (plain)
		next_hop_cache_put(target, hop_epoch(p), c);
	return VERDICT_CONTINUE;
}

/* A packet of more than 64 KiB has this before its TCP header while it is on its
 * way between devices of one machine: a hop-by-hop header with the jumbo payload
 * option (RFC 2675). */
#define JUMBO_HEADER 8

/* The length of the packet, or of each of the packets that it will be cut into,
 * the last one perhaps excepted. */
static __noinline __u32 segment_length(ctx_t *ctx, const struct packet *p)
{
	__u32 payload, headers, segment = ctx->gso_size;

	if (!segment)
		return p->length;
	payload = p->tuple.protocol == IPPROTO_TCP ?
			  p->seq_end - p->seq - !!(p->tcp_flags & TCP_SYN) -
				  !!(p->tcp_flags & TCP_FIN) :
			  p->length - (p->l4 - p->l3) - sizeof(struct udphdr);
	headers = p->length - payload;
	if (p->ipv6 && p->length > 0xffff + sizeof(struct ipv6hdr))
		headers -= JUMBO_HEADER; /* goes when it is cut */
	return headers + segment;
}

/* A packet that is longer than the MTU: CONTINUE if it is many segments that
 * each fit. One that does not fit is never fragmented here, even where IPv4
 * would allow it: senders heed the answer all the same, and send less. */
static __noinline enum verdict next_hop_check_mtu(ctx_t *ctx, struct packet *p,
						  struct connection *c)
{
	if (segment_length(ctx, p) <= c->mtu)
		return VERDICT_CONTINUE;
	if (p->later_fragment) /* nobody is told of one (RFC 1122) */
		return drop(p, DROP_TOO_BIG);
	return drop_and_answer(p, DROP_TOO_BIG,
			       ANSWER_TOO_BIG | c->mtu << ANSWER_MTU_SHIFT);
}

/* CONTINUE: the connection's next hop is known, and takes the packet. REDIRECT:
 * the kernel will find it, once the packet is translated. Asked before that, so
 * that an answer quotes what the sender sent. */
static __always_inline enum verdict
next_hop_prepare(ctx_t *ctx, struct packet *p, struct connection *c, __u16 l3)
{
	enum verdict v = VERDICT_CONTINUE;

	if (unlikely(!next_hop_is_current(p, c) || !l3)) {
		v = next_hop_resolve(ctx, p, c);
		if (v == VERDICT_DROP)
			return v;
	}
	if (unlikely(p->length > c->mtu)) {
		enum verdict fits = next_hop_check_mtu(ctx, p, c);

		if (fits != VERDICT_CONTINUE)
			return fits;
	}
	return v;
}

/* What the program answers for a packet that leaves by an interface. */
static __always_inline int hop_redirect(__u8 kind, __u32 ifindex)
{
	return kind == HOP_PEER ? bpf_redirect_peer(ifindex, 0) :
				  bpf_redirect(ifindex, 0);
}

/* The packet leaves here: as an Ethernet frame, its headers translated. */
static __always_inline enum verdict forward(ctx_t *ctx, struct packet *p,
					    struct connection *c)
{
	__u32 ifindex = c->ifindex;
	__u8 *mac;

	mac = ctx_header(ctx, 0, 14);
	if (!mac)
		return drop(p, DROP_NOT_LINEAR);
	macs_copy(mac, c->dmac);
	p->action = hop_redirect(c->hop, ifindex);
	return VERDICT_REDIRECT;
}

#endif
