/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * scan.h - finds connections whose copies other nodes need: all for a node that joins,
 * connections that were used since copies were lost, and connections whose copies would
 * expire.
 *
 * A node sends only connections with packets of its own. Otherwise it would return a
 * copy, as alive, to the node that has ended the connection.
 */
#ifndef LOXILB_SCAN_H
#define LOXILB_SCAN_H

#include "conntrack/conntrack.h"
#include "conntrack/expiry.h"
#include "observe/copy.h"

/* A slice takes less than a millisecond: at most this many buckets or connections. */
#define SCAN_SLICE_BUCKETS 1024
#define SCAN_SLICE_FOUND 512

/* A copy is refreshed this often in the time that its connection may be silent. */
#define SCAN_REFRESHES 4

/* Selection of a scan. Written by user before a slice. */
volatile __u32 scan_mode; /* enum scan_mode */
volatile __u32 scan_since; /* jiffies */
volatile __u32
	scan_copies; /* includes copies of which no packet was seen here */

/* struct connection_copy. Written by slices; read by user after each: it has room for
 * one. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} scanned_copies SEC(".maps");

static __always_inline bool scan_is_closing(__u32 word)
{
	return word & (CONN_FIN_CLIENT | CONN_FIN_ENDPOINT | CONN_RESET);
}

/* Reports whether the time for a refresh has come since scan_since. Refreshes are
 * counted from the connection's beginning, so they need no memory, and are spread over
 * time. */
static __always_inline bool scan_is_due(const struct table_row *row,
					__u32 period, __u32 now)
{
	const __u32 began = row->status & ~ROW_FLAGS;

	return (now - began) / period != (scan_since - began) / period;
}

static __always_inline __u32 scan_period(__u32 limit)
{
	return limit / SCAN_REFRESHES ?: 1;
}

/* Reports whether the scan may want a connection, by one of its entries. Most refreshes
 * end here: the other entry is another cache line. */
static __always_inline bool scan_may_include(const struct table_row *row,
					     __u32 word)
{
	__u32 limit;

	if (scan_mode != SCAN_DUE || scan_is_closing(word))
		return true;
	limit = connection_timeout(row->connection.endpoint, word,
				   row->key.protocol);
	return scan_is_due(row, scan_period(limit), (__u32)bpf_jiffies64());
}

/* Reports whether the scan wants a connection. */
static __always_inline bool scan_includes(const struct table_row *row,
					  __u32 word,
					  const struct connection *reply)
{
	const struct connection *c = &row->connection;
	const __u32 now = (__u32)bpf_jiffies64(),
		    idle = copy_idle(c, reply, now);
	__u32 limit;

	if (!scan_copies && !c->packets && !(reply && reply->packets))
		return false;
	limit = connection_timeout(c->endpoint, word, row->key.protocol);
	if (idle > limit)
		return false;
	if (scan_mode == SCAN_ALL)
		return true;
	if (idle <= now - scan_since &&
	    (scan_mode == SCAN_SINCE || scan_is_closing(word)))
		return true;
	/* Refreshed if it was used since the refresh before. */
	return scan_mode == SCAN_DUE &&
	       idle <= scan_period(limit) + (now - scan_since) &&
	       scan_is_due(row, scan_period(limit), now);
}

/* Copies the connection of a row if the scan wants it. Returns 1 if it does. Global
 * (verifier: globals). */
__noinline int scan_row(struct table_row *row)
{
	const __u32 other =
		CONN_REPLY_DIRECTION | STATE_TRAIT(CONN_RESTING | CONN_ENDED);
	const struct connection *reply = NULL;
	struct connection_copy *e;
	__u32 word;

	if (!row || !(row->status & ROW_LIVE)) /* verifier: null */
		return 0;
	word = state_read(&row->connection);
	if (word & other || !(word & CONN_REPLIED) || !copy_is_complete(word) ||
	    !copy_has_protocol(row->key.protocol) ||
	    !scan_may_include(row, word))
		return 0;
	if (!(word & STATE_TRAIT(CONN_ONE_WAY))) {
		reply = connection_peer(&row->connection, row->key.protocol);
		if (!reply || !states_are_of_pair(word, state_read(reply)))
			return 0;
	}
	barrier_var(reply); /* verifier 6.1: checked itself, not by the trait */
	if (!scan_includes(row, word, reply))
		return 0;
	e = bpf_ringbuf_reserve(&scanned_copies, sizeof(*e), 0);
	if (!e)
		return 0;
	copy_fill(e, &row->connection, reply, row->key.protocol);
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 1;
}

struct scan {
	__u32 bucket; /* the next one, counted through all groups */
	__u32 found;
};

static long scan_bucket(__u32 n, struct scan *s)
{
	struct table_bucket *b = bucket_get(s->bucket / BUCKETS_PER_GROUP,
					    s->bucket % BUCKETS_PER_GROUP);
	struct table_row *row;

	if (!b || s->found >= SCAN_SLICE_FOUND)
		return 1;
	s->bucket++;
	NO_UNROLL
	for (__u32 i = 0; i < ROWS_PER_BUCKET; i++) {
		row = bucket_has(b, i) ? bucket_row(b, i) : NULL;
		if (row)
			s->found += scan_row(row);
	}
	return 0;
}

/* Scans a slice of the table from a bucket on, and returns the next one. */
static __always_inline __u32 scan_slice(__u32 bucket)
{
	struct scan s = { .bucket = bucket };

	bpf_loop(SCAN_SLICE_BUCKETS, scan_bucket, &s, 0);
	return s.bucket;
}

#endif
