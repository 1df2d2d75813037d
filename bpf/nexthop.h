/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * nexthop.h - next hops found lately, by destination.
 *
 * A new connection asks for its way in both directions, and most have been asked
 * for before: to the same endpoint, to the same client. bpf_fib_lookup is 500
 * instructions (IPv6: 1,000), a row here 60. Only while user space says that a
 * next hop depends on nothing but the destination: no rule asks for the source,
 * the protocol or ports, no route has a source or several next hops.
 *
 * Rows are per CPU and are never searched for: the one place that an address may
 * have is a hash of it, and who comes later has it. They are valid for an epoch
 * as those in connections are (epoch.h).
 */
#ifndef LOXILB_NEXTHOP_H
#define LOXILB_NEXTHOP_H

#include <bpf/bpf_helpers.h>
#include "conntrack.h"
#include "ethernet.h"
#include "maps.h"

/* Do all packets to an address take the same way? Written by user. */
volatile __u32 next_hops_shared SEC(".data.runtime") = 0;

static __always_inline struct next_hop *
next_hop_cache_row(const struct ip_addr *target)
{
	__u32 hash = target->word[0] ^ target->word[1] ^ target->word[2] ^
		     target->word[3];

	hash *= 0x9e3779b1;
	hash >>= 32 - NEXT_HOPS_SHIFT;
	return bpf_map_lookup_elem(&next_hops, &hash);
}

/* Fills in the way of a direction if it is known. */
static __always_inline bool next_hop_cache_get(const struct ip_addr *target,
					       __u32 epoch,
					       struct connection *c)
{
	const struct next_hop *row;

	if (!next_hops_shared)
		return false;
	row = next_hop_cache_row(target);
	if (!row || row->epoch != epoch || !same_addr(&row->target, target))
		return false;
	c->ifindex = row->ifindex;
	macs_copy(c->dmac, row->dmac);
	c->mtu = row->mtu;
	c->hop = (c->hop & ~HOP_KINDS) | row->kind;
	return true;
}

static __always_inline void next_hop_cache_put(const struct ip_addr *target,
					       __u32 epoch,
					       const struct connection *c)
{
	struct next_hop *row;

	if (!next_hops_shared)
		return;
	row = next_hop_cache_row(target);
	if (!row)
		return;
	row->target = *target;
	row->ifindex = c->ifindex;
	macs_copy(row->dmac, c->dmac);
	row->mtu = c->mtu;
	row->kind = c->hop & HOP_KINDS;
	row->epoch = epoch;
}

#endif
