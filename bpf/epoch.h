/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * epoch.h - for how long a cached next hop is valid.
 *
 * Each direction of a connection caches its next hop for one epoch. The epoch
 * is the generation that user space increases when a neighbour, a route or a
 * link changes, plus the clock in units of 8,192 jiffies (33 s at 250 Hz).
 * Because of the clock, a machine whose daemon is gone follows such changes
 * too.
 */
#ifndef LOXILB_EPOCH_H
#define LOXILB_EPOCH_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "packet.h"

#define HOP_EPOCH_SHIFT 13

/* User space increases it when a neighbour, a route or a link changes. Each
 * connection then resolves its next hop again with its next packet. In a
 * section of its own, because user space writes it at run time. */
volatile __u32 hop_generation SEC(".data.runtime") = 0;

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

/* Is the connection's cached next hop valid? */
static __always_inline bool next_hop_is_current(const struct packet *p,
						const struct connection *c)
{
	return c->hop_epoch == (__u16)hop_epoch(p);
}

#endif
