/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lifetime.h - counts how long connections lived and how many bytes they carried, when
 * they end (docs/adr/0003-connection-tracking.md).
 *
 * The beginning of a connection is in its row's status word, and lookups test only one
 * bit of it: packets of established connections pay nothing, and a row needs no more
 * space. Removal has the other data: each direction's bytes are in its own row, and the
 * lifetime is in the client's, which is removed last.
 */
#ifndef LOXILB_LIFETIME_H
#define LOXILB_LIFETIME_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "protocol/protocol.h"
#include "table/state.h"
#include "table/table.h"

/* Argument of the removal of a row, in place of the hop in its entry's word, to save
 * stack. Its result is passed to the removal of the connection's other row. */
#define REMOVE_COUNTS (1U << STATE_HOP_SHIFT) /* it belonged to a connection */
#define REMOVE_OTHER \
	(2U << STATE_HOP_SHIFT) /* the other row was removed, and ... */
#define REMOVE_SEEN_SHIFT \
	32 /* ... its direction was last used then, in jiffies */
#define REMOVE_WORD(word) ((word) & ~(__u64)STATE_HOP)

static __always_inline __u64 row_removed(__u32 seen)
{
	return REMOVE_OTHER | (__u64)seen << REMOVE_SEEN_SHIFT;
}

/* Returns the status of a row in use by a connection that begins now. Its jiffies are
 * below ROW_FLAGS and never 0. */
static __always_inline __u64 row_status_now(void)
{
	return ROW_LIVE | bpf_jiffies64();
}

static __always_inline struct table_row *row_of_connection(struct connection *c)
{
	return (void *)c - __builtin_offsetof(struct table_row, connection);
}

/* Marks the beginning of a row's next connection, unless the row is being removed. */
static __always_inline void row_restart(struct table_row *row)
{
	__u64 status = row->status;

	if (status & ROW_LIVE)
		__sync_val_compare_and_swap(&row->status, status,
					    row_status_now() |
						    (status & ROW_PLACED));
}

/* Adds a value to the bucket that ends at the next power of two. Atomic, since a
 * packet may interrupt the sweep. Global (verifier: globals). */
__noinline __maybe_unused int histogram_add(struct histogram *h, __u64 value)
{
	__u64 above = value ? value - 1 : 0;
	__u32 bucket = 0;

	if (!h) /* verifier: null */
		return 0;
	_Pragma("clang loop unroll(full)") for (__u32 bits = 32; bits;
						bits /= 2)
	{
		if (!(above >> bits))
			continue;
		above >>= bits;
		bucket += bits;
	}
	bucket += above;
	if (bucket >= HISTOGRAM_BUCKETS)
		bucket = HISTOGRAM_BUCKETS - 1;
	asm volatile("" : "+r"(bucket)); /* verifier: bounds */
	if (bucket < HISTOGRAM_BUCKETS)
		__sync_fetch_and_add(&h->buckets[bucket], 1);
	__sync_fetch_and_add(&h->sum, value);
	return 0;
}

static __always_inline struct lifetime_counts *lifetime_counts_of(__u8 protocol)
{
	__u32 class = protocol_of(protocol).lifetime;

	return bpf_map_lookup_elem(&lifetimes, &class);
}

/* Counts the time from the first packet to the last one. It is unknown in rows that
 * an earlier version has made. */
static __always_inline void count_life(struct lifetime_counts *n,
				       const struct table_row *row, __u64 what)
{
	__u64 began = row->status & ~ROW_FLAGS, now = bpf_jiffies64();
	__u32 last = row->connection.seen;
	__s64 life;

	if (!began)
		return;
	if (what & REMOVE_OTHER &&
	    (__s32)((__u32)(what >> REMOVE_SEEN_SHIFT) - last) > 0)
		last = what >> REMOVE_SEEN_SHIFT;
	life = now - (__u32)((__u32)now - last) - began;
	if (life <
	    0) /* the first packet was on a CPU whose jiffies are ahead */
		life = 0;
	histogram_add(&n->life, ((__u64)life << LIFE_SHIFT) / hz);
}

/* Counts a row's share of its ended connection; with a handshake, only if it was
 * completed, as failed ones are counted in handshake.h. what: as for the row's
 * removal. */
static __always_inline void row_count_end(const struct table_row *row,
					  __u32 word, __u64 what)
{
	const struct connection *c = &row->connection;
	const __u8 protocol = row->key.protocol;
	struct lifetime_counts *n = lifetime_counts_of(protocol);

	if (!n ||
	    (protocol_of(protocol).has_handshake && !(word & CONN_ASSURED)))
		return;
	if (word & CONN_REPLY_DIRECTION) {
		histogram_add(&n->bytes_out, c->bytes);
		return;
	}
	histogram_add(&n->bytes_in, c->bytes);
	count_life(n, row, what);
}

/* Counts both rows of an ended connection; client: the client's row. */
static __always_inline void pair_count_end(const struct table_row *client,
					   const struct table_row *reply,
					   __u64 what)
{
	const __u8 protocol = client->key.protocol;
	struct lifetime_counts *n = lifetime_counts_of(protocol);

	if (!n || (protocol_of(protocol).has_handshake &&
		   !(state_read(&client->connection) & CONN_ASSURED)))
		return;
	histogram_add(&n->bytes_out, reply->connection.bytes);
	histogram_add(&n->bytes_in, client->connection.bytes);
	count_life(n, client, what | row_removed(reply->connection.seen));
}

#endif
