/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * table_write.h - inserts entries into the connection table (table.h), and removes
 * them.
 */
#ifndef LOXILB_TABLE_WRITE_H
#define LOXILB_TABLE_WRITE_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/address.h"
#include "table/lifetime.h"
#include "table/lock.h"
#include "table/state.h"
#include "table/table.h"
#include "table/location_map.h"

/* How often locking restarts because the table has grown. */
#define KEY_LOCK_ATTEMPTS 4

/* Counts entries. The shared number lags by less than count_batch per CPU: writing a
 * shared number each time would cost more than the row itself. A packet may interrupt
 * the sweep here, so a CPU's own number is atomic too. */
static __always_inline void table_count(__s32 n)
{
	struct table_state *t = table_state_get();
	__u32 zero = 0;
	__s64 *own = bpf_map_lookup_elem(&table_counts, &zero), sum;

	if (!own)
		return;
	sum = __sync_fetch_and_add(own, n) + n;
	if (sum < t->count_batch && sum > -(__s64)t->count_batch)
		return;
	sum = __sync_lock_test_and_set(own, 0);
	__sync_fetch_and_add(&t->entries, sum);
}

/* Returns a free row of the bucket: the key's home row, else the first of that word
 * or of the next ones, where bucket_find() searches first. ROWS_PER_BUCKET: there is
 * none. */
static __always_inline __u32 bucket_free_row(const struct table_bucket *b,
					     __u64 hash)
{
	__u32 i = hash_home(hash), word = i / TAGS_PER_WORD;
	__u64 lanes;

	if (!bucket_has(b, i))
		return i;
	NO_UNROLL
	for (int n = 0; n < TAG_WORDS; n++) {
		lanes = lanes_match(b, word, 0);
		i = word * TAGS_PER_WORD + lanes_first(lanes);
		if (lanes && i < ROWS_PER_BUCKET)
			return i;
		word = (word + 1) % TAG_WORDS;
	}
	return ROWS_PER_BUCKET;
}

/* Writes a row into a locked bucket, and publishes it last. Returns 0, or -E2BIG if the
 * bucket is full. Global (verifier: globals). */
__noinline int bucket_put(struct table_bucket *b,
			  const struct connection_key *key, __u64 hash,
			  const struct connection *c, __u64 status)
{
	struct table_row *row;
	__u32 i;

	if (!b || !key || !c) /* verifier: null */
		return -E2BIG;
	i = bucket_free_row(b, hash);
	row = bucket_row(b, i);
	if (!row)
		return -E2BIG;
	row->key = *key;
	row->connection = *c;
	__sync_lock_test_and_set(&row->status, status);
	__sync_fetch_and_or(&b->tags[i / TAGS_PER_WORD % TAG_WORDS],
			    (__u64)hash_tag(hash)
				    << (i % TAGS_PER_WORD * TAG_BITS));
	return 0;
}

/* Frees a row. The lock of its key's own bucket is held, so no other CPU frees it, or
 * takes it before its tag is cleared. */
static __always_inline void bucket_clear(struct table_bucket *b, __u32 i)
{
	struct table_row *row = bucket_row(b, i);

	if (!row)
		return;
	__sync_lock_test_and_set(&row->status, 0);
	__sync_fetch_and_and(&b->tags[i / TAGS_PER_WORD % TAG_WORDS],
			     ~(0xffffULL << (i % TAGS_PER_WORD * TAG_BITS)));
}

/* Writes a row into another bucket of the group than its own, which is full and
 * locked. Does not wait for locks: two CPUs could wait for each other. */
static __always_inline int group_spill(struct table_bucket *own, __u32 group,
				       const struct connection_key *key,
				       const struct connection *c, __u64 hash,
				       __u64 status)
{
	struct table_bucket *b;
	int err;

	NO_UNROLL
	for (__u32 n = 1; n < BUCKETS_PER_GROUP; n++) {
		b = bucket_get(group, hash_bucket(hash) ^ n);
		if (!b || !bucket_try_lock(b))
			continue;
		err = bucket_put(b, key, hash, c, status);
		bucket_unlock(b);
		if (err)
			continue;
		__sync_fetch_and_add(&own->tags[CONTROL_WORD],
				     CONTROL_SPILLED_ONE);
		return 0;
	}
	return -E2BIG;
}

/* Writes a row into a group: into its own bucket, which is locked, if there is room.
 * status: with ROW_LIVE. */
static __always_inline int group_put(struct table_bucket *own, __u32 group,
				     const struct connection_key *key,
				     const struct connection *c, __u64 hash,
				     __u64 status)
{
	int err = bucket_put(own, key, hash, c, status);

	if (likely(err != -E2BIG))
		return err;
	return group_spill(own, group, key, c, hash, status);
}

/* Frees a row of a group. The key's own bucket, which has this number, is locked;
 * found is the result of group_find(). */
static __always_inline void group_clear(__u32 group, __u32 own, int found)
{
	struct table_bucket *b = bucket_get(group, found >> FOUND_ROW_BITS);

	if (!b)
		return;
	bucket_clear(b, found & FOUND_ROW_MASK);
	if (likely(found >> FOUND_ROW_BITS == own))
		return;
	b = bucket_get(group, own);
	if (b)
		__sync_fetch_and_add(&b->tags[CONTROL_WORD],
				     -CONTROL_SPILLED_ONE);
}

/* Waits until no row of the group that a hash gives is being moved. */
static __always_inline int group_settle(const struct table_state *t, __u64 hash)
{
	__u64 size = table_size(t);
	__u32 group = hash_group(hash, size_groups(size));
	struct table_bucket *b;

	if (likely(group != size_unmoved(size)))
		return 0;
	b = bucket_get(group, hash_bucket(hash));
	if (!b || !bucket_lock(b))
		return -EBUSY;
	bucket_unlock(b);
	return 0;
}

/* Waits until no row of the groups where the key may be is being moved. Returns
 * -EBUSY if that takes too long. Global (verifier: globals). */
__noinline __maybe_unused int entry_settle(const struct connection_key *key)
{
	struct table_state *t = table_state_get();
	int err;

	if (!key) /* verifier: null */
		return -EBUSY;
	table_barrier(t);
	err = group_settle(t, home_hash(t, key));
	if (err || !t->has_homes)
		return err;
	return group_settle(t, hash_by(t, key, key_placement(t, key, true)));
}

/* Locks the key's bucket in a group. Returns it, or NULL if the lock was not
 * available. */
static __always_inline struct table_bucket *group_lock_key(__u32 group,
							   __u64 hash)
{
	struct table_bucket *b = bucket_get(group, hash_bucket(hash));

	return b && bucket_lock(b) ? b : NULL;
}

/* Locks the bucket in which the key has or will have its row. Returns the bucket, and
 * its group; NULL: the lock was not available. In the group that is moved next or was
 * moved last, a row is in its old place if the move was interrupted. The holder of its
 * lock there may use it, since the lock prevents moves. */
static __always_inline struct table_bucket *
key_lock(const struct connection_key *key, __u64 hash, __u32 *group)
{
	struct table_bucket *own;
	__u64 size;

	NO_UNROLL
	for (int n = 0; n < KEY_LOCK_ATTEMPTS; n++) {
		size = table_size_now();
		*group = hash_group(hash, size_groups(size));
		if (unlikely(*group == size_unmoved(size))) {
			own = group_lock_key(*group, hash);
			if (!own)
				return NULL;
			if (bucket_group_find(own, *group, key, hash) >= 0)
				return own;
			bucket_unlock(own);
			size = table_size_now(); /* read again: verifier: stack */
		}
		*group = table_group(hash, size);
		own = group_lock_key(*group, hash);
		if (!own)
			return NULL;
		if (likely(table_group(hash, table_size_now()) == *group))
			return own;
		bucket_unlock(own); /* the group has begun to move */
	}
	return NULL;
}

/* Reports whether a key can be placed in its bucket. It cannot if so many keys have
 * spilled that they must belong to one client. */
static __always_inline bool bucket_takes(const struct table_bucket *b,
					 enum placement placed)
{
	return placed != BY_CLIENT ||
	       (b->tags[CONTROL_WORD] & CONTROL_SPILLED) <
		       SPILLED_MAX * CONTROL_SPILLED_ONE;
}

/* Records that keys of a bucket are at their second home. */
static __always_inline void bucket_mark_away(struct table_bucket *b)
{
	__sync_fetch_and_or(&b->tags[CONTROL_WORD],
			    CONTROL_AWAY | CONTROL_AWAY_SEEN);
}

/* Forgets that keys of the bucket are elsewhere, on a visit of the sweep, if no such
 * key was seen since the previous visit. If the bucket changes meanwhile, the next
 * visit does it. */
static __always_inline void bucket_forget_away(struct table_bucket *b)
{
	__u64 control = *(const volatile __u64 *)&b->tags[CONTROL_WORD],
	      kept = control & CONTROL_AWAY_SEEN ? ~CONTROL_AWAY_SEEN :
						   ~CONTROL_AWAY;

	if (unlikely(control & CONTROL_AWAY))
		__sync_val_compare_and_swap(&b->tags[CONTROL_WORD], control,
					    control & kept);
}

/* Marks the bucket of a key's first home if a row of the key, placed like this, is at
 * the second one. */
static __always_inline void key_mark_away(const struct connection_key *key,
					  enum placement placed)
{
	struct table_state *t = table_state_get();
	struct table_bucket *b;
	enum placement first;
	__u64 hash;

	if (!t->has_homes)
		return;
	first = key_placement(t, key, false);
	if (likely(placed == first))
		return;
	hash = hash_by(t, key, first);
	b = bucket_get(table_group(hash, table_size(t)), hash_bucket(hash));
	if (b)
		bucket_mark_away(b);
}

/* What entry_insert_at() returns if the key may have an entry at its other home too. */
#define INSERTED_UNCONFIRMED 1

/* Inserts an entry at its key's first home, or at the second one. Returns 0,
 * INSERTED_UNCONFIRMED, -EEXIST if the key has one, -E2BIG if the table is full, -EBUSY
 * if its bucket's lock was not available, -EXDEV if the first home has no room. Global
 * (verifier: globals). */
__noinline int entry_insert_at(const struct connection_key *key,
			       const struct connection *c, bool second)
{
	struct table_state *t = table_state_get();
	enum placement placed;
	struct table_bucket *own;
	bool has_other, away = second;
	__u64 hash;
	__u32 group;
	int err;

	if (!key || !c) /* verifier: null */
		return -EINVAL;
	if (t->entries >= t->entries_max)
		return -E2BIG;
	has_other = !second && t->has_homes;
	placed = key_placement(t, key, second);
	hash = hash_by(t, key, placed);
	own = key_lock(key, hash, &group);
	if (!own)
		return -EBUSY;
	err = -EEXIST;
	if (bucket_group_find(own, group, key, hash) < 0) {
		asm volatile("" : "+r"(hash)); /* verifier: stack */
		err = -E2BIG;
		if (!has_other || bucket_takes(own, placed))
			err = group_put(own, group, key, c, hash,
					row_status_now() |
						(__u64)placed
							<< ROW_PLACED_SHIFT);
		if (unlikely(err == -E2BIG && has_other)) {
			bucket_mark_away(own);
			err = -EXDEV;
		}
		away |= has_other && own->tags[CONTROL_WORD] & CONTROL_AWAY;
	}
	bucket_unlock(own);
	if (err)
		return err;
	table_count(1);
	location_record_entry(c, group);
	return away ? INSERTED_UNCONFIRMED : 0;
}

/* Confirms an entry that was inserted at one of its key's homes: another CPU may have
 * inserted it at the other home, since the room there has changed meanwhile. Each CPU
 * checks after its insertion, so at least one notices the other. Returns 0, -EEXIST or
 * -EBUSY. Global (verifier: globals). */
__noinline int entry_confirm(const struct connection_key *key, bool second)
{
	struct table_state *t = table_state_get();
	struct table_bucket *other;
	__u64 hash;
	__u32 group;
	int err = 0;

	if (!key) /* verifier: null */
		return -EBUSY;
	hash = hash_by(t, key, key_placement(t, key, !second));
	other = key_lock(key, hash, &group);
	if (!other)
		return -EBUSY;
	if (bucket_group_find(other, group, key, hash) >= 0)
		err = -EEXIST;
	else if (second) /* the sweep may have forgotten it */
		bucket_mark_away(other);
	bucket_unlock(other);
	return err;
}

/* Prepares the table for an entry of replies to a local source address: replies are
 * now placed by their tuple. Returns whether an older entry, placed by its client, may
 * exist. Not for a local address: no client has it, since sockets of this machine
 * keep their ports (snat.h). */
static __always_inline bool
entry_may_have_moved(const struct connection_key *key,
		     const struct connection *c)
{
	struct table_state *t = table_state_get();
	bool to_us;

	if (!key_has_client(key) || !key_is_to_client(key))
		return false;
	to_us = c->flags & CONN_REPLY_DIRECTION &&
		!same_addr(&key->daddr, &c->daddr);
	if (!key_is_by_client(t, key))
		return t->has_homes && !to_us;
	if (unlikely(to_us))
		__sync_fetch_and_and(&t->by_client,
				     ~(1ULL << client_class(key)));
	return false;
}

/* Returns a row of a group that group_find() has found. NULL: the row already belongs
 * to the next connection. */
static __always_inline struct table_row *group_row_of(__u32 group, int found,
						      __u32 word)
{
	struct table_bucket *b = bucket_get(group, found >> FOUND_ROW_BITS);
	struct table_row *row =
		b ? bucket_row(b, found & FOUND_ROW_MASK) : NULL;

	if (!row || word & ~state_read(&row->connection) & STATE_ENDED)
		return NULL;
	return row;
}

/* Marks an entry that could not be removed: the next connection that wants its place
 * removes it, or the sweep. */
static __always_inline void
entry_mark_leftover(const struct connection_key *key, __u64 hash, __u32 word)
{
	__u32 group = table_group(hash, table_size_now()), now;
	int found = group_find(group, key, hash);
	struct table_row *row;

	row = found >= 0 ? group_row_of(group, found, word) : NULL;
	if (!row)
		return;
	now = state_read(&row->connection);
	if (state_is_same_generation(now, word))
		__sync_val_compare_and_swap((__u32 *)&row->connection.flags,
					    now, now | STATE_LEFTOVER);
}

/* Removes an entry from its key's first home, or from the second one. what: the word,
 * and what else the removal needs (lifetime.h); if the word has ended, only an entry
 * that has ended too is removed. Returns row_removed(), or 0. Global (verifier:
 * globals). */
__noinline __u64 entry_remove_at(const struct connection_key *key, __u64 what,
				 bool second)
{
	struct table_state *t = table_state_get();
	struct table_bucket *own;
	struct table_row *row;
	__u64 removed = 0;
	__u32 group;
	__u64 hash;
	int found;

	if (!key || (second && !t->has_homes)) /* verifier: null */
		return 0;
	hash = hash_by(t, key, key_placement(t, key, second));
	own = key_lock(key, hash, &group);
	if (unlikely(!own)) {
		entry_mark_leftover(key, hash, what);
		return 0;
	}
	found = bucket_group_find(own, group, key, hash);
	row = found >= 0 ? group_row_of(group, found, what) : NULL;
	if (row) {
		found |= hash_bucket(hash) << FOUND_GROUP_BITS;
		asm volatile("" : "+r"(found)); /* verifier: stack */
		if (what & REMOVE_COUNTS)
			row_count_end(row, state_read(&row->connection), what);
		removed = row_removed(row->connection.seen);
		group_clear(group, found >> FOUND_GROUP_BITS,
			    found & ((1 << FOUND_GROUP_BITS) - 1));
	}
	bucket_unlock(own);
	if (removed)
		table_count(-1);
	return removed;
}

/* Removes an entry. Returns row_removed(), or 0: the entry does not exist; or its
 * bucket's lock was not available, and the entry is marked. */
static __always_inline __u64 entry_remove(const struct connection_key *key,
					  __u64 what)
{
	__u64 removed = entry_remove_at(key, what, false);

	return likely(removed) ? removed : entry_remove_at(key, what, true);
}

/* Inserts an entry. Returns -EEXIST if the key has one, -E2BIG if the table is full,
 * -EBUSY if its bucket's lock was not available. */
static __always_inline int entry_insert(const struct connection_key *key,
					const struct connection *c)
{
	bool second;
	int err;

	if (unlikely(entry_may_have_moved(key, c)) && row_find(key) >= 0)
		return -EEXIST;
	err = entry_insert_at(key, c, false);
	second = err == -EXDEV;
	if (unlikely(second))
		err = entry_insert_at(key, c, true);
	if (likely(err != INSERTED_UNCONFIRMED))
		return err;
	err = entry_confirm(key, second);
	if (err)
		entry_remove_at(key, 0, second);
	return err;
}

#endif
