/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * whereabouts.h - which groups of the connection table have connections of which
 * endpoints, so that those of one endpoint are found without a walk through all.
 *
 * A bit for each endpoint (several share one beyond ENDPOINT_ROWS) and group, in
 * two editions. Who inserts a client's entry sets its bit in the present
 * edition; a pass of the sweep sets those of all entries that are there. Then user
 * space empties the other edition and makes it the present one. So both together
 * have each connection's bit, and none is older than two passes. A bit that is
 * missing (an entry that was moved or written past the sweep) costs a walk through
 * all: user space knows how many connections an endpoint has.
 *
 * An endpoint's bits are side by side: while endpoints are few, they are in the
 * processor's cache, and mostly set.
 */
#ifndef LOXILB_WHEREABOUTS_H
#define LOXILB_WHEREABOUTS_H

#include <linux/bpf.h>
#include "maps.h"

/* Notes that a group has a connection of an endpoint. */
static __always_inline void whereabouts_note(__u32 endpoint, __u32 group)
{
	__u32 at = WHEREABOUTS_PRESENT;
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

/* Does it for an entry, if it is a client's. */
static __always_inline void whereabouts_note_entry(const struct connection *c,
						   __u32 group)
{
	if (!(c->flags & CONN_REPLY_DIRECTION))
		whereabouts_note(c->endpoint, group);
}

#endif
