/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * walk.h - ends the connections of endpoints.
 *
 * One walk serves any number of endpoints. User space runs it over the groups with such
 * connections (location_map.h), and stops when it has found all connections of the
 * endpoints (docs/adr/0035-open-connections.md).
 */
#ifndef LOXILB_WALK_H
#define LOXILB_WALK_H

#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "sweep/ends.h"

/* A slice of a walk: at most this many buckets, or this many connections. */
#define WALK_SLICE_BUCKETS 1024
#define WALK_SLICE_FOUND 256

/* A bit for each endpoint whose connections end. Written by user before a walk. */
__u64 ending_endpoints[MAX_ENDPOINTS / 64];

/* Number of connections of these endpoints that walks have found. Read by user. */
__u64 walk_met;

/* struct found_end of connections whose ends are notified. Written by walks; read by
 * user after each slice. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17);
} found_ends SEC(".maps");

static __always_inline bool endpoint_is_ending(__u32 id)
{
	return id < MAX_ENDPOINTS && ending_endpoints[id / 64] >> (id % 64) & 1;
}

/* Hands a connection over to user space, which notifies both ends. */
static __always_inline int walk_send(const struct connection_key *key,
				     const struct connection *c, __u32 word)
{
	struct found_end *e;

	e = bpf_ringbuf_reserve(&found_ends, sizeof(*e), 0);
	if (!e)
		return 0; /* the next walk has room */
	e->client = *key;
	connection_reverse(&e->reply, c, key->protocol);
	e->endpoint = c->endpoint;
	e->word = word;
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 1;
}

/* Ends the connection of a row of the table: hands over open connections of TCP and
 * SCTP, and ends others. Returns 1 if it ended one. Global (verifier:
 * globals). */
__noinline int walk_row(struct table_row *row)
{
	const __u32 other = CONN_REPLY_DIRECTION | STATE_TRAIT(CONN_RESTING);
	struct connection_key key;
	struct connection *c;
	__u32 word;

	if (!row || !(row->status & ROW_LIVE))
		return 0;
	c = &row->connection;
	word = state_read(c);
	if (!endpoint_is_ending(c->endpoint) || word & other)
		return 0;
	walk_met++;
	if (word & STATE_ENDED)
		return 0;
	key = row->key; /* the row may change hands when the entry is removed */
	if (ends_can_be_notified(key.protocol) && !connection_is_closed(word))
		return walk_send(&key, c, word);
	if (ends_can_be_notified(key.protocol) && word & CONN_ASSURED)
		return 0; /* it is in quarantine, so that answers to the RSTs find it */
	return connection_end_by_reply(&key, c, word, PORT_RESTS_FROM_NOW);
}

struct walk {
	__u32 bucket; /* the next one, counted through all groups */
	__u32 found;
};

static long walk_bucket(__u32 n, struct walk *w)
{
	struct table_bucket *b = bucket_get(w->bucket / BUCKETS_PER_GROUP,
					    w->bucket % BUCKETS_PER_GROUP);
	struct table_row *row;

	if (!b || w->found >= WALK_SLICE_FOUND)
		return 1;
	w->bucket++;
	NO_UNROLL
	for (__u32 i = 0; i < ROWS_PER_BUCKET; i++) {
		row = bucket_has(b, i) ? bucket_row(b, i) : NULL;
		if (row)
			w->found += walk_row(row);
	}
	return 0;
}

/* Walks through so many buckets of the table, at most a slice, and returns the next
 * one. */
static __always_inline __u32 walk_slice(__u32 bucket, __u32 buckets)
{
	struct walk w = { .bucket = bucket };

	if (buckets > WALK_SLICE_BUCKETS)
		buckets = WALK_SLICE_BUCKETS;
	bpf_loop(buckets, walk_bucket, &w, 0);
	return w.bucket;
}

#endif
