/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * location_map.h - a location map: the groups of the connection table that have
 * connections of each endpoint, so these are found without a walk through the whole
 * table.
 *
 * It has a bit for each pair of endpoint (several share one beyond ENDPOINT_ROWS) and
 * group, in two editions. Inserting a client's entry sets its bit in the current
 * edition; a pass of the sweep sets the bits of all existing entries. Then user space
 * clears the other edition and makes it the current one. So both together have each
 * connection's bit, and no bit is older than two passes. A missing bit (of an entry
 * that was moved or written behind the sweep) costs a walk through the whole table,
 * since user space knows the number of an endpoint's connections.
 *
 * An endpoint's bits are adjacent: while endpoints are few, they are in the processor's
 * cache, and mostly set.
 */
#ifndef LOXILB_LOCATION_MAP_H
#define LOXILB_LOCATION_MAP_H

#include <linux/bpf.h>
#include "maps.h"

/* Records that a group has a connection of an endpoint. */
static __always_inline void location_record(__u32 endpoint, __u32 group)
{
	__u32 at = LOCATION_PRESENT;
	__u64 *word = bpf_map_lookup_elem(&whereabouts, &at), present;
	__u64 bit = 1ULL << (group % 64);

	if (!word)
		return;
	present = *(volatile __u64 *)word;
	at = (__u32)(present >> 32) +
	     endpoint % ENDPOINT_ROWS * (__u32)present + group / 64;
	word = bpf_map_lookup_elem(&whereabouts, &at);
	if (word && !(*(volatile __u64 *)word & bit))
		__sync_fetch_and_or(word, bit);
}

/* Sets the bit of an entry, if it is a client's. */
static __always_inline void location_record_entry(const struct connection *c,
						  __u32 group)
{
	if (!(c->flags & CONN_REPLY_DIRECTION))
		location_record(c->endpoint, group);
}

#endif
