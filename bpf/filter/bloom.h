/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bloom.h - a Bloom filter with one hash function, of the addresses and ports that
 * concern us.
 *
 * User space sets a bit for each VIP and for each endpoint, with its port. The
 * destination of a packet to a VIP has a bit, and so has the source of a packet from an
 * endpoint. A packet with neither belongs to no connection and no service (foreign.h).
 * Two pairs of address and port may share a bit: then a packet takes the slow path
 * needlessly. Some bits stand for all ports of an address, or for a port at every
 * address; they are checked only while there are any.
 *
 * Bits are set before the rows that they stand for. They are cleared when no row and no
 * entry needs them: user space builds the next filter from its rows, the sweep adds the
 * bits of entries that have outlived their rows, and the result replaces the first one
 * (docs/adr/0027-bloom-filter.md).
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

/* Two words of an address at once: keys are aligned accordingly. */
typedef __u64 __attribute__((may_alias)) half_addr;

/* Returns the number of the bit for an address and a port. Multiplication spreads the
 * lower bits over the higher ones; the highest are used. */
static __always_inline __u32 bloom_bit(const struct ip_addr *a, __u32 port)
{
	const half_addr *half = (const half_addr *)a;

	return ((half[0] * HASH_FACTOR ^ half[1] ^ port) * HASH_FACTOR) >>
	       (64 - BLOOM_SHIFT);
}

/* Returns the bit of an address and a port in the lowest place; the bits above are
 * undefined. */
static __always_inline __u64 bloom_word(const __u64 *bits,
					const struct ip_addr *a, __u32 port)
{
	__u32 bit = bloom_bit(a, port);

	return bits[bit / 64] >> (bit % 64);
}

/* Reports whether the filter has the packet's source or destination. Without a branch
 * between the two: a mispredicted branch costs more than a lookup. */
static __always_inline bool bloom_has(const __u64 *bits,
				      const struct connection_key *key)
{
	return (bloom_word(bits, &key->daddr, key->dport) |
		bloom_word(bits, &key->saddr, key->sport)) &
	       1;
}

/* Reports whether a wildcard bit, for several addresses or ports, matches one of the
 * packet's. */
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
