/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * nexthop.h - finds the next hop of a connection's packets.
 *
 * A next hop is stored in a row (hop.h), which the connection uses until the routes
 * change. Then it is looked up again: first in a cache, then in the kernel's routing
 * table.
 */
#ifndef LOXILB_NEXTHOP_H
#define LOXILB_NEXTHOP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "limit/attached.h"
#include "observe/stats.h"
#include "packet/address.h"
#include "packet/ctx.h"
#include "packet/ethernet.h"
#include "packet/packet.h"
#include "path/fib.h"
#include "path/hop.h"
#include "path/hop_find.h"
#include "route/forward.h"
#include "route/nexthop_cache.h"
#include "rules/ipsec.h"
#include "table/epoch.h"
#include "table/rows.h"
#include "translate/mtu.h"

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
	/* the source may be of the other IP version */
	if (c->traits & CONN_ONE_WAY)
		__builtin_memset(fib->ipv6_src, 0, sizeof(fib->ipv6_src));
	return bpf_fib_lookup(ctx, fib, sizeof(*fib), 0);
}

/* Returns the MTU of the route, which may be smaller than the interface's, if the
 * lookup has not returned it. */
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

/* Looks up the next hop, into fib, and its MTU. A packet of one byte gets both at
 * once; without a neighbour a second lookup is needed. An MTU of 65,536, which only
 * loopback has, reads as 0. */
static __always_inline long
next_hop_fib_lookup(ctx_t *ctx, const struct packet *p,
		    const struct connection *c, const struct ip_addr *target,
		    struct bpf_fib_lookup *fib, __u16 *mtu)
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

/* Fills in a next hop from the result of a lookup. On entry, hop->mtu is the route's MTU. */
static __always_inline void hop_describe(const struct packet *p,
					 const struct connection *c,
					 const struct ip_addr *target,
					 const struct bpf_fib_lookup *fib,
					 struct hop_key *hop)
{
	__u32 ifindex = fib->ifindex;
	__u32 *flags = bpf_map_lookup_elem(&links, &ifindex);

	hop->ifindex = ifindex;
	hop->mtu = mtu_before(c, target, hop->mtu);
	hop->kind = flags ? hop_kind_of(*flags) : HOP_REDIRECT;
	if (hop->kind == HOP_PEER && flags)
		hop->queues = *flags & LINK_QUEUES;
	hop->rule = p->rule;
	if (hop->kind == HOP_LAYER3)
		return;
	fib_gateway(fib, &hop->gateway);
	__builtin_memcpy(hop->smac, fib->smac, sizeof(hop->smac));
}

/* Reports whether the next hop leads to a router that would send the packet back: its
 * destination is still the VIP, if the endpoint answers directly without a tunnel. */
static __always_inline bool hop_loops_back(const struct connection *c,
					   const struct ip_addr *target,
					   const struct hop_key *hop)
{
	return (c->traits & CONN_ONE_WAY) && !(c->hop & HOP_TUNNELS) &&
	       hop->kind != HOP_LAYER3 && !same_addr(&hop->gateway, target);
}

/* Reports whether the next hop depends on the target alone. */
static __always_inline bool next_hop_is_cacheable(const struct packet *p,
						  const struct connection *c)
{
	return !p->rule && !(c->traits & CONN_ONE_WAY) &&
	       !(c->hop & ~(HOP_ATTACHED | HOP_HELPER));
}

/* Reports whether a lookup has found the target to be this machine itself. Then a
 * socket receives the packet. */
static __always_inline bool next_hop_is_local(const struct connection *c,
					      const struct ip_addr *target,
					      long code)
{
	return code == BPF_FIB_LKUP_RET_NOT_FWDED &&
	       !(c->hop & ~(HOP_ATTACHED | HOP_PROXY_STATES | HOP_HELPER)) &&
	       is_local_address(target);
}

/* Packets that found no row for their next hop. Written by the packet path; read by user. */
__u64 ways_full SEC(".data.runtime") = 0;

/* Stores a next hop in the connection and in the cache. REDIRECT: there are too many next hops,
 * so the kernel sends the packet. */
static __always_inline enum verdict
next_hop_record(ctx_t *ctx, struct packet *p, struct connection *c,
		const struct ip_addr *target, const struct hop_key *hop,
		__u64 macs, __u32 epoch, __u32 neighbours)
{
	__u32 found = hop_find(hop, p->now, macs, neighbours);

	if (!found) {
		__sync_fetch_and_add(&ways_full, 1);
		return send_without_hop(ctx, p, hop);
	}
	connection_set_hop(c, found, epoch);
	if (next_hop_is_cacheable(p, c))
		next_hop_cache_put(target, epoch, found);
	return VERDICT_CONTINUE;
}

/* Records that a socket of this machine receives the connection's packets. hop is the
 * caller's empty buffer, to save stack (verifier: stack). */
static __always_inline void next_hop_record_local(const struct packet *p,
						  struct connection *c,
						  struct hop_key *hop,
						  __u32 epoch, __u32 neighbours)
{
	__u32 found = LOCAL_HOP;

	if (p->rule) {
		hop->mtu = 0xffff;
		hop->kind = HOP_LOCAL;
		hop->rule = p->rule;
		found = hop_find(hop, p->now, 0, neighbours);
	}
	if (found == LOCAL_HOP)
		hop_make_local(neighbours);
	connection_set_hop(c, found, epoch);
}

/* Queries the kernel for the next hop to the target. REDIRECT: the kernel has no neighbour
 * there yet, and sends the packet when it has. */
static __always_inline enum verdict
next_hop_query(ctx_t *ctx, struct packet *p, struct connection *c,
	       const struct ip_addr *target, __u32 epoch, __u32 neighbours)
{
	struct bpf_fib_lookup fib = {};
	struct hop_key hop = {};
	long code;

	code = next_hop_fib_lookup(ctx, p, c, target, &fib, &hop.mtu);
	if (next_hop_is_local(c, target, code)) {
		next_hop_record_local(p, c, &hop, epoch, neighbours);
		return VERDICT_CONTINUE;
	}
	if (!fib_found(code))
		return fib_drop(p, code);
	hop_describe(p, c, target, &fib, &hop);
	if (hop_loops_back(c, target, &hop))
		return drop(p, DROP_DSR_ROUTED);
	p->mtu = hop.mtu;
	if (code == BPF_FIB_LKUP_RET_NO_NEIGH && hop.kind != HOP_LAYER3)
		return send_without_hop(ctx, p, &hop);
	return next_hop_record(ctx, p, c, target, &hop,
			       macs_begin(fib.dmac, fib.smac), epoch,
			       neighbours);
}

/* Returns the epoch of the result of a lookup for a packet: that in which IPsec
 * policies were checked for it. The current epoch is read first, as user space writes
 * it last. */
static __always_inline __u32 next_hop_epoch(const struct packet *p)
{
	const __u32 epoch = hop_epoch(p);

	return unlikely(ipsec_count) ? ipsec_epoch() : epoch;
}

/* Reports whether an IPsec policy refuses a packet whose next hop is to be looked up. A
 * separate step, since the stack has no room during the lookup. */
static __always_inline bool ipsec_drops(ctx_t *ctx, struct packet *p,
					const struct connection *c)
{
	if (likely(!ipsec_count))
		return false;
	ipsec_record_epoch(hop_epoch(p));
	return !next_hop_is_known(p, c, hop_of(c)) && ipsec_stops(ctx, p, c);
}

/* Looks up the connection's next hop and stores it (CONTINUE), or leaves the packet to the
 * kernel (REDIRECT). The result is of the epoch before the lookup. */
static __always_inline enum verdict
next_hop_lookup(ctx_t *ctx, struct packet *p, struct connection *c)
{
	const __u32 epoch = next_hop_epoch(p),
		    neighbours = neighbour_generation;
	const struct ip_addr *target = next_hop_target(c);

	if (!target)
		return drop(p, DROP_NO_ROUTE);
	if (next_hop_is_cacheable(p, c) && next_hop_cache_get(target, epoch, c))
		return VERDICT_CONTINUE;
	return next_hop_query(ctx, p, c, target, epoch, neighbours);
}

/* Records in the packet the rule that decided its connection: the rule of its next hop in
 * this epoch; otherwise the rule of its last next hop, which is better than none. */
static __always_inline void next_hop_record_rule(struct packet *p,
						 const struct connection *c)
{
	const struct hop *w;

	if (hop_is_current(c, p->now))
		p->rules_skipped = false;
	else if (!p->rules_skipped)
		return;
	w = hop_of(c);
	p->rule = w && hop_is_of_daemon(c, p->now) ? w->key.rule : 0;
}

/* Looks up the connection's next hop if it is not known. If the row belongs to another
 * connection by now, that connection must look up its own next hop (state.h). If rules could
 * not be checked for this packet, the next packet repeats the lookup. */
static __always_inline enum verdict
next_hop_refresh(ctx_t *ctx, struct packet *p, struct connection *c)
{
	__u32 word = state_read(c);
	enum verdict v;

	next_hop_record_rule(p, c);
	/* a new connection has no next hop: the first condition saves a lookup */
	if (hop_is_current(c, p->now) && next_hop_is_known(p, c, hop_of(c)))
		return VERDICT_CONTINUE;
	if (unlikely(flows_attached || p->rule || c->hop & HOP_ATTACHED))
		attached_record(p, c, word);
	v = next_hop_lookup(ctx, p, c);
	if (v != VERDICT_CONTINUE || p->rules_skipped ||
	    !state_is_current(c, word))
		hop_forget(c, p->now);
	return v;
}

/* Selects the connection's next hop: CONTINUE. REDIRECT: the kernel must send the packet,
 * either because it has no link-layer header and the next hop is on an Ethernet; or because
 * the next hop has another MAC address, which another CPU is about to write. */
static __always_inline enum verdict next_hop_use(ctx_t *ctx, struct packet *p,
						 const struct connection *c)
{
	const struct hop *w = hop_of(c);

	if (!w)
		return VERDICT_CONTINUE;
	p->mtu = w->key.mtu;
	if ((!p->l3 && w->key.kind < HOP_LAYER3) || !hop_is_fresh(w))
		return send_without_hop(ctx, p, &w->key);
	return VERDICT_CONTINUE;
}

/* Finds the connection's next hop, and checks its MTU: CONTINUE. REDIRECT: the kernel
 * finds the next hop, once the packet is translated. Called before the translation, so
 * that an ICMP error quotes the packet that the sender sent. Global (verifier:
 * globals). */
__noinline enum verdict next_hop_resolve(ctx_t *ctx, struct packet *p,
					 struct connection *c)
{
	enum verdict v, fits;

	if (!p || !c) /* verifier: null */
		return VERDICT_DROP;
	v = next_hop_refresh(ctx, p, c);
	if (v == VERDICT_CONTINUE)
		v = next_hop_use(ctx, p, c);
	if ((v != VERDICT_CONTINUE && v != VERDICT_REDIRECT) ||
	    p->length <= p->mtu)
		return v;
	/* the sender of a fragment learns its MTU at once, not in two steps */
	fits = mtu_check(ctx, p, p->mtu - fragment_growth(p, c));
	return fits == VERDICT_CONTINUE ? v : fits;
}

#endif
