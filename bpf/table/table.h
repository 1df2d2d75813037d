/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * table.h - the connection table: a hash table of our own, in arrays. Entries are found
 * here, and inserted and removed in table_write.h.
 *
 * A row is one direction of a connection. A bucket has 30 rows, and begins with a cache
 * line of their tags: 16 bits of each key's hash, 0 for a free row. A lookup reads the
 * row that the hash prefers (its home row), and the tags only if that row has another
 * key. If the ports of a key identify the client, it is the hash of the client's
 * address and port, so both directions are adjacent, in one bucket. If a key's first
 * home has no room, it has a second one, by another hash
 * (docs/adr/0025-connection-table.md).
 *
 * So a lookup waits for memory once or twice, where the kernel's hash table waits three
 * times; and inserting a row allocates nothing. Opening a connection takes a third of
 * the time, and ending it too (docs/adr/0025-connection-table.md).
 *
 * Eight buckets are a group, which is a separate map: if its bucket is full, a row goes
 * to another bucket of its group. Insertion and removal lock the bucket with a bit of
 * its tags, for 100 ns; lookups take no lock. A program with a lock may be interrupted
 * by one that wants it on the same CPU. So no program waits forever, and a packet that
 * gives up is dropped, like one that loses a race.
 *
 * The table grows while packets use it (grow.h). A key's place among n groups is its
 * hash, as a fraction, times n: so all places move up by the same factor, and groups
 * can be moved one by one, the last one first.
 *
 * Memory order, on machines that reorder accesses (arm64). There an atomic that returns
 * the old value is a full barrier, and any other is none:
 *
 * - Locks are taken and released by full barriers. The holder sees all that was done under the lock.
 * - A row is written, published by its status with a full barrier, then by its tag. A reader that has its number from the tag reads the row after the tag.
 * - A row is unpublished with a full barrier, then its tag is cleared: so no CPU hides the row's next entry, and a moved row appears in its new place before it disappears from the old one.
 * - While the table grows, a lookup has a full barrier between the two places, and another before it accepts a miss. The growth is announced before groups move.
 * - A lookup of the home row has no barrier, which each packet would pay for. When two packets of a new connection arrive at once, the second may see the row's previous content: it leaves by that translation, and its changes are refused, as it has another generation (state.h).
 */
#ifndef LOXILB_TABLE_H
#define LOXILB_TABLE_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "shared.h"
#include "packet/packet.h"
#include "table/place.h"
#include "table/state.h"

/* A bucket's tags are 32 lanes of 16 bits in 8 words. The last lane is not a row's:
 * it has the bucket's lock, and the number of its keys that are in other buckets of
 * the group. */
#define CONTROL_WORD (TAG_WORDS - 1)
#define CONTROL_LOCKED (1ULL << 63)
#define CONTROL_SPILLED_ONE (1ULL << SPILLED_SHIFT)
#define CONTROL_SPILLED (0xffULL << SPILLED_SHIFT)

/* Keys of the bucket may be at their second home, and one was seen there since the
 * sweep's last visit. */
#define CONTROL_AWAY (1ULL << AWAY_BIT)
#define CONTROL_AWAY_SEEN (1ULL << AWAY_SEEN_BIT)

#define ROW_LIVE (1ULL << ROW_LIVE_BIT)
#define ROW_PLACED (3ULL << ROW_PLACED_SHIFT)
#define ROW_FLAGS (ROW_LIVE | ROW_PLACED)

/* How often a lookup restarts because the table has grown. */
#define FIND_ATTEMPTS 3

/* A full barrier between earlier and later accesses. */
static __always_inline void table_barrier(struct table_state *t)
{
	__s64 found = __sync_fetch_and_add(&t->entries, 0);

	asm volatile("" : : "r"(found));
}

static __always_inline struct table_bucket *bucket_get(__u32 group, __u32 i)
{
	void *buckets = bpf_map_lookup_elem(&connections, &group);
	void *element = buckets ? bpf_map_lookup_elem(buckets, &i) : NULL;

	return element ? element + table_skew : NULL;
}

/* Returns a row by its number, or NULL if the number is too large. */
static __always_inline struct table_row *bucket_row(struct table_bucket *b,
						    __u64 i)
{
	/* verifier: bounds */
	asm volatile("" : "+r"(i));
	if (i >= ROWS_PER_BUCKET)
		return NULL;
	asm volatile("" : "+r"(i));
	return &b->rows[i];
}

static __always_inline bool same_key(const struct connection_key *a,
				     const struct connection_key *b)
{
	const __u64 *x = (const __u64 *)a, *y = (const __u64 *)b;

	return !((x[0] ^ y[0]) | (x[1] ^ y[1]) | (x[2] ^ y[2]) | (x[3] ^ y[3]) |
		 (x[4] ^ y[4]));
}

static __always_inline enum placement row_placement(const struct table_row *row)
{
	return row->status >> ROW_PLACED_SHIFT & 3;
}

static __always_inline bool row_has_key(const struct table_row *row,
					const struct connection_key *key)
{
	return row->status & ROW_LIVE && same_key(&row->key, key);
}

/* The lowest bit, and the highest, of each lane of a word of tags. */
#define LANES_LOW 0x0001000100010001ULL
#define LANES_HIGH 0x8000800080008000ULL

/* Returns the highest bit of the lanes of a word that have this tag. The lowest match
 * is exact; one above it may be false. */
static __always_inline __u64 lanes_match(const struct table_bucket *b,
					 __u32 word, __u32 tag)
{
	__u64 x = *(const volatile __u64 *)&b->tags[word % TAG_WORDS] ^
		  tag * LANES_LOW;

	return (x - LANES_LOW) & ~x & LANES_HIGH;
}

/* Returns a word with the highest bit of each lane set, except for lanes that are equal: the
 * complement of (x - LANES_LOW) & ~x, for two instructions less with each word. As with
 * lanes_match(), a lane above an equal one may be wrong. */
static __always_inline __u64 lanes_differ(__u64 word, __u64 tags)
{
	const __u64 x = word ^ tags;

	return (LANES_LOW - 1 - x) | x;
}

/* Reports whether a row of a bucket has one of two tags. */
static __always_inline bool bucket_has_tag(const struct table_bucket *b,
					   __u32 tag, __u32 other)
{
	const __u64 tags = tag * LANES_LOW, others = other * LANES_LOW;
	__u64 lanes = LANES_HIGH, word;

	/* all at once would take more of the stack than Linux 6.1 has */
	_Pragma("clang loop unroll_count(4)") for (__u32 n = 0; n < TAG_WORDS;
						   n++)
	{
		word = *(const volatile __u64 *)&b->tags[n];
		lanes &= lanes_differ(word, tags) & lanes_differ(word, others);
	}
	return lanes != LANES_HIGH;
}

/* Returns the number of the lowest of these lanes. */
static __always_inline __u32 lanes_first(__u64 lanes)
{
	lanes &= -lanes;
	return (lanes >> 31 & 1) + (lanes >> 47 & 1) * 2 + (lanes >> 63) * 3;
}

/* Returns the number of the key's row in the bucket, or -ENOENT. Most searches are for
 * keys of new connections, which are in no row. Otherwise the word of the home row is
 * searched first. Global (verifier: globals). */
__noinline int bucket_find(struct table_bucket *b,
			   const struct connection_key *key, __u64 hash)
{
	struct table_row *row;
	__u64 lanes;
	__u32 i;

	if (!b || !key) /* verifier: null */
		return -ENOENT;
	/* makes the processor read the home row and the tags at the same time */
	row = bucket_row(b, hash_home(hash));
	if (row)
		*(const volatile __u64 *)&row->status;
	if (likely(!bucket_has_tag(b, hash_tag(hash), hash_tag(hash))))
		return -ENOENT;
	NO_UNROLL
	for (__u32 n = 0; n < TAG_WORDS * TAGS_PER_WORD; n++) {
		i = (hash_home(hash) / TAGS_PER_WORD + n / TAGS_PER_WORD) %
		    TAG_WORDS;
		lanes = lanes_match(b, i, hash_tag(hash)) >>
			(n % TAGS_PER_WORD * TAG_BITS);
		if (!lanes) {
			n |= TAGS_PER_WORD - 1; /* to the next word */
			continue;
		}
		if (!(lanes & 1ULL << (TAG_BITS - 1)))
			continue; /* to the next lane */
		i = i * TAGS_PER_WORD + n % TAGS_PER_WORD;
		row = bucket_row(b, i);
		if (row && row_has_key(row, key))
			return i;
	}
	return -ENOENT;
}

/* Reports whether the row is in use. */
static __always_inline bool bucket_has(const struct table_bucket *b, __u32 i)
{
	__u64 word = *(const volatile __u64 *)&b
			      ->tags[i / TAGS_PER_WORD % TAG_WORDS];

	return (__u16)(word >> (i % TAGS_PER_WORD * TAG_BITS));
}

/* What group_find() returns: the bucket, and in the lower bits the row. */
#define FOUND_ROW_BITS 5
#define FOUND_ROW_MASK ((1 << FOUND_ROW_BITS) - 1)

/* Finds the key in its own bucket or, if keys of that bucket have spilled, in another
 * bucket of the group. Returns its place, or -ENOENT. */
static __always_inline int bucket_group_find(struct table_bucket *own,
					     __u32 group,
					     const struct connection_key *key,
					     __u64 hash)
{
	__u32 place = hash_bucket(hash);
	struct table_bucket *b = own;
	int row;

	NO_UNROLL
	for (__u32 n = 0; n < BUCKETS_PER_GROUP; n++) {
		if (n)
			b = bucket_get(group, place ^ n);
		if (!b)
			return -ENOENT;
		row = bucket_find(b, key, hash);
		if (row >= 0)
			return (place ^ n) << FOUND_ROW_BITS | row;
		if (!n && !(b->tags[CONTROL_WORD] & CONTROL_SPILLED))
			return -ENOENT;
	}
	return -ENOENT;
}

/* Finds the key in a group. */
static __always_inline int
group_find(__u32 group, const struct connection_key *key, __u64 hash)
{
	struct table_bucket *own = bucket_get(group, hash_bucket(hash));

	return own ? bucket_group_find(own, group, key, hash) : -ENOENT;
}

/* Where a row is: its group, and in the lower bits what group_find() returns. */
#define FOUND_GROUP_BITS 8

/* Reports whether a key that is not in its bucket cannot be in another one. The table
 * had this size when its bucket was read. */
static __always_inline bool key_is_absent(const struct connection_key *key,
					  const struct table_bucket *own,
					  __u64 size)
{
	struct table_state *t = table_state_get();

	return !(own->tags[CONTROL_WORD] & (CONTROL_SPILLED | CONTROL_AWAY)) &&
	       !size_grows(size) && table_size(t) == size &&
	       (key_is_by_client(t, key) || !key_has_client(key) ||
		!t->has_homes);
}

/* Finds a row that may be in another bucket than its own, or be moving. A move is
 * announced before it begins, and copies each row before it frees it: a row that is
 * not in the old group is in the new one, and a miss counts if the size is the same
 * before and after. */
static __always_inline __s64
row_find_elsewhere(const struct connection_key *key, __u64 hash)
{
	struct table_state *t;
	__u32 group;
	int found;
	__u64 size;

	NO_UNROLL
	for (int n = 0; n < 2 * FIND_ATTEMPTS; n++) {
		t = table_state_get();
		size = table_size(t);
		group = hash_group(hash, size_groups(size));
		if (n % 2)
			group = table_group(hash, size);
		else if (likely(group != size_unmoved(size)))
			continue;
		found = group_find(group, key, hash);
		if (found >= 0)
			return (__u64)group << FOUND_GROUP_BITS | found;
		/* keeps intermediate values off the stack */
		asm volatile("" : "+r"(n));
		t = table_state_get();
		if (unlikely(size_grows(size)))
			table_barrier(t);
		if (n % 2 && table_size(t) == size)
			break;
	}
	return -ENOENT;
}

/* Finds a row that is not in its key's own bucket, at one home of the key or the
 * other. */
static __always_inline __s64 row_find_at_homes(const struct connection_key *key)
{
	struct table_state *t;
	__s64 found = -ENOENT;

	NO_UNROLL
	for (int n = 0; n < 2 && found < 0; n++) {
		t = table_state_get();
		if (n && !t->has_homes)
			return -ENOENT;
		found = row_find_elsewhere(
			key, hash_by(t, key, key_placement(t, key, n)));
	}
	return found;
}

/* Finds a row, in the key's own bucket first. Returns its place, or -ENOENT. Global
 * (verifier: globals). */
__noinline __s64 row_find(const struct connection_key *key)
{
	struct table_state *t = table_state_get();
	struct table_bucket *own;
	__u64 hash, size;
	__u32 group;
	int row;

	if (!key) /* verifier: null */
		return -ENOENT;
	hash = home_hash(t, key);
	size = table_size(t);
	group = table_group(hash, size);
	own = bucket_get(group, hash_bucket(hash));
	if (!own)
		return -ENOENT;
	row = bucket_find(own, key, hash);
	if (likely(row >= 0))
		return (__u64)group << FOUND_GROUP_BITS |
		       hash_bucket(hash) << FOUND_ROW_BITS | row;
	if (likely(key_is_absent(key, own, size)))
		return -ENOENT;
	return row_find_at_homes(key);
}

/* Returns the entry of a key, or NULL. */
static __always_inline struct connection *
entry_find(const struct connection_key *key)
{
	__s64 found = row_find(key);
	struct table_bucket *b;
	struct table_row *row;

	if (found < 0)
		return NULL;
	b = bucket_get(found >> FOUND_GROUP_BITS,
		       (found & ((1 << FOUND_GROUP_BITS) - 1)) >>
			       FOUND_ROW_BITS);
	row = b ? bucket_row(b, found & FOUND_ROW_MASK) : NULL;
	return row ? &row->connection : NULL;
}

/* Returns the row that forms a pair with the home row of this hash, or NULL. If both
 * directions are placed by their client, it is usually the other direction's. */
static __always_inline struct table_row *row_neighbor(__u64 hash)
{
	struct table_bucket *b = bucket_get(table_group(hash, table_size_now()),
					    hash_bucket(hash));

	return b ? bucket_row(b, hash_home(hash) ^ (__u32)HASH_ROW) : NULL;
}

/* Finds an entry on the hot path, and returns the hash of the key's first home, where
 * the entry usually is. The home row is tried first, unless the packet begins a
 * connection: then there is rarely an entry, and waiting for the row would delay the
 * tags; the hash is 0. On a miss, recompute the hash instead of keeping it: the stack
 * is nearly full. */
static __always_inline struct connection *
entry_find_hashed(const struct connection_key *key, bool begins, __u64 *hash)
{
	struct table_state *t;
	struct table_bucket *b;
	struct table_row *row;
	int i;

	*hash = 0;
	if (likely(!begins)) {
		t = table_state_get();
		*hash = home_place(t, key);
		b = bucket_get(table_group(*hash, table_size(t)),
			       hash_bucket(*hash));
		row = b ? bucket_row(b, hash_home(*hash)) : NULL;
		if (likely(row && row_has_key(row, key)))
			return &row->connection;
		i = b ? bucket_find(b, key, place_tagged(t, key, *hash)) :
			-ENOENT;
		row = i >= 0 ? bucket_row(b, i) : NULL;
		if (likely(row))
			return &row->connection;
	}
	return entry_find(key);
}

static __always_inline struct connection *
entry_find_established(const struct connection_key *key, bool begins)
{
	__u64 hash;

	return entry_find_hashed(key, begins, &hash);
}

#endif
