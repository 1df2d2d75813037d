/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * reclaim.h - frees the rows of expired connections when user space does not sweep.
 *
 * User space promises in sweep_due when it sweeps next. While it keeps that promise,
 * new connections pay one comparison. Once it is late, each packet that may open a
 * connection first visits a few buckets of the table and ends the connections that have
 * expired there. So the table turns over as fast as new connections arrive, and only a
 * small part of it waits to be visited, whatever the rate (docs/adr/0069-expiry.md). A
 * packet that finds no room visits a few buckets too, without waiting for the promise
 * to lapse.
 *
 * A pass through the table begins at most once a second, which bounds the cost of a
 * flood; no timeout is shorter.
 */
#ifndef LOXILB_RECLAIM_H
#define LOXILB_RECLAIM_H

#include "shared.h"
#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "conntrack/expiry.h"

/* How many buckets of 30 rows a packet visits: RECLAIM_BUCKETS, in 2 to 5 us, plus
 * one for each jiffy without a visit, up to RECLAIM_MAX. So a table in which few
 * connections are opened is also visited within seconds. Fewer if RECLAIM_FREED rows
 * had expired, in some 100 us. */
#define RECLAIM_BUCKETS 2
#define RECLAIM_MAX 32
#define RECLAIM_FREED 64

/* An expired entry is freed after this long, in jiffies: a packet on another CPU may
 * have found it alive, and may still use it. */
#define SWEEP_SLACK (2 * hz)

/* Frees an entry whose connection has expired. Returns whether this CPU has ended the
 * connection. */
static __always_inline bool entry_free_expired(const struct connection_key *key,
					       struct connection *c, __u32 word)
{
	if (word & STATE_ENDED) { /* its removal has failed */
		entry_delete(key, word, REMOVE_COUNTS);
		return false;
	}
	return connection_end_by_reply(key, c, word, PORT_IS_FREE);
}

/* Frees a row if its connection has expired. Returns whether it had. Global
 * (verifier: globals). */
__noinline int row_reclaim(struct table_row *row)
{
	__u32 now = (__u32)bpf_jiffies64(), word;
	struct connection_key key;

	if (!row || !(row->status & ROW_LIVE)) /* verifier: null */
		return 0;
	word = state_read(&row->connection);
	/* another CPU, which may be visiting this bucket too, is deleting it */
	if (word & STATE_ENDED && !state_is_leftover(word))
		return 0;
	if ((__s32)(now - row->connection.seen) <= (__s32)hz)
		return 0;
	key = row->key; /* the row may change hands when the entry is removed */
	if (!connection_is_removable(&row->connection, key.protocol, now,
				     SWEEP_SLACK))
		return 0;
	entry_free_expired(&key, &row->connection, word);
	return 1;
}

/* Takes the next bucket of the pass. False: a pass ended less than a second after it
 * began, and the next one has to wait. */
static __always_inline bool reclaim_take(__u32 *bucket)
{
	struct reclaim_pass *pass = &reclaim_pass;
	__u32 now = (__u32)bpf_jiffies64();

	if (!*(volatile __u32 *)&pass->next) {
		if (now - *(volatile __u32 *)&pass->began < hz)
			return false;
		*(volatile __u32 *)&pass->began = now;
	}
	*bucket = __sync_fetch_and_add(&pass->next, 1);
	return true;
}

/* Ends the pass. Resets the pressure that a killed sweep has left behind. A broken
 * promise is marked as such: after 2^32 jiffies, 49 days at 1,000 Hz, its time would be
 * in the future again. */
static __always_inline void reclaim_end(void)
{
	__u32 now = (__u32)bpf_jiffies64();

	*(volatile __u32 *)&reclaim_pass.next = 0;
	if (!sweep_is_late(now))
		return;
	sweep_due = (now - 1) | 1; /* 0 is none */
	table_state_get()->entries_swept = 0;
}

/* Visits the next bucket of the table. Returns the number of expired rows in it.
 * Global (verifier: globals). */
__noinline int reclaim_bucket(void)
{
	struct table_bucket *b;
	struct table_row *row;
	__u32 bucket;
	int freed = 0;

	if (!reclaim_take(&bucket))
		return 0;
	b = bucket_get(bucket / BUCKETS_PER_GROUP, bucket % BUCKETS_PER_GROUP);
	if (!b) {
		reclaim_end();
		return 0;
	}
	NO_UNROLL
	for (__u32 i = 0; i < ROWS_PER_BUCKET; i++) {
		row = bucket_has(b, i) ? bucket_row(b, i) : NULL;
		if (row)
			freed += row_reclaim(row);
	}
	return freed;
}

/* Returns how many buckets a packet must visit now. */
static __always_inline __u32 reclaim_buckets_due(__u32 now)
{
	__u32 idle = now - *(volatile __u32 *)&reclaim_pass.last;

	if (idle)
		*(volatile __u32 *)&reclaim_pass.last = now;
	return idle < RECLAIM_MAX - RECLAIM_BUCKETS ? RECLAIM_BUCKETS + idle :
						      RECLAIM_MAX;
}

/* Visits the next few buckets. Returns the number of expired rows in them. */
static __always_inline int reclaim_next_buckets(__u32 now)
{
	__u32 share = reclaim_buckets_due(now);
	int freed = 0;

	NO_UNROLL
	for (__u32 i = 0; i < RECLAIM_MAX; i++) {
		if (i >= share || freed >= RECLAIM_FREED)
			break;
		freed += reclaim_bucket();
	}
	return freed;
}

#endif
