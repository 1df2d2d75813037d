/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * address.h - compares and masks IP addresses.
 */
#ifndef LOXILB_ADDRESS_H
#define LOXILB_ADDRESS_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include "abi.h"

/* Returns the mask for a word of an address whose first bits count; bits may exceed the
 * word. */
static __always_inline __be32 prefix_mask(__u32 bits)
{
	return bpf_htonl(bits >= 32 ? ~0U : bits ? ~0U << (32 - bits) : 0);
}

/* Copies the first bits of an address; the others become 0. */
static __always_inline void copy_prefix(struct ip_addr *prefix,
					const struct ip_addr *a, __u32 bits)
{
	for (int i = 0; i < 4; i++) {
		prefix->word[i] = a->word[i] & prefix_mask(bits);
		bits -= bits >= 32 ? 32 : bits;
	}
}

static __always_inline bool same_addr(const struct ip_addr *a,
				      const struct ip_addr *b)
{
	return a->word[3] == b->word[3] && a->word[2] == b->word[2] &&
	       a->word[1] == b->word[1] && a->word[0] == b->word[0];
}

typedef __u64 __attribute__((may_alias)) addr_half;

/* Compares addresses at multiples of 8 bytes, as in keys and entries. */
static __always_inline bool same_aligned(const struct ip_addr *a,
					 const struct ip_addr *b)
{
	const addr_half *x = (const addr_half *)a, *y = (const addr_half *)b;

	return x[1] == y[1] && x[0] == y[0];
}

/* :: stands for no address in our maps. */
static __always_inline bool addr_is_unspecified(const struct ip_addr *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

/* Reports whether it is ::ffff:a.b.c.d, an IPv4 address in our maps, which no IPv6
 * packet may carry. */
static __always_inline bool is_mapped_ipv4(const struct ip_addr *a)
{
	return !a->word[0] && !a->word[1] && a->word[2] == bpf_htonl(0xffff);
}

/* Returns the first 64 bits, and the last. */
static __always_inline __u64 ip_addr_high(const struct ip_addr *a)
{
	return a->word[0] | (__u64)a->word[1] << 32;
}

static __always_inline __u64 ip_addr_low(const struct ip_addr *a)
{
	return a->word[2] | (__u64)a->word[3] << 32;
}

/* Returns the mask for half of an address whose first 1 to 64 bits count. */
static __always_inline __u64 half_mask(__u32 bits)
{
	return bpf_cpu_to_be64(~0ULL << (64 - bits));
}

/* Reports whether two addresses, at multiples of 8 bytes, begin with the same bits. */
static __always_inline bool same_prefix(const struct ip_addr *a,
					const struct ip_addr *b, __u32 bits)
{
	const addr_half *x = (const addr_half *)a, *y = (const addr_half *)b;
	__u64 high = x[0] ^ y[0];

	if (bits <= 64)
		return !bits || !(high & half_mask(bits));
	return !high && !((x[1] ^ y[1]) & half_mask(bits - 64));
}

/* Reports whether an address matches a masked one. */
static __always_inline bool ip_addr_within(const struct ip_addr *a,
					   const struct ip_addr *of,
					   const struct ip_addr *mask)
{
	return !(((ip_addr_high(a) ^ ip_addr_high(of)) & ip_addr_high(mask)) |
		 ((ip_addr_low(a) ^ ip_addr_low(of)) & ip_addr_low(mask)));
}

static __always_inline void map_ipv4(struct ip_addr *to, __be32 from)
{
	to->word[0] = 0;
	to->word[1] = 0;
	to->word[2] = bpf_htonl(0xffff);
	to->word[3] = from;
}

#endif
