/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * epoch.h - how long the next hop of a connection's packets is valid.
 *
 * Each direction of a connection knows its next hop for one epoch. The epoch is the
 * generation of routes, which user space increases when a route, a rule, an address or
 * a link changes, plus the clock in units of 8,192 jiffies (33 s at 250 Hz). Because of
 * the clock, a machine without its daemon notices such changes too.
 *
 * The MAC addresses of a next hop belong to a generation of neighbours. If only this
 * generation is outdated, one packet looks up the next hop again for all of its connections.
 */
#ifndef LOXILB_EPOCH_H
#define LOXILB_EPOCH_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "packet/packet.h"

#define HOP_EPOCH_SHIFT 13
#define HOP_EPOCH_JIFFIES (1U << HOP_EPOCH_SHIFT)

/* The row for sockets of this machine, never used by another next hop. */
#define LOCAL_HOP 0

/* Written by user at run time, so in a separate section. The generation of neighbours
 * has 31 bits. A new generation of routes includes a new one of neighbours. */
volatile __u32 hop_generation SEC(".data.runtime") = 0;
volatile __u32 neighbour_generation SEC(".data.runtime") = 0;

/* Returns the epoch at a time in jiffies. A row of next_hops keeps all 32 bits,
 * a connection 16. */
static __always_inline __u32 epoch_at(__u32 now)
{
	return hop_generation + (now >> HOP_EPOCH_SHIFT);
}

/* Returns the current epoch. */
static __always_inline __u32 hop_epoch(const struct packet *p)
{
	return epoch_at(p->now);
}

/* Reports whether the connection's next hop is of this epoch. */
static __always_inline bool hop_is_current(const struct connection *c,
					   __u32 now)
{
	return c->way_epoch == (__u16)epoch_at(now);
}

/* Reports whether programs of this daemon found the connection's next hop: each daemon has
 * its own map of ways. For connections that were used within one epoch. */
static __always_inline bool hop_is_of_daemon(const struct connection *c,
					     __u32 now)
{
	return (__u16)(epoch_at(now) - c->way_epoch) < EPOCHS_OF_DAEMON;
}

/* Stores the connection's next hop, in one store: a reader of the epoch on another CPU
 * gets the matching next hop. */
static __always_inline void connection_set_hop(struct connection *c, __u32 hop,
					       __u32 epoch)
{
	*(volatile __u32 *)&c->way = hop | epoch << 16;
}

/* Makes the next packet look up the connection's next hop again. */
static __always_inline void hop_forget(struct connection *c, __u32 now)
{
	c->way_epoch = epoch_at(now) - 1;
}

/* Forgets the next hop of a direction that was silent for longer than an epoch: otherwise a
 * later epoch may have the same 16 bits, while the next hop's row belongs to another next hop
 * (hop_find.h), and its rule no longer applies. Called before the time of the last
 * packet changes. */
static __always_inline void hop_forget_if_silent(struct connection *c,
						 __u32 now)
{
	if (likely(now - c->seen <= HOP_EPOCH_JIFFIES))
		return;
	connection_set_hop(c, LOCAL_HOP, epoch_at(now) - 1);
}

/* Forgets an old next hop when that time changes although the next hop is not used. */
static __always_inline void hop_forget_if_old(struct connection *c, __u32 now)
{
	if (!hop_is_current(c, now))
		hop_forget(c, now);
	else
		hop_forget_if_silent(c, now);
}

#endif
