/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * hop_find.h - finds and makes the rows of next hops.
 *
 * The key of a row does not change while the row is in use. Only the gateway's MAC
 * address does: it is written in one store, together with two constant bytes of the
 * source address, by one CPU at a time, which also stores its generation of neighbours.
 *
 * A row that was not confirmed for four epochs may be reused for another next hop. No
 * connection uses it then:
 *
 * - A user of a row confirms it, or finds that it was confirmed within one epoch.
 * - A connection, or a row of next_hops, uses it for the rest of that epoch. A
 *   connection stores 16 bits of the epoch. Between two of its packets lies less than an
 *   epoch (otherwise the next hop is forgotten), in which the daemon makes some thousand
 *   generations at most: the next packet after the epoch's end finds other bits. A new
 *   daemon continues where the last one was.
 * - So a next hop in use was confirmed two epochs ago at most. The other two, 16 s at
 *   1,000 Hz, are for a packet that has begun to use it.
 * - Confirming and claiming are compare-and-swaps of one word: of two CPUs that do both
 *   at the same time, one fails.
 */
#ifndef LOXILB_HOP_FIND_H
#define LOXILB_HOP_FIND_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/clock.h"
#include "packet/packet.h"
#include "path/hop.h"

/* How many rows are searched for a next hop. */
#define HOP_PROBES 8

/* How long a row cannot be claimed after it was confirmed. */
#define HOP_KEPT (4 * HOP_EPOCH_JIFFIES)

/* Writes the MAC address of a row, as found in a generation of neighbours. If another
 * CPU writes concurrently, or a later generation has begun, the row may remain stale.
 * Within a generation, the last writer wins. */
static __always_inline void hop_set_macs(struct hop *w, __u64 macs,
					 __u32 neighbours)
{
	__u32 had = *(volatile __u32 *)&w->neighbours;

	if (likely(had == neighbours)) {
		if (unlikely(w->macs != macs))
			*(volatile __u64 *)&w->macs = macs;
		return;
	}
	if (had == HOP_IS_WRITTEN ||
	    __sync_val_compare_and_swap(&w->neighbours, had, HOP_IS_WRITTEN) !=
		    had)
		return;
	*(volatile __u64 *)&w->macs = macs;
	__sync_lock_test_and_set(&w->neighbours, neighbours);
}

static __always_inline bool same_hop(const struct hop_key *a,
				     const struct hop_key *b)
{
	typedef __u64 __attribute__((may_alias)) word;
	const word *x = (const word *)a, *y = (const word *)b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

static __always_inline __u32 hop_hash(const struct hop_key *key)
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
static __always_inline __u64 hop_claim_read(struct hop *w)
{
	return __sync_fetch_and_or(&w->claim, 0);
}

/* Reports whether the row holds this next hop. Then it does so for HOP_KEPT minus one
 * epoch. */
static __always_inline bool hop_confirm(struct hop *w,
					const struct hop_key *key, __u32 now)
{
	__u64 claim = hop_claim_read(w), next, found;

	if (!claim || claim & HOP_CLAIMED || !same_hop(&w->key, key))
		return false;
	if (likely(now - (__u32)claim <= HOP_EPOCH_JIFFIES))
		return true;
	next = (claim >> 32 << 32) | now;
	found = __sync_val_compare_and_swap(&w->claim, claim, next);
	return found >> 32 == claim >> 32; /* otherwise it was claimed */
}

/* Claims the row for this next hop, unless it is in use. */
static __always_inline bool hop_claim(struct hop *w, const struct hop_key *key,
				      __u32 now, __u64 macs, __u32 neighbours)
{
	__u64 claim = hop_claim_read(w), next;

	if (claim && jiffies_within(claim, now, HOP_KEPT))
		return false;
	next = ((((claim >> 32) + 1) << 32) & ~HOP_CLAIMED) | now;
	if (__sync_val_compare_and_swap(&w->claim, claim, next | HOP_CLAIMED) !=
	    claim)
		return false;
	w->key = *key;
	w->macs = macs;
	w->neighbours = neighbours;
	__sync_lock_test_and_set(&w->claim, next);
	return true;
}

/* Finds the row of a next hop, or claims one, and sets its MAC address (see
 * hop_set_macs()). Returns 0 if there is no room: then the next hop is not stored. Two
 * CPUs may claim a row each for the same next hop; then one of the rows is never confirmed
 * again. Global (verifier: globals). */
__noinline __u32 hop_find(const struct hop_key *key, __u32 now, __u64 macs,
			  __u32 neighbours)
{
	__u32 first, i;
	struct hop *w;

	if (!key) /* verifier: null */
		return 0;
	first = hop_hash(key);
	for (int n = 0; n < 2 * HOP_PROBES; n++) {
		i = (first + n % HOP_PROBES) % HOPS;
		w = hop_row(i);
		if (!w || i == LOCAL_HOP)
			continue;
		if (n >= HOP_PROBES) {
			if (hop_claim(w, key, now, macs, neighbours))
				return i;
		} else if (hop_confirm(w, key, now)) {
			hop_set_macs(w, macs, neighbours);
			return i;
		}
	}
	return 0;
}

/* Makes the row for sockets of this machine. It may be repeated, since all CPUs write
 * the same. */
static __always_inline void hop_make_local(__u32 neighbours)
{
	struct hop *w = hop_row(LOCAL_HOP);

	if (!w)
		return;
	w->key.kind = HOP_LOCAL;
	w->key.mtu = 0xffff;
	hop_set_macs(w, 0, neighbours);
}

#endif
