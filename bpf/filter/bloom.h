/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bloom.h - which addresses and ports concern us: a Bloom filter with one hash
 * function.
 *
 * User space sets a bit for each VIP and for each endpoint, with its port. A
 * packet to a VIP has the bit of its destination, one from an endpoint that of
 * its source. A packet with neither is of no connection and of no service
 * (foreign.h). Two pairs of address and port may share a bit: then a packet
 * takes the long way for nothing. Some bits stand for all ports of an address,
 * or for a port at every address; they are looked at while there are any.
 *
 * Bits are set before the rows that they stand for. They are cleared when no
 * row and no entry needs them: user space makes the next filter from its rows,
 * the sweep adds what entries need that have outlived their rows, and the
 * result replaces the first one (docs/adr/0027-bloom-filter.md).
 */
#ifndef LOXILB_BLOOM_H
#define LOXILB_BLOOM_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"

static __always_inline struct bloom *bloom_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&bloom_filter, &zero);
}

/* Two words of an address at once: keys are aligned for it. */
typedef __u64 __attribute__((may_alias)) half_addr;

/* Returns the number of the bit for an address and a port. Multiplication
 * spreads the bits below over those above, of which the highest are taken. */
static __always_inline __u32 bloom_bit(const struct ip_addr *a, __u32 port)
{
	const half_addr *half = (const half_addr *)a;

	return ((half[0] * HASH_FACTOR ^ half[1] ^ port) * HASH_FACTOR) >>
	       (64 - BLOOM_SHIFT);
}

/* Returns the bit of an address and a port in the lowest place; what is above
 * has no meaning. */
static __always_inline __u64 bloom_word(const __u64 *bits,
					const struct ip_addr *a, __u32 port)
{
	__u32 bit = bloom_bit(a, port);

	return bits[bit / 64] >> (bit % 64);
}

/* Is a packet to or from an address and port that the filter has? Without a
 * branch between the two: one that goes either way costs more than a
 * look. */
static __always_inline bool bloom_has(const __u64 *bits,
				      const struct connection_key *key)
{
	return (bloom_word(bits, &key->daddr, key->dport) |
		bloom_word(bits, &key->saddr, key->sport)) &
	       1;
}

/* Does a bit that stands for several addresses or ports stand for one of the
 * packet's? */
static __always_inline bool bloom_has_wildcard(const __u64 *bits,
					       const struct connection_key *key)
{
	const struct ip_addr every __attribute__((aligned(8))) = {};

	return (bloom_word(bits, &key->daddr, BLOOM_ALL_PORTS) |
		bloom_word(bits, &key->saddr, BLOOM_ALL_PORTS) |
		bloom_word(bits, &every, key->dport)) &
	       1;
}

#endif
