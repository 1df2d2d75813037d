/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * find.h - finds the entries of the connection table that a listing wants.
 *
 * Copying all entries would take most of the time if few are wanted. User space runs
 * this over a slice of the table at a time, and checks the returned rows: there may be
 * unwanted ones (docs/adr/0055-command-line.md).
 */
#ifndef LOXILB_FIND_H
#define LOXILB_FIND_H

#include "conntrack/conntrack.h"

/* A slice takes a third of a millisecond: at most this many buckets or entries. */
#define FIND_SLICE_BUCKETS 1024
#define FIND_SLICE_FOUND 256

/* The wanted entries. Written by user before a slice. */
struct find_filter find_wanted;

/* A bit for each endpoint whose connections are wanted. Written by user before a
 * slice. */
__u64 find_endpoints[MAX_ENDPOINTS / 64];

/* struct found_row. Written by slices; read by user after each. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} found_rows SEC(".maps");

static __always_inline bool find_flags_match(__u8 protocol, __u8 flags)
{
	__u64 i = protocol_of(protocol).find * FIND_FLAGS + flags / 64;

	/* verifier: bounds */
	asm volatile("" : "+r"(i));
	if (i >= FIND_PROTOCOLS * FIND_FLAGS)
		return false;
	asm volatile("" : "+r"(i));
	return find_wanted.flags[i] >> (flags % 64) & 1;
}

/* Compares addresses. Replies have the addresses that the client sees after
 * translation; a connection without replies has no address of its endpoint. */
static __always_inline bool find_addresses(const struct table_row *row)
{
	const struct connection *c = &row->connection;
	const struct find_filter *f = &find_wanted;
	bool reply = c->flags & CONN_REPLY_DIRECTION;
	const struct ip_addr *client = reply ? &c->daddr : &row->key.saddr;
	const struct ip_addr *vip = reply ? &c->saddr : &row->key.daddr;
	const struct ip_addr *endpoint = reply ? &row->key.saddr : &c->daddr;
	__u16 port = bpf_ntohs(reply ? c->sport : row->key.dport);

	return port >= f->ports[0] && port <= f->ports[1] &&
	       ip_addr_within(client, &f->client, &f->client_mask) &&
	       ip_addr_within(vip, &f->vip, &f->vip_mask) &&
	       (c->traits & CONN_ONE_WAY ||
		ip_addr_within(endpoint, &f->endpoint, &f->endpoint_mask));
}

static __always_inline bool find_endpoint(__u32 id)
{
	return !find_wanted.by_endpoint ||
	       (id < MAX_ENDPOINTS && find_endpoints[id / 64] >> (id % 64) & 1);
}

/* Returns a row to user space if it is wanted: 1, 0, or -1 if there is no room. Global
 * (verifier: globals). */
__noinline int find_row(struct table_row *row, __u32 place)
{
	struct found_row *found;

	if (!row || !(row->status & ROW_LIVE))
		return 0;
	if (!find_endpoint(row->connection.endpoint) ||
	    !find_flags_match(row->key.protocol, row->connection.flags) ||
	    !find_addresses(row))
		return 0;
	found = bpf_ringbuf_reserve(&found_rows, sizeof(*found), 0);
	if (!found)
		return -1;
	found->row = *row;
	found->place = place;
	bpf_ringbuf_submit(found, BPF_RB_NO_WAKEUP);
	return 1;
}

struct find {
	__u32 row; /* the next one, counted through all groups */
	__u32 found;
};

static long find_bucket(__u32 n, struct find *s)
{
	__u32 bucket = s->row / ROWS_PER_BUCKET;
	__u32 first = s->row % ROWS_PER_BUCKET, before;
	struct table_bucket *b;
	struct table_row *row;
	int got;

	b = bucket_get(bucket / BUCKETS_PER_GROUP, bucket % BUCKETS_PER_GROUP);
	if (!b || s->found >= FIND_SLICE_FOUND)
		return 1;
	NO_UNROLL
	for (__u32 i = 0; i < ROWS_PER_BUCKET; i++) {
		/* i < first in another form: after a comparison of first, the
		 * verifier would follow each value of it on a path of its own */
		before = first - i;
		asm volatile("" : "+r"(before));
		if ((__s32)before > 0)
			continue;
		row = bucket_has(b, i) ? bucket_row(b, i) : NULL;
		got = row ? find_row(row, s->row) : 0;
		if (got < 0)
			return 1;
		s->found += got;
		s->row++;
	}
	return 0;
}

/* Searches a slice of the table from a row on, and returns the next row. */
static __always_inline __u32 find_slice(__u32 row)
{
	struct find s = { .row = row };

	bpf_loop(FIND_SLICE_BUCKETS, find_bucket, &s, 0);
	return s.row;
}

#endif
