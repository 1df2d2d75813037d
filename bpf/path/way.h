/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * way.h - next hops, which connections refer to.
 *
 * A way is an interface, a gateway, an MTU, and what they make of a frame. There
 * are few, whatever the number of connections. So a connection holds an index,
 * and a neighbour that has another MAC address costs one look-up for each way
 * instead of one for each connection. docs/adr/0029-next-hops.md has the
 * alternatives, way_find.h how rows are made and used again.
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

/* Is the MAC address of the present neighbours? */
static __always_inline bool way_is_fresh(const struct way *w)
{
	return *(volatile __u32 *)&w->neighbours == neighbour_generation;
}

/* Is the connection's way known, with the MAC address that it has now? */
static __always_inline bool next_hop_is_known(const struct packet *p,
					      const struct connection *c,
					      const struct way *w)
{
	return w && way_is_current(c, p->now) && way_is_fresh(w);
}

/* Does the packet leave as most do: by a way that is known, as an Ethernet frame
 * that fits the MTU, and nothing more? */
static __always_inline bool way_takes(const struct packet *p,
				      const struct connection *c,
				      const struct way *w)
{
	return next_hop_is_known(p, c, w) &&
	       (c->hop | w->key.kind) <= HOP_PEER && p->length <= w->key.mtu;
}

#endif
