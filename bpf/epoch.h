/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * epoch.h - how long a next hop is good.
 *
 * Each direction of a connection caches its next hop, valid for one epoch: the
 * generation that user space bumps when a neighbour, a route or a link changes,
 * plus the clock in units of 8,192 jiffies (33 s at 250 Hz), so that a machine
 * whose daemon is gone still follows such changes.
 */
#ifndef LOXILB_EPOCH_H
#define LOXILB_EPOCH_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "packet.h"

#define HOP_EPOCH_SHIFT 13

/* Bumped by user space when a neighbour, route or link changes; every cached
 * next hop is then resolved again by the next packet that wants it. A section
 * of its own, because user space writes it at run time. */
volatile __u32 hop_generation SEC(".data.runtime") = 0;

/* What is kept for long keeps all of it, a connection 16 bits. */
static __always_inline __u32 hop_epoch(const struct packet *p)
{
	return hop_generation + (p->now >> HOP_EPOCH_SHIFT);
}

/* Is the next hop of a connection of this epoch? */
static __always_inline bool next_hop_is_current(const struct packet *p,
						const struct connection *c)
{
	return c->hop_epoch == (__u16)hop_epoch(p);
}

#endif
