/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * way.h - next hops, shared by connections.
 *
 * A way is an interface, a gateway, an MTU, and the frame header that results from
 * them. There are few, whatever the number of connections: a connection holds an index,
 * and when a neighbour changes its MAC address, each way costs one lookup instead of
 * each connection. docs/adr/0029-next-hops.md has the alternatives; way_find.h
 * describes how rows are made and reused.
 */
#ifndef LOXILB_WAY_H
#define LOXILB_WAY_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "table/epoch.h"

static __always_inline struct way *way_row(__u32 i)
{
	return bpf_map_lookup_elem(&ways, &i);
}

/* Returns the connection's way. It is valid iff way_is_current(). */
static __always_inline struct way *way_of(const struct connection *c)
{
	return way_row(c->way);
}

/* Reports whether the MAC address is of the current generation of neighbours. */
static __always_inline bool way_is_fresh(const struct way *w)
{
	return *(volatile __u32 *)&w->neighbours == neighbour_generation;
}

/* Reports whether the connection's way is known, with its current MAC address. */
static __always_inline bool next_hop_is_known(const struct packet *p,
					      const struct connection *c,
					      const struct way *w)
{
	return w && way_is_current(c, p->now) && way_is_fresh(w);
}

/* Reports whether the packet leaves on the common path: by a known way, as an
 * Ethernet frame that fits the MTU, without further work. */
static __always_inline bool way_is_common(const struct packet *p,
					  const struct connection *c,
					  const struct way *w)
{
	return next_hop_is_known(p, c, w) &&
	       (c->hop | w->key.kind) <= HOP_PEER && p->length <= w->key.mtu;
}

#endif
