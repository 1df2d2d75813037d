/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * forward.h - resolves next hops, and redirects packets to them.
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
#include "rows.h"
#include "nexthop.h"
#include "packet.h"
#include "parse.h"

#define AF_INET 2
#define AF_INET6 10
#define LOOPBACK_IFINDEX 1

/* An IPv6 header is this much longer than an IPv4 header. */
#define FAMILY_GROWTH 20

/* Does this direction of a connection leave as IPv6? */
static __always_inline bool leaves_as_ipv6(const struct connection *c)
{
	return !is_mapped_ipv4(&c->daddr);
}

/* Returns the address that an entry's packets are routed to, whatever their
 * destination says. NULL: the endpoint is gone. */
static __always_inline const struct ip_addr *
next_hop_target(const struct connection *c)
{
	__u32 id = c->endpoint;
	struct endpoint *ep;

	if (!(c->traits & CONN_ONE_WAY))
		return &c->daddr;
	ep = endpoint_find(id);
	return ep ? &ep->addr : NULL;
}

/* Fills in a route look-up as if the packet came from loopback. Then only that
 * interface's forwarding sysctl counts, and the machine need not forward on all
 * interfaces to be a load balancer. */
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

/* Has a look-up found a next hop? FRAG_NEEDED is about that packet only, and a
 * missing neighbour will be found. */
static __always_inline bool fib_found(long code)
{
	return code == BPF_FIB_LKUP_RET_SUCCESS ||
	       code == BPF_FIB_LKUP_RET_NO_NEIGH ||
	       code == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

/* Looks up the route of a direction of a connection. */
static __always_inline long fib_lookup(ctx_t *ctx, const struct packet *p,
				       const struct connection *c,
				       const struct ip_addr *target,
				       struct bpf_fib_lookup *fib)
{
	fib->l4_protocol = p->tuple.protocol;
	fib->sport = c->sport;
	fib->dport = c->dport;
	fib_addresses(fib, !is_mapped_ipv4(target), &c->saddr, target);
	if (c->traits &
	    CONN_ONE_WAY) /* the source may be of the other IP version */
		__builtin_memset(fib->ipv6_src, 0, sizeof(fib->ipv6_src));
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* Returns the MTU of the route, which may be smaller than the interface's. For
 * a look-up that has not returned it. */
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

/* Looks up the next hop, into fib, and the MTU on the way to it, into c. A
 * packet of one byte gets both at once; without a neighbour a second look-up is
 * needed. An MTU of 65,536, which only loopback has, reads as 0. */
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

/* Returns the length of the largest packet that fits the MTU after it was
 * translated to the other IP version. */
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

/* The neighbour is not resolved yet. This packet goes through the kernel's
 * neighbour queue, and a later one finds the MAC address. */
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

/* Is the next hop the target itself, not a router? */
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

/* Returns how much longer a tunnel's outer header makes a packet. */
static __always_inline __u16 tunnel_overhead(const struct connection *c,
					     const struct ip_addr *target)
{
	return (is_mapped_ipv4(target) ? sizeof(struct iphdr) :
					 sizeof(struct ipv6hdr)) +
	       (c->hop & HOP_TUNNEL_GUE ? sizeof(struct udphdr) : 0);
}

/* Is it an address of this machine? VIPs that only the load balancer has added
 * are not. */
static __noinline bool is_local_address(const struct ip_addr *target)
{
	struct ip_addr addr = *target;

	return bpf_map_lookup_elem(&local_addresses, &addr);
}

/* Finds the next hop and caches it (CONTINUE), or leaves the neighbour to the
 * kernel (REDIRECT). */
static __always_inline enum verdict next_hop_find(ctx_t *ctx, struct packet *p,
						  struct connection *c)
{
	struct bpf_fib_lookup fib = {};
	const struct ip_addr *target;
	bool plain; /* the next hop depends on the target alone */
	long code;
	__u8 kind;

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
		hop_set_kind(c, HOP_LOCAL);
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
	/* redirect_neigh removes an Ethernet header, and silently drops packets
	 * without one */
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
	hop_set_kind(c, kind);
	/* a packet without a link-layer header looks it up again each time */
	if (p->l3)
		c->hop_epoch = hop_epoch(p);
	if (plain)
		next_hop_cache_put(target, hop_epoch(p), c);
	return VERDICT_CONTINUE;
}

/* Resolves the next hop. Called once for each direction and epoch. If the
 * connection was deleted meanwhile, and its memory serves another, that one
 * must find its own next hop (state.h). Global: the verifier checks it by
 * itself, not in the states of each caller. */
__noinline enum verdict next_hop_resolve(ctx_t *ctx, struct packet *p,
					 struct connection *c)
{
	enum verdict v;
	__u32 word;

	if (!p || !c) /* for the verifier */
		return VERDICT_DROP;
	word = state_read(c);
	v = next_hop_find(ctx, p, c);
	if (unlikely(!state_is_current(c, word)))
		c->hop_epoch = hop_epoch(p) - 1;
	return v;
}

/* A packet of more than 64 KiB has this before its TCP header while it is
 * between devices of one machine: a hop-by-hop header with the jumbo payload
 * option (RFC 2675). */
#define JUMBO_HEADER 8

/* Returns the length of the packet, or of each packet that it will be segmented
 * into, except perhaps the last. */
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
		headers -= JUMBO_HEADER; /* removed by segmentation */
	return headers + segment;
}

/* Handles a packet that is longer than the MTU. Returns CONTINUE if it will be
 * segmented and each segment fits. Packets are never fragmented here, even
 * where IPv4 would allow it: senders heed the ICMP error all the same, and send
 * smaller ones. */
static __noinline enum verdict next_hop_check_mtu(ctx_t *ctx, struct packet *p,
						  struct connection *c)
{
	if (segment_length(ctx, p) <= c->mtu)
		return VERDICT_CONTINUE;
	if (p->later_fragment) /* no ICMP error is sent about it (RFC 1122) */
		return drop(p, DROP_TOO_BIG);
	return drop_and_answer(p, DROP_TOO_BIG,
			       ANSWER_TOO_BIG | c->mtu << ANSWER_MTU_SHIFT);
}

/* Makes sure that the connection's next hop is known and its MTU allows the
 * packet: CONTINUE. REDIRECT: the kernel resolves the neighbour, once the
 * packet is translated. Called before the translation, so that an ICMP error
 * quotes the packet that the sender sent. */
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

/* Returns the program's return code for a packet that leaves by an
 * interface. */
static __always_inline int hop_redirect(__u8 kind, __u32 ifindex)
{
	return kind == HOP_PEER ? bpf_redirect_peer(ifindex, 0) :
				  bpf_redirect(ifindex, 0);
}

/* Sends a translated packet as an Ethernet frame. */
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
