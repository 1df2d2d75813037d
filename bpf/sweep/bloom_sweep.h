/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bloom_sweep.h - keeps bits of the next filter that only entries need.
 *
 * A connection may outlive the VIP, the range of ports or the right to open connections
 * that it used. Only its entries show which bits their packets need.
 */
#ifndef LOXILB_BLOOM_SWEEP_H
#define LOXILB_BLOOM_SWEEP_H

#include "filter/bloom.h"

/* Adds a bit to the next filter, if the current one has it. */
static __always_inline void bloom_add(struct bloom *b, const struct ip_addr *a,
				      __u32 port)
{
	__u32 number = bloom_bit(a, port), word = number / 64;
	__u64 bit = 1ULL << (number % 64);

	if (b->bits[word] & bit)
		b->next[word] |= bit;
}

/* Ensures that the next filter matches packets with this key. The current filter may
 * match them by any of several bits, so all of these are added. */
static __noinline void bloom_add_to_next(const struct connection_key *key)
{
	struct connection_key k = *key;
	const struct ip_addr every __attribute__((aligned(8))) = {};
	struct bloom *b = bloom_get();

	if (!b || !b->building || bloom_has(b->next, &k) ||
	    (b->next_wildcards && bloom_has_wildcard(b->next, &k)))
		return;
	bloom_add(b, &k.daddr, k.dport);
	bloom_add(b, &k.saddr, k.sport);
	bloom_add(b, &k.daddr, BLOOM_ALL_PORTS);
	bloom_add(b, &k.saddr, BLOOM_ALL_PORTS);
	bloom_add(b, &every, k.dport);
	b->next_wildcards = 1;
	b->kept++;
}

#endif
