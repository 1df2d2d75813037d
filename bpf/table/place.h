/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * place.h - where the connection table has the row of a key: the hashes by which a key is
 * placed, and the group, bucket and row that a hash chooses (docs/adr/0025-connection-table.md).
 */
#ifndef LOXILB_TABLE_PLACE_H
#define LOXILB_TABLE_PLACE_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "shared.h"
#include "packet/packet.h"

/* table_state.size: the number of groups, the number to which it grows, and the number
 * of groups that have not moved yet. All three are equal while the table does not grow.
 */
#define SIZE_MASK ((1U << SIZE_BITS) - 1)

/* The barrier keeps the compiler from reusing an earlier read, for example of a lookup,
 * and keeps the pointer in a register. */
static __always_inline struct table_state *table_state_get(void)
{
	struct table_state *t = &table_value;

	asm volatile("" : "+r"(t)::"memory");
	return t;
}

static __always_inline __u64 table_size(const struct table_state *t)
{
	return *(const volatile __u64 *)&t->size;
}

static __always_inline __u64 table_size_now(void)
{
	return table_size(table_state_get());
}

static __always_inline __u64 size_pack(__u32 groups, __u32 goal, __u32 unmoved)
{
	return groups | (__u64)goal << SIZE_BITS |
	       (__u64)unmoved << 2 * SIZE_BITS;
}

static __always_inline __u32 size_groups(__u64 size)
{
	return size & SIZE_MASK;
}

static __always_inline __u32 size_goal(__u64 size)
{
	return size >> SIZE_BITS & SIZE_MASK;
}

static __always_inline __u32 size_unmoved(__u64 size)
{
	return size >> 2 * SIZE_BITS;
}

static __always_inline bool size_grows(__u64 size)
{
	return size_groups(size) != size_goal(size);
}

/* Spreads the result of NH over all bits. */
static __always_inline __u64 hash_spread(__u64 hash)
{
	hash ^= hash >> 32;
	hash *= HASH_FACTOR;
	hash ^= hash >> 29;
	hash *= HASH_FACTOR_2;
	return hash ^ hash >> 32;
}

/* NH, of UMAC (RFC 4418 section 5.2.2), of the whole tuple: without knowledge of the
 * seeds, two keys collide with probability 2^-32. */
static __always_inline __u64 table_hash(const struct table_state *t,
					const struct connection_key *key)
{
	const __u32 *word = (const __u32 *)key;
	__u64 hash = 0;

	for (int i = 0; i < TABLE_SEEDS; i += 2)
		hash += (__u64)(__u32)(word[i] + t->seeds[i]) *
			(__u32)(word[i + 1] + t->seeds[i + 1]);
	return hash_spread(hash);
}

/* The bit of a hash that chooses one row of a pair. */
#define HASH_ROW 1ULL

/* The highest bit of a port, as keys have it. */
#define PORT_HIGH 0x80

/* Reports whether the ports of a key identify the client: its port is 32,768 or more,
 * as most systems choose for their connections, and the other end's is lower. Both
 * directions of a connection have the same client unless its source is translated. */
static __always_inline bool key_has_client(const struct connection_key *key)
{
	return (key->sport ^ key->dport) & PORT_HIGH;
}

/* Reports whether the packets of a key go to its client. */
static __always_inline bool key_is_to_client(const struct connection_key *key)
{
	return key->dport & PORT_HIGH;
}

/* Returns the bit of table_state.by_client for the address that replies go to. */
static __always_inline __u32 client_class(const struct connection_key *key)
{
	return ((const __u8 *)&key->daddr)[sizeof(key->daddr) - 1] &
	       (CLIENT_CLASSES - 1);
}

/* Reports whether replies to the address of a key are placed by their client. Not if it
 * is a local source address: many connections share it and its ports. */
static __always_inline bool
replies_are_by_client(const struct table_state *t,
		      const struct connection_key *key)
{
	return t->by_client >> client_class(key) & 1;
}

/* Reports whether the first home of a key depends on its client. */
static __always_inline bool key_is_by_client(const struct table_state *t,
					     const struct connection_key *key)
{
	if (!key_has_client(key))
		return false;
	return key_is_to_client(key) ? replies_are_by_client(t, key) :
				       t->has_homes;
}

/* NH of a client's address, and its port. Each packet pays for this hash, so it is
 * spread with half of the work: the multiplication mixes the upper bits best, which
 * choose the group, and the lower ones are derived from these. */
static __always_inline __u64 client_hash_of(const struct table_state *t,
					    const struct ip_addr *addr,
					    __be16 port)
{
	__u64 hash = *(const __u64 *)&t->seeds[4] * port;

	for (int i = 0; i < 4; i += 2)
		hash += (__u64)(__u32)(addr->word[i] + t->seeds[i]) *
			(__u32)(addr->word[i + 1] + t->seeds[i + 1]);
	hash ^= hash >> 32;
	hash *= HASH_FACTOR;
	return hash ^ hash >> 32;
}

/* The place of a key by its client: replies have the other row of the pair than the
 * client's packets. */
static __always_inline __u64 place_to_client(const struct table_state *t,
					     const struct connection_key *key)
{
	return client_hash_of(t, &key->daddr, key->dport) ^ HASH_ROW;
}

static __always_inline __u64 place_from_client(const struct table_state *t,
					       const struct connection_key *key)
{
	return client_hash_of(t, &key->saddr, key->sport);
}

/* Reports whether a port is high. Hides its value: clang would load, copy and mask both
 * ports for what takes a load and a comparison each. */
static __always_inline bool port_is_high(const __be16 *port)
{
	__u32 first = *(const __u8 *)port;

	asm volatile("" : "+r"(first));
	return first >= PORT_HIGH;
}

/* Returns the place of a key at its first home: the hash without its tag. Each packet
 * pays for this. */
static __always_inline __u64 home_place(const struct table_state *t,
					const struct connection_key *key)
{
	if (port_is_high(&key->dport)) {
		if (!port_is_high(&key->sport) && replies_are_by_client(t, key))
			return place_to_client(t, key);
	} else if (port_is_high(&key->sport) && t->has_homes) {
		return place_from_client(t, key);
	}
	return table_hash(t, key);
}

/* Adds the tag, a hash of both ends, to a place: connections of a client's port have
 * the same place, and need different tags. A former version derived the tag from the
 * place alone. */
static __always_inline __u64 place_tagged(const struct table_state *t,
					  const struct connection_key *key,
					  __u64 place)
{
	const __u64 *word = (const __u64 *)key;
	__u64 both = ((word[1] ^ word[3]) + word[4]) * HASH_FACTOR;

	return t->has_homes ? place ^ (both >> (64 - TAG_BITS) & ~HASH_ROW) :
			      place;
}

/* Returns the hash of a key's first home. */
static __always_inline __u64 home_hash(const struct table_state *t,
				       const struct connection_key *key)
{
	return place_tagged(t, key, home_place(t, key));
}

/* Returns how a key is placed at its first home, or at its second one. */
static __always_inline enum placement
key_placement(const struct table_state *t, const struct connection_key *key,
	      bool second)
{
	if (!key_has_client(key))
		return second ? BY_TURNED_TUPLE : BY_TUPLE;
	return key_is_by_client(t, key) != second ? BY_CLIENT : BY_TUPLE;
}

/* Returns the hash of a key for a placement. */
static __always_inline __u64 hash_by(const struct table_state *t,
				     const struct connection_key *key,
				     enum placement placed)
{
	__u64 place;

	if (placed == BY_CLIENT) {
		place = key_is_to_client(key) ? place_to_client(t, key) :
						place_from_client(t, key);
	} else {
		place = table_hash(t, key);
		if (placed == BY_TURNED_TUPLE)
			place = place >> 32 | place << 32;
	}
	return place_tagged(t, key, place);
}

/* Returns the key's group among so many groups. */
static __always_inline __u32 hash_group(__u64 hash, __u32 groups)
{
	return (hash >> 32) * groups >> 32;
}

/* Returns the key's group in the current table. */
static __always_inline __u32 table_group(__u64 hash, __u64 size)
{
	__u32 group = hash_group(hash, size_groups(size));

	return likely(group < size_unmoved(size)) ?
		       group :
		       hash_group(hash, size_goal(size));
}

static __always_inline __u32 hash_bucket(__u64 hash)
{
	return hash >> 32 & (BUCKETS_PER_GROUP - 1);
}

/* Returns the key's home row: its row in the bucket if that is free. Two hashes that
 * only differ in HASH_ROW have a pair of rows. */
static __always_inline __u32 hash_home(__u64 hash)
{
	return (((__u32)hash >> TAG_BITS) * ROWS_PER_BUCKET >> 16) ^
	       (hash & HASH_ROW);
}

static __always_inline __u32 hash_tag(__u64 hash)
{
	__u32 tag = (__u16)hash;

	return tag ? tag : 1;
}

#endif
