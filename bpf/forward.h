/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * forward.h - resolves next hops, and redirects packets to them. A next hop that
 * was found is a way (way.h), which the connection refers to.
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
#include "way.h"
#include "way_find.h"

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

/* Looks up the next hop, into fib, and the MTU on the way to it. A packet of one
 * byte gets both at once; without a neighbour a second look-up is needed. An MTU
 * of 65,536, which only loopback has, reads as 0. */
static __always_inline long next_hop_lookup(ctx_t *ctx, const struct packet *p,
					    const struct connection *c,
					    const struct ip_addr *target,
					    struct bpf_fib_lookup *fib,
					    __u16 *mtu)
{
	long code;

	fib->tot_len = 1;
	code = fib_lookup(ctx, p, c, target, fib);
	*mtu = fib->mtu_result ? fib->mtu_result : 0xffff;
	if (code == BPF_FIB_LKUP_RET_SUCCESS)
		return code;
	*mtu = route_mtu(ctx, p, c, target, fib);
	__builtin_memset(fib, 0, sizeof(*fib));
	return fib_lookup(ctx, p, c, target, fib);
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

/* Returns the gateway that a look-up has found, or the target itself. */
static __always_inline void fib_gateway(const struct bpf_fib_lookup *fib,
					struct ip_addr *gateway)
{
	if (fib->family == AF_INET6)
		__builtin_memcpy(gateway, fib->ipv6_dst, 16);
	else
		map_ipv4(gateway, fib->ipv4_dst);
}

/* Sends a packet through the kernel's neighbour queue, which adds the MAC
 * addresses. */
static __noinline enum verdict redirect_neigh(struct packet *p, __u32 ifindex,
					      const struct ip_addr *gateway)
{
	struct bpf_redir_neigh nh = {};

	if (is_mapped_ipv4(gateway)) {
		nh.nh_family = AF_INET;
		nh.ipv4_nh = gateway->word[3];
	} else {
		nh.nh_family = AF_INET6;
		__builtin_memcpy(nh.ipv6_nh, gateway, 16);
	}
	p->action = bpf_redirect_neigh(ifindex, &nh, sizeof(nh), 0);
	return VERDICT_REDIRECT;
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

/* Returns the length of the largest packet that fits the MTU, before this
 * direction adds a tunnel's header to it or translates it to the other IP
 * version. */
static __always_inline __u16 mtu_before(const struct connection *c,
					const struct ip_addr *target, __u16 mtu)
{
	if (c->hop & HOP_TUNNELS)
		return mtu - tunnel_overhead(c, target);
	if (!(c->hop & HOP_FAMILY))
		return mtu;
	if (leaves_as_ipv6(c))
		return mtu - FAMILY_GROWTH;
	return mtu < 0xffff - FAMILY_GROWTH ? mtu + FAMILY_GROWTH : 0xffff;
}

/* Fills in what a look-up has found. way->mtu is the route's when it is
 * called. */
static __always_inline void way_describe(const struct packet *p,
					 const struct connection *c,
					 const struct ip_addr *target,
					 const struct bpf_fib_lookup *fib,
					 struct way_key *way)
{
	way->ifindex = fib->ifindex;
	way->mtu = mtu_before(c, target, way->mtu);
	way->kind = link_hop_kind(p, fib->ifindex);
	if (way->kind == HOP_LAYER3)
		return;
	fib_gateway(fib, &way->gateway);
	__builtin_memcpy(way->smac, fib->smac, sizeof(way->smac));
}

/* Does the way lead to a router that would bring the packet back? Its
 * destination is still the VIP, if the endpoint answers directly without a
 * tunnel. */
static __always_inline bool way_leads_astray(const struct connection *c,
					     const struct ip_addr *target,
					     const struct way_key *way)
{
	return (c->traits & CONN_ONE_WAY) && !(c->hop & HOP_TUNNELS) &&
	       way->kind != HOP_LAYER3 && !same_addr(&way->gateway, target);
}

/* A packet of more than 64 KiB has this before its TCP header while it is
 * between devices of one machine: a hop-by-hop header with the jumbo payload
 * option (RFC 2675). */
#define JUMBO_HEADER 8

/* Returns the length of the packet, or of each packet that it will be segmented
 * into, except perhaps the last. */
static __always_inline __u32 segment_length(ctx_t *ctx, const struct packet *p)
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

/* Handles a packet that is longer than its way's MTU. Returns CONTINUE if it will
 * be segmented and each segment fits. Packets are never fragmented here, even
 * where IPv4 would allow it: senders heed the ICMP error all the same, and send
 * smaller ones. */
static __noinline enum verdict next_hop_check_mtu(ctx_t *ctx, struct packet *p,
						  __u16 mtu)
{
	if (segment_length(ctx, p) <= mtu)
		return VERDICT_CONTINUE;
	if (p->later_fragment) /* no ICMP error is sent about it (RFC 1122) */
		return drop(p, DROP_TOO_BIG);
	return drop_and_answer(p, DROP_TOO_BIG,
			       ANSWER_TOO_BIG | mtu << ANSWER_MTU_SHIFT);
}

/* Sends a packet whose way is not kept: the kernel adds the MAC addresses. A
 * packet without a link-layer header gets room for one first: redirect_neigh()
 * removes it, and silently drops packets that have none. */
static __always_inline enum verdict
send_without_way(ctx_t *ctx, struct packet *p, const struct way_key *way)
{
	p->mtu = way->mtu;
	if (way->kind == HOP_LAYER3) {
		p->action = bpf_redirect(way->ifindex, 0);
		return VERDICT_REDIRECT;
	}
	if (!p->l3) {
		if (bpf_skb_change_head(ctx, ETH_HLEN, 0))
			return drop(p, DROP_NOT_LINEAR);
		p->l3 += ETH_HLEN;
		p->l4 += ETH_HLEN;
	}
	return redirect_neigh(p, way->ifindex, &way->gateway);
}

/* Does the way depend on the target alone? */
static __always_inline bool next_hop_is_plain(const struct connection *c)
{
	return !(c->traits & CONN_ONE_WAY) && !c->hop;
}

/* Finds the connection's way and notes it (CONTINUE), or leaves the packet to the
 * kernel (REDIRECT). */
static __always_inline enum verdict next_hop_find(ctx_t *ctx, struct packet *p,
						  struct connection *c)
{
	/* before the kernel's tables are asked */
	const __u32 epoch = hop_epoch(p), neighbours = neighbour_generation;
	const struct ip_addr *target = next_hop_target(c);
	struct bpf_fib_lookup fib = {};
	struct way_key way = {};
	__u32 found;
	long code;

	if (!target)
		return drop(p, DROP_NO_ROUTE);
	if (next_hop_is_plain(c) && next_hop_cache_get(target, epoch, c))
		return VERDICT_CONTINUE;
	code = next_hop_lookup(ctx, p, c, target, &fib, &way.mtu);
	if (code == BPF_FIB_LKUP_RET_NOT_FWDED && !c->hop &&
	    is_local_address(target)) {
		way_make_local(neighbours);
		connection_set_way(c, WAY_LOCAL, epoch);
		return VERDICT_CONTINUE;
	}
	if (!fib_found(code))
		return fib_drop(p, code);
	way_describe(p, c, target, &fib, &way);
	if (way_leads_astray(c, target, &way))
		return drop(p, DROP_DSR_ROUTED);
	if (code == BPF_FIB_LKUP_RET_NO_NEIGH && way.kind != HOP_LAYER3)
		return send_without_way(ctx, p, &way);
	found = way_find(&way, p->now, macs_begin(fib.dmac, fib.smac),
			 neighbours);
	if (!found) {
		way_count_full();
		return send_without_way(ctx, p, &way);
	}
	connection_set_way(c, found, epoch);
	if (next_hop_is_plain(c))
		next_hop_cache_put(target, epoch, found);
	return VERDICT_CONTINUE;
}

/* Finds the connection's way if it is not known. If the connection was removed
 * meanwhile, and its row serves another, that one must find its own (state.h). */
static __always_inline enum verdict next_hop_renew(ctx_t *ctx, struct packet *p,
						   struct connection *c)
{
	__u32 word = state_read(c);
	enum verdict v;

	if (next_hop_is_known(p, c, way_of(c)))
		return VERDICT_CONTINUE;
	v = next_hop_find(ctx, p, c);
	if (v != VERDICT_CONTINUE || !state_is_current(c, word))
		way_forget(c, p->now);
	return v;
}

/* Finds the connection's way, and asks whether its MTU allows the packet:
 * CONTINUE. REDIRECT: the kernel finds it, once the packet is translated. Called
 * before the translation, so that an ICMP error quotes the packet that the sender
 * sent. Global (verifier 1). */
__noinline enum verdict next_hop_prepare(ctx_t *ctx, struct packet *p,
					 struct connection *c)
{
	enum verdict v, fits;
	struct way *w;

	if (!p || !c) /* verifier 2 */
		return VERDICT_DROP;
	v = next_hop_renew(ctx, p, c);
	w = way_of(c);
	if (v == VERDICT_CONTINUE && w) {
		p->mtu = w->key.mtu;
		/* another CPU may be about to write a MAC address that is
		 * newer */
		if ((!p->l3 && w->key.kind < HOP_LAYER3) || !way_is_fresh(w))
			v = send_without_way(ctx, p, &w->key);
	}
	if ((v != VERDICT_CONTINUE && v != VERDICT_REDIRECT) ||
	    p->length <= p->mtu)
		return v;
	fits = next_hop_check_mtu(ctx, p, p->mtu);
	return fits == VERDICT_CONTINUE ? v : fits;
}

/* Returns the program's return code for a packet that leaves by an
 * interface. */
static __always_inline int hop_redirect(__u8 kind, __u32 ifindex)
{
	return kind == HOP_PEER ? bpf_redirect_peer(ifindex, 0) :
				  bpf_redirect(ifindex, 0);
}

/* Sends a packet as an Ethernet frame. It may be translated before or after: it
 * leaves when the program returns. */
static __always_inline enum verdict forward(ctx_t *ctx, struct packet *p,
					    const struct way *w)
{
	__u8 *mac = ctx_header(ctx, 0, ETH_HLEN);

	if (!mac)
		return drop(p, DROP_NOT_LINEAR);
	macs_write(mac, w);
	p->action = hop_redirect(w->key.kind, w->key.ifindex);
	return VERDICT_REDIRECT;
}

#endif
