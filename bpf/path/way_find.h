/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * way_find.h - finds and makes the rows of ways.
 *
 * The key of a row does not change while the row is in use. Only the gateway's MAC
 * address does: it is written in one store, together with two constant bytes of the
 * source address, by one CPU at a time, which also stores its generation of neighbours.
 *
 * A row that was not confirmed for four epochs may be reused for another way. No
 * connection uses it then:
 *
 * - A user of a row confirms it, or finds that it was confirmed within one epoch.
 * - A connection, or a row of next_hops, uses it for the rest of that epoch. A connection stores 16 bits of the epoch. Between two of its packets lies less than an epoch (otherwise the way is forgotten), in which the daemon makes some thousand generations at most: the next packet after the epoch's end finds other bits. A new daemon continues where the last one was.
 * - So a way in use was confirmed two epochs ago at most. The other two, 16 s at 1,000 Hz, are for a packet that has begun to use it.
 * - Confirming and claiming are compare-and-swaps of one word, so of two CPUs that do both at once, one fails.
 */
#ifndef LOXILB_WAY_FIND_H
#define LOXILB_WAY_FIND_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/clock.h"
#include "packet/packet.h"
#include "path/way.h"

/* How many rows are searched for a way. */
#define WAY_PROBES 8

/* How long a row cannot be claimed after it was confirmed. */
#define WAY_KEPT (4 * HOP_EPOCH_JIFFIES)

/* Writes the MAC address of a row, as found in a generation of neighbours. If another
 * CPU writes concurrently, or a later generation has begun, the row may remain stale.
 * Within a generation, the last writer wins. */
static __always_inline void way_set_macs(struct way *w, __u64 macs,
					 __u32 neighbours)
{
	__u32 had = *(volatile __u32 *)&w->neighbours;

	if (likely(had == neighbours)) {
		if (unlikely(w->macs != macs))
			*(volatile __u64 *)&w->macs = macs;
		return;
	}
	if (had == WAY_IS_WRITTEN ||
	    __sync_val_compare_and_swap(&w->neighbours, had, WAY_IS_WRITTEN) !=
		    had)
		return;
	*(volatile __u64 *)&w->macs = macs;
	__sync_lock_test_and_set(&w->neighbours, neighbours);
}

static __always_inline bool same_way(const struct way_key *a,
				     const struct way_key *b)
{
	typedef __u64 __attribute__((may_alias)) word;
	const word *x = (const word *)a, *y = (const word *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static __always_inline __u32 way_hash(const struct way_key *key)
{
	typedef __u64 __attribute__((may_alias)) word;
	__u64 hash = 0;

	for (int i = 0; i < 4; i++) {
		hash = (hash ^ ((const word *)key)[i]) * HASH_FACTOR;
		hash ^= hash >> 32;
	}
	return hash;
}

/* Reads the word by which rows are confirmed and claimed, before the rest of the row. */
static __always_inline __u64 way_claim_read(struct way *w)
{
	return __sync_fetch_and_or(&w->claim, 0);
}

/* Reports whether the row holds this way. Then it does so for WAY_KEPT minus one
 * epoch. */
static __always_inline bool way_confirm(struct way *w,
					const struct way_key *key, __u32 now)
{
	__u64 claim = way_claim_read(w), next, found;

	if (!claim || claim & WAY_CLAIMED || !same_way(&w->key, key))
		return false;
	if (likely(now - (__u32)claim <= HOP_EPOCH_JIFFIES))
		return true;
	next = (claim >> 32 << 32) | now;
	found = __sync_val_compare_and_swap(&w->claim, claim, next);
	return found >> 32 == claim >> 32; /* otherwise it was claimed */
}

/* Claims the row for this way, unless it is in use. */
static __always_inline bool way_claim(struct way *w, const struct way_key *key,
				      __u32 now, __u64 macs, __u32 neighbours)
{
	__u64 claim = way_claim_read(w), next;

	if (claim && jiffies_within(claim, now, WAY_KEPT))
		return false;
	next = ((((claim >> 32) + 1) << 32) & ~WAY_CLAIMED) | now;
	if (__sync_val_compare_and_swap(&w->claim, claim, next | WAY_CLAIMED) !=
	    claim)
		return false;
	w->key = *key;
	w->macs = macs;
	w->neighbours = neighbours;
	__sync_lock_test_and_set(&w->claim, next);
	return true;
}

/* Finds the row of a way, or claims one, and sets its MAC address (see
 * way_set_macs()). Returns 0 if there is no room: then the way is not stored. Two
 * CPUs may claim a row each for the same way; then one of the rows is never confirmed
 * again. Global (verifier: globals). */
__noinline __u32 way_find(const struct way_key *key, __u32 now, __u64 macs,
			  __u32 neighbours)
{
	__u32 first, i;
	struct way *w;

	if (!key) /* verifier: null */
		return 0;
	first = way_hash(key);
	for (int n = 0; n < 2 * WAY_PROBES; n++) {
		i = (first + n % WAY_PROBES) % WAYS;
		w = way_row(i);
		if (!w || i == WAY_LOCAL)
			continue;
		if (n >= WAY_PROBES) {
			if (way_claim(w, key, now, macs, neighbours))
				return i;
		} else if (way_confirm(w, key, now)) {
			way_set_macs(w, macs, neighbours);
			return i;
		}
	}
	return 0;
}

/* Makes the row for sockets of this machine. It may be repeated, since all CPUs write
 * the same. */
static __always_inline void way_make_local(__u32 neighbours)
{
	struct way *w = way_row(WAY_LOCAL);

	if (!w)
		return;
	w->key.kind = HOP_LOCAL;
	w->key.mtu = 0xffff;
	way_set_macs(w, 0, neighbours);
}

#endif
