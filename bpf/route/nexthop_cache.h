/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * nexthop_cache.h - a cache of next hops by destination.
 *
 * A new connection needs the next hops of both directions, and most were looked up
 * before, for the same endpoint or the same client. bpf_fib_lookup takes 500
 * instructions (IPv6: 1,000), this cache 60. It is used only while user space reports
 * that a next hop depends on the destination alone: no rule matches on the source, the
 * protocol or ports, and no route has a source or several next hops.
 *
 * The cache is per CPU. An address has one row, by its hash; a later address with that
 * hash replaces it. Rows are valid for an epoch, like next hops in connections (epoch.h).
 */
#ifndef LOXILB_NEXTHOP_CACHE_H
#define LOXILB_NEXTHOP_CACHE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "conntrack/conntrack.h"
#include "path/hop.h"

/* Whether the next hop depends on the destination alone. Written by user. */
volatile __u32 next_hops_shared SEC(".data.runtime") = 0;

static __always_inline struct next_hop *
next_hop_cache_row(const struct ip_addr *target)
{
	__u32 hash = target->word[0] ^ target->word[1] ^ target->word[2] ^
		     target->word[3];

	hash *= (__u32)(HASH_FACTOR >> 32);
	hash >>= 32 - NEXT_HOPS_SHIFT;
	return bpf_map_lookup_elem(&next_hops, &hash);
}

/* Stores the next hop to an address in a connection, if it is cached and fresh. */
static __always_inline bool next_hop_cache_get(const struct ip_addr *target,
					       __u32 epoch,
					       struct connection *c)
{
	const struct next_hop *row;
	const struct hop *w;

	if (!next_hops_shared)
		return false;
	row = next_hop_cache_row(target);
	if (!row || row->epoch != epoch || !same_addr(&row->target, target))
		return false;
	w = hop_row(row->way);
	if (!w || !hop_is_fresh(w))
		return false;
	connection_set_hop(c, row->way, epoch);
	return true;
}

static __always_inline void next_hop_cache_put(const struct ip_addr *target,
					       __u32 epoch, __u16 hop)
{
	struct next_hop *row;

	if (!next_hops_shared)
		return;
	row = next_hop_cache_row(target);
	if (!row)
		return;
	row->target = *target;
	row->way = hop;
	row->epoch = epoch;
}

#endif
