/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * grow.h - grows the connection table while packets use it.
 *
 * User space makes segments for the new size, which may be any number of groups more.
 * Then groups are moved one by one, the last one first: a row's new place is never
 * below its old one, so a group is written only after its own rows have left. The
 * progress is in table_state.size, so growth continues there if the daemon ends in the
 * middle.
 *
 * A packet on another CPU may hold an entry that is being moved. Its old place is
 * marked as ended before it is copied, so that no state is set there any more
 * (state.h): the packet finds the entry again, and repeats its change there. Non-atomic
 * writes of this packet may be missing in the copy: its count and time are lost, and
 * the next packet of its direction corrects the sequence numbers. A CPU that is stopped
 * for longer than it takes to move a group may write into the row's next entry, as with
 * any row whose entry was removed.
 */
#ifndef LOXILB_GROW_H
#define LOXILB_GROW_H

#include "table/state.h"
#include "table/table_write.h"

/* 0 -> the entry that is being moved, per CPU, to save stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct connection);
} moved_entries SEC(".maps");

/* A group that is being moved. */
struct group_move {
	__u32 group;
	__u32 goal; /* groups of the new size */
	__u32 first; /* the first group to which its keys go */
	bool failed; /* a lock was not available, or no room: try again */
};

/* Copies a row to the bucket of its key for this placement. group: the group that is being moved,
 * whose locks are held. Returns 0, -E2BIG if the bucket's group is full, -EBUSY if a lock was not
 * available. Global (verifier: globals). */
__noinline int row_copy(struct table_row *row, __u32 group,
			enum placement placed)
{
	struct table_state *t = table_state_get();
	struct connection *copy;
	struct table_bucket *b;
	__u32 zero = 0, word, to;
	__u64 hash, status;
	int err;

	if (!row) /* verifier: null */
		return -EBUSY;
	hash = hash_by(t, &row->key, placed);
	to = table_group(hash, table_size(t));
	b = bucket_get(to, hash_bucket(hash));
	copy = bpf_map_lookup_elem(&moved_entries, &zero);
	if (!b || !copy || (to != group && !bucket_lock(b)))
		return -EBUSY;
	word = __sync_fetch_and_or((__u32 *)&row->connection.flags,
				   STATE_ENDED);
	*copy = row->connection;
	*(__u32 *)&copy->flags = word;
	status = (row->status & ~ROW_PLACED) | (__u64)placed
						       << ROW_PLACED_SHIFT;
	err = group_put(b, to, &row->key, copy, hash, status);
	if (err) {
		*(volatile __u32 *)&row->connection.flags = word;
	} else {
		location_record_entry(copy, to);
		if (to < group) /* after the copy, before the row is freed */
			__sync_fetch_and_add(&t->moved_back, 1);
	}
	if (to != group)
		bucket_unlock(b);
	/* the sweep may have visited the new place, and not the old one */
	key_mark_away(&row->key, placed);
	return err;
}

/* Copies a row to its key's home in the new group. If that is the first home, and full, copies it
 * to the second one: among millions of connections some group is full, and its connections may last
 * for days. Not in the other direction: a lookup searches the first home first, so it would miss the
 * row at both. */
static __always_inline int row_copy_home(struct table_row *row, __u32 group)
{
	struct table_state *t = table_state_get();
	const enum placement placed = row_placement(row);
	int err;

	err = row_copy(row, group, placed);
	if (likely(err != -E2BIG) || !t->has_homes ||
	    placed != key_placement(t, &row->key, false))
		return err;
	return row_copy(row, group, key_placement(t, &row->key, true));
}

/* Moves the n-th row of a group, if it belongs elsewhere. */
static long row_move(__u32 n, struct group_move *m)
{
	__u32 bucket = n / ROWS_PER_BUCKET, i = n % ROWS_PER_BUCKET;
	struct table_bucket *b = bucket_get(m->group, bucket);
	struct table_state *t = table_state_get();
	struct table_row *row;
	__u64 hash;

	row = b ? bucket_row(b, i) : NULL;
	if (!row || !(row->status & ROW_LIVE))
		return 0;
	hash = hash_by(t, &row->key, row_placement(row));
	if (hash_group(hash, m->goal) == m->group)
		return 0;
	if (row_copy_home(row, m->group)) {
		m->failed = true;
		return 1;
	}
	group_clear(m->group, hash_bucket(hash), bucket << FOUND_ROW_BITS | i);
	return 0;
}

/* Locks a bucket by its number. Global (verifier: globals). */
__noinline int group_lock_bucket(__u32 group, __u32 i)
{
	struct table_bucket *b = bucket_get(group, i);

	return b && bucket_lock(b) ? 0 : -EBUSY;
}

static __always_inline void group_unlock(__u32 group, __u32 buckets)
{
	struct table_bucket *b;

	NO_UNROLL
	for (__u32 i = 0; i < buckets && i < BUCKETS_PER_GROUP; i++) {
		b = bucket_get(group, i);
		if (b)
			bucket_unlock(b);
	}
}

/* Locks all buckets of a group. No CPU that holds a lock in another group wants one
 * in this group. */
static __always_inline bool group_lock(__u32 group)
{
	NO_UNROLL
	for (__u32 i = 0; i < BUCKETS_PER_GROUP; i++) {
		if (group_lock_bucket(group, i)) {
			group_unlock(group, i);
			return false;
		}
	}
	return true;
}

/* Copies CONTROL_AWAY from the buckets of a group to the future homes of its keys. */
static long group_copy_away(__u32 n, struct group_move *m)
{
	struct table_bucket *b, *to;

	NO_UNROLL
	for (__u32 i = 0; i < BUCKETS_PER_GROUP; i++) {
		b = bucket_get(m->group, i);
		to = bucket_get(m->first + n, i);
		if (b && to && b->tags[CONTROL_WORD] & CONTROL_AWAY)
			bucket_mark_away(to);
	}
	return 0;
}

/* Copies all of them before any key is looked up there. */
static __always_inline void group_announce_away(struct group_move *m,
						__u32 groups)
{
	__u64 lowest = (((__u64)m->group << 32) + groups - 1) / groups,
	      last = ((((__u64)m->group + 1) << 32) - 1) / groups;

	m->first = lowest * m->goal >> 32;
	last = last * m->goal >> 32;
	bpf_loop(last - m->first + 1, group_copy_away, m, 0);
}

/* Moves the next group. Returns false if none is left, or a lock was not available. */
static __noinline bool group_move_next(void)
{
	struct table_state *t = table_state_get();
	struct group_move m = {};
	__u64 size;
	__u32 unmoved;

	size = t->size;
	unmoved = size_unmoved(size);
	m.goal = size_goal(size);
	if (m.goal == size_groups(size))
		return false;
	if (!unmoved && !t->unfinished) {
		t->size = size_pack(m.goal, m.goal, m.goal);
		return false;
	}
	m.group = t->unfinished ? unmoved : unmoved - 1;
	if (!group_lock(m.group))
		return false;
	group_announce_away(&m, size_groups(size));
	__sync_lock_test_and_set(&t->size,
				 size_pack(size_groups(size), m.goal, m.group));
	bpf_loop(BUCKETS_PER_GROUP * ROWS_PER_BUCKET, row_move, &m, 0);
	t->unfinished = m.failed;
	group_unlock(m.group, BUCKETS_PER_GROUP);
	return !m.failed;
}

#endif
