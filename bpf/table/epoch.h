/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * epoch.h - for how long it is known where a connection's packets go.
 *
 * Each direction of a connection knows its way for one epoch. The epoch is the
 * generation of routes, which user space increases when a route, a rule, an
 * address or a link changes, plus the clock in units of 8,192 jiffies (33 s at
 * 250 Hz). Because of the clock, a machine whose daemon is gone follows such
 * changes too.
 *
 * The MAC addresses of a way are of a generation of neighbours. When only that
 * is older, the way alone is looked up again, by one packet for all of its
 * connections.
 */
#ifndef LOXILB_EPOCH_H
#define LOXILB_EPOCH_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "packet/packet.h"

#define HOP_EPOCH_SHIFT 13
#define HOP_EPOCH_JIFFIES (1U << HOP_EPOCH_SHIFT)

/* The row of what goes to sockets of this machine. No other way gets it. */
#define WAY_LOCAL 0

/* Written by user at run time, so in a section of their own. Of neighbours, 31
 * bits count. A new generation of routes is one of neighbours too. */
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

/* Is the connection's way of this epoch? */
static __always_inline bool way_is_current(const struct connection *c,
					   __u32 now)
{
	return c->way_epoch == (__u16)epoch_at(now);
}

/* Was the connection's way found by programs of this daemon, whose map of ways no
 * other has? Of connections that were seen within an epoch's time. */
static __always_inline bool way_is_of_daemon(const struct connection *c,
					     __u32 now)
{
	return (__u16)(epoch_at(now) - c->way_epoch) < EPOCHS_OF_DAEMON;
}

/* Notes the connection's way, in one store: who reads the epoch on another CPU
 * has the way that belongs to it. */
static __always_inline void connection_set_way(struct connection *c, __u32 way,
					       __u32 epoch)
{
	*(volatile __u32 *)&c->way = way | epoch << 16;
}

/* Has the connection's way looked up again with the next packet. */
static __always_inline void way_forget(struct connection *c, __u32 now)
{
	c->way_epoch = epoch_at(now) - 1;
}

/* The same for a direction that was silent for longer than an epoch: else one
 * might come round whose 16 bits are the same, while the way's row serves another
 * (way_find.h). Nor is that row's rule its rule any more. Called before the time of
 * its last packet changes. */
static __always_inline void way_forget_if_silent(struct connection *c,
						 __u32 now)
{
	if (likely(now - c->seen <= HOP_EPOCH_JIFFIES))
		return;
	connection_set_way(c, WAY_LOCAL, epoch_at(now) - 1);
}

/* The same where that time changes although the way is not used. */
static __always_inline void way_forget_if_old(struct connection *c, __u32 now)
{
	if (!way_is_current(c, now))
		way_forget(c, now);
	else
		way_forget_if_silent(c, now);
}

#endif
