/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * policer.h - decides which packets are green, yellow or red: one rate and two bursts
 * (RFC 2697), or two rates (RFC 2698).
 *
 * A bucket is one word: the time when it was or will be empty. The time since then is
 * its content, so it needs no filling, and a compare-and-swap takes from it: CPUs share
 * it without a lock, and without shares of their own
 * (docs/adr/0052-connection-events.md).
 *
 * A packet that is larger than its bucket passes when the bucket is full, and puts it
 * into debt: otherwise large GSO packets would never pass.
 */
#ifndef LOXILB_POLICER_H
#define LOXILB_POLICER_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/packet.h"
#include "table/table.h"

/* How often a swap is tried. It fails when another CPU has taken from the bucket meanwhile. */
#define POLICER_ATTEMPTS 8

static __always_inline __u64 policer_min(__u64 a, __u64 b)
{
	return a < b ? a : b;
}

/* Takes a packet's cost from a bucket, if wanted and available. Returns whether it was
 * taken; *over is the surplus above the bucket's size. A bucket with too little is not
 * written: CPUs that refuse a flood do not contend for it. */
static __always_inline bool policer_take(__u64 *empty, __u64 now, __u64 cost,
					 __u64 burst, bool wanted, __u64 *over)
{
	__u64 enough = policer_min(cost, burst), found, from;

	wanted = wanted && burst;
	NO_UNROLL
	for (int i = 0; i < POLICER_ATTEMPTS; i++) {
		bool taken;

		found = *(volatile __u64 *)empty;
		from = found;
		*over = 0;
		if ((__s64)(now - burst - found) > 0) {
			from = now - burst;
			*over = from - found;
		}
		taken = wanted && (__s64)(now - from) >= (__s64)enough;
		if (taken)
			from += cost;
		if (from == found ||
		    __sync_val_compare_and_swap(empty, found, from) == found)
			return taken;
	}
	/* after too many failed swaps, assume that the bucket has enough; later
	 * packets pay for it */
	*over = 0;
	if (wanted)
		__sync_fetch_and_add(empty, cost);
	return wanted;
}

/* Adds the overflow of the committed bucket to the excess bucket, and takes a
 * packet's cost from it if wanted and available. */
static __always_inline bool policer_take_excess(__s64 *excess, __u64 over,
						__u64 cost, __u64 burst,
						bool wanted)
{
	__s64 enough = policer_min(cost, burst), found, left;

	wanted = wanted && burst;
	NO_UNROLL
	for (int i = 0; i < POLICER_ATTEMPTS; i++) {
		bool taken;

		found = *(volatile __s64 *)excess;
		left = found + (__s64)over;
		if (left > (__s64)burst)
			left = burst;
		taken = wanted && left >= enough;
		if (taken)
			left -= cost;
		if (left == found ||
		    __sync_val_compare_and_swap((__u64 *)excess, found, left) ==
			    (__u64)found)
			return taken;
	}
	if (wanted)
		__sync_fetch_and_add((__u64 *)excess, -cost);
	return wanted;
}

/* Returns the color of a packet that has this many units, bytes or packets. before:
 * the color that it has already. Global (verifier: globals). */
__noinline __maybe_unused enum color policer_meter(struct policer *m,
						   __u64 units, __u32 before)
{
	__u64 now = bpf_ktime_get_ns() << TICK_SHIFT, cost, over;

	if (!m) /* verifier: null */
		return COLOR_RED;
	if (!(m->flags & POLICER_COLOR_AWARE))
		before = COLOR_GREEN;
	cost = units * m->cost >> COST_SHIFT;
	if (!(m->flags & POLICER_ONE_RATE)) {
		if (!policer_take(&m->peak_empty, now,
				  units * m->peak_cost >> COST_SHIFT,
				  m->excess_burst, before != COLOR_RED, &over))
			return COLOR_RED;
		return policer_take(&m->empty, now, cost, m->burst,
				    before == COLOR_GREEN, &over) ?
			       COLOR_GREEN :
			       COLOR_YELLOW;
	}
	if (policer_take(&m->empty, now, cost, m->burst, before == COLOR_GREEN,
			 &over)) {
		if (over)
			policer_take_excess(&m->excess, over, 0,
					    m->excess_burst, false);
		return COLOR_GREEN;
	}
	return policer_take_excess(&m->excess, over, cost, m->excess_burst,
				   before != COLOR_RED) ?
		       COLOR_YELLOW :
		       COLOR_RED;
}

/* Returns the color of a packet that has this many bytes on the wire, in this many
 * packets, and counts it. If the policer is just being removed, the packet is green. */
static __always_inline enum color policer_color(__u64 key, __u32 bytes,
						__u32 packets, __u32 before)
{
	struct policer *m = bpf_map_lookup_elem(&policers, &key);
	struct policed *n = bpf_map_lookup_elem(&policed_counts, &key);
	__u64 color;

	if (!m)
		return COLOR_GREEN;
	color = policer_meter(m, m->flags & POLICER_PACKETS ? packets : bytes,
			      before);
	/* the verifier tracks the bounds only of the full 64 bits that were compared */
	asm volatile("" : "+r"(color));
	if (color >= COLORS)
		return COLOR_RED;
	if (n) {
		n->packets[color] += packets;
		n->bytes[color] += bytes;
	}
	return color;
}

#endif
