/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * hop.h - next hops, shared by connections.
 *
 * A next hop is an interface, a gateway, an MTU, and the frame header that results from
 * them. There are few, whatever the number of connections: a connection holds an index,
 * and when a neighbour changes its MAC address, each next hop costs one lookup instead of
 * each connection. docs/adr/0029-next-hops.md has the alternatives; hop_find.h
 * describes how rows are made and reused.
 */
#ifndef LOXILB_HOP_H
#define LOXILB_HOP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "table/epoch.h"

static __always_inline struct hop *hop_row(__u32 i)
{
	return bpf_map_lookup_elem(&ways, &i);
}

/* Returns the connection's next hop. It is valid iff hop_is_current(). */
static __always_inline struct hop *hop_of(const struct connection *c)
{
	return hop_row(c->way);
}

/* Reports whether the MAC address is of the current generation of neighbours. */
static __always_inline bool hop_is_fresh(const struct hop *w)
{
	return *(volatile __u32 *)&w->neighbours == neighbour_generation;
}

/* Reports whether the connection's next hop is known, with its current MAC address. */
static __always_inline bool next_hop_is_known(const struct packet *p,
					      const struct connection *c,
					      const struct hop *w)
{
	return w && hop_is_current(c, p->now) && hop_is_fresh(w);
}

/* Reports whether the packet leaves on the common path: by a known next hop, as an
 * Ethernet frame that fits the MTU, without further work. */
static __always_inline bool hop_is_common(const struct packet *p,
					  const struct connection *c,
					  const struct hop *w)
{
	return next_hop_is_known(p, c, w) &&
	       (c->hop | w->key.kind) <= HOP_PEER && p->length <= w->key.mtu;
}

#endif
