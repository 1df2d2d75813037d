/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pair.h - handles both entries of a connection at once if they are adjacent.
 *
 * If both keys are placed by their client, they prefer a pair of rows in one bucket
 * (table.h). One hash finds it, one lock takes it, and one store publishes or removes
 * both tags. Everything else is left to table_write.h, which inserts one entry after
 * the other: keys with other homes, a bucket with spilled keys, a table that grows, a
 * key that may be in use.
 */
#ifndef LOXILB_PAIR_H
#define LOXILB_PAIR_H

#include "table/table_write.h"

/* Reports whether the entries with these keys prefer a pair of rows. */
static __always_inline bool keys_are_pair(const struct connection_key *client,
					  const struct connection_key *reply)
{
	struct table_state *t = table_state_get();

	return port_is_high(&client->sport) && !port_is_high(&client->dport) &&
	       port_is_high(&reply->dport) && !port_is_high(&reply->sport) &&
	       t->has_homes && replies_are_by_client(t, reply);
}

/* Reports whether one of two keys with these tags may be in the table: their bucket has
 * a tag, or has keys elsewhere. */
static __always_inline bool pair_may_exist(const struct table_bucket *b,
					   __u32 tag, __u32 other)
{
	return bucket_has_tag(b, tag, other) ||
	       b->tags[CONTROL_WORD] & (CONTROL_SPILLED | CONTROL_AWAY);
}

/* Reports whether this row, which is even, and the next one are free: their tags are
 * half of a word. */
static __always_inline bool pair_is_free(const struct table_bucket *b, __u32 i)
{
	__u64 word = *(const volatile __u64 *)&b
			      ->tags[i / TAGS_PER_WORD % TAG_WORDS];

	return !(__u32)(word >> (i % TAGS_PER_WORD * TAG_BITS));
}

/* Returns the first row of a free pair of a locked bucket: the pair with this row, else
 * the next one. ROWS_PER_BUCKET: there is none. The last half of all words is never
 * free: it has the lock. */
static __always_inline __u32 bucket_free_pair(const struct table_bucket *b,
					      __u32 row)
{
	__u32 i = row & ~1U;

	NO_UNROLL
	for (int n = 0; n <= ROWS_PER_BUCKET / 2; n++) {
		if (likely(pair_is_free(b, i)))
			return i;
		i = (i + 2) % (TAG_WORDS * TAGS_PER_WORD);
	}
	return ROWS_PER_BUCKET;
}

/* Writes a row of a locked bucket whose tag is published later. */
static __always_inline bool row_write(struct table_bucket *b, __u32 i,
				      const struct connection_key *key,
				      const struct connection *c, __u64 status)
{
	struct table_row *row = bucket_row(b, i);

	if (!row)
		return false;
	row->key = *key;
	row->connection = *c;
	__sync_lock_test_and_set(&row->status, status);
	return true;
}

/* Inserts the entries of a connection whose keys are a pair. Returns 0, or -EXDEV: each
 * must be inserted alone. Global (verifier: globals). */
__noinline int pair_insert(const struct connection_key *client_key,
			   const struct connection *client,
			   const struct connection_key *reply_key,
			   const struct connection *reply)
{
	struct table_state *t = table_state_get();
	struct table_bucket *b;
	__u32 group, i, tag, reply_tag;
	__u64 place, size, status;
	int err = -EXDEV;

	if (!client_key || !client || !reply_key || !reply) /* verifier: null */
		return -EXDEV;
	size = table_size(t);
	if (t->entries + 1 >= t->entries_max || size_grows(size))
		return -EXDEV;
	place = place_from_client(t, client_key);
	tag = hash_tag(place_tagged(t, client_key, place));
	reply_tag = hash_tag(place_tagged(t, reply_key, place ^ HASH_ROW));
	group = hash_group(place, size_groups(size));
	b = group_lock_key(group, place);
	if (!b)
		return -EXDEV;
	if (likely(table_size_now() == size &&
		   !pair_may_exist(b, tag, reply_tag))) {
		i = bucket_free_pair(b, hash_home(place)) |
		    (hash_home(place) & 1);
		status = row_status_now() | (__u64)BY_CLIENT
						    << ROW_PLACED_SHIFT;
		if (row_write(b, i ^ 1, reply_key, reply, status) &&
		    row_write(b, i, client_key, client, status)) {
			__sync_fetch_and_or(
				&b->tags[i / TAGS_PER_WORD % TAG_WORDS],
				(__u64)tag << (i % TAGS_PER_WORD * TAG_BITS) |
					(__u64)reply_tag
						<< ((i ^ 1) % TAGS_PER_WORD *
						    TAG_BITS));
			err = 0;
		}
	}
	bucket_unlock(b);
	if (err)
		return err;
	table_count(2);
	location_record_entry(client, group);
	return 0;
}

/* Frees a pair of rows of a locked bucket: both tags at once. */
static __always_inline void pair_clear(struct table_bucket *b, __u32 i,
				       struct table_row *row,
				       struct table_row *neighbor)
{
	__sync_lock_test_and_set(&neighbor->status, 0);
	__sync_lock_test_and_set(&row->status, 0);
	__sync_fetch_and_and(&b->tags[i / TAGS_PER_WORD % TAG_WORDS],
			     ~(0xffffffffULL
			       << ((i & ~1U) % TAGS_PER_WORD * TAG_BITS)));
}

/* Removes both entries of a connection that has ended, if they are in the pair of rows that
 * they prefer: one lock in place of two, and no search. what: as for the client's entry in
 * entry_remove_at(). Returns whether it did; otherwise each must be removed alone. Global
 * (verifier: globals). */
__noinline bool pair_remove(const struct connection_key *client_key,
			    const struct connection_key *reply_key, __u64 what)
{
	struct table_state *t = table_state_get();
	struct table_row *row, *neighbor;
	struct table_bucket *b;
	bool removed = false;
	__u64 place, size;

	if (!client_key || !reply_key) /* verifier: null */
		return false;
	size = table_size(t);
	if (size_grows(size) || !keys_are_pair(client_key, reply_key))
		return false;
	place = place_from_client(t, client_key);
	b = group_lock_key(hash_group(place, size_groups(size)), place);
	if (!b)
		return false;
	row = bucket_row(b, hash_home(place));
	neighbor = bucket_row(b, hash_home(place) ^ 1);
	if (likely(row && neighbor && table_size_now() == size &&
		   row_has_key(row, client_key) &&
		   row_has_key(neighbor, reply_key) &&
		   state_read(&row->connection) & STATE_ENDED)) {
		pair_count_end(row, neighbor, what);
		pair_clear(b, hash_home(place), row, neighbor);
		removed = true;
	}
	bucket_unlock(b);
	if (removed)
		table_count(-2);
	return removed;
}

#endif
