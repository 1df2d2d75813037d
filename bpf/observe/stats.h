/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * stats.h - counters. Counters of packets are per CPU: exact, and CPUs share no cache
 * line. Counters of connections are atomic.
 */
#ifndef LOXILB_STATS_H
#define LOXILB_STATS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/packet.h"
#include "table/rows.h"

static __always_inline void count_traffic(const struct packet *p,
					  const struct connection *c)
{
	__u32 id = c->endpoint;
	struct endpoint_traffic *t;

	t = endpoint_row(&endpoint_traffics, id);
	if (!t)
		return;
	if (c->flags & CONN_REPLY_DIRECTION) {
		t->packets_out++;
		t->bytes_out += p->length;
	} else {
		t->packets_in++;
		t->bytes_in += p->length;
	}
}

/* Reports whether a packet with this verdict was forwarded: to another machine, or to
 * a socket of this one. */
static __always_inline bool is_forwarded(enum verdict v)
{
	return v == VERDICT_REDIRECT || v == VERDICT_PASS;
}

/* Counts a packet that is translated and will be forwarded. */
static __always_inline void count(const struct packet *p, struct connection *c)
{
	c->packets++;
	c->bytes += p->length;
	count_traffic(p, c);
}

/* Adds to a counter of this CPU. */
static __always_inline void count_one(void *counters, __u32 i)
{
	__u64 *n = bpf_map_lookup_elem(counters, &i);

	if (n)
		(*n)++;
}

/* Counts a dropped packet. */
static __noinline __maybe_unused void count_drop(__u32 reason, __u32 length)
{
	__u64 *bytes = bpf_map_lookup_elem(&drop_bytes, &reason);

	count_one(&drops, reason);
	if (bytes)
		*bytes += length;
}

static __noinline __maybe_unused void count_pass(__u32 reason)
{
	count_one(&passes, reason);
}

#endif
