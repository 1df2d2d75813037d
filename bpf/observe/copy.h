/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * copy.h - sends copies of connections to user space, which sends them to other nodes:
 * when the endpoint has answered, when the client has proven that it exists, and when
 * the connection has closed (docs/adr/0092-connection-sync.md).
 *
 * Packets of established connections do not come by. Without a cluster, others pay for
 * reading one cached word when they change a state. A packet never waits: if the ring is
 * full, the copy is lost and counted, and user space scans the table for it.
 */
#ifndef LOXILB_COPY_H
#define LOXILB_COPY_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "protocol/closing.h"
#include "table/bucket.h"
#include "table/state.h"

/* How many connections per second are copied before their client has proven that it
 * exists. This bounds the cost of a flood of forged SYNs; further connections are
 * copied once they are assured. */
#define COPY_UNPROVEN_RATE 50000

/* Whether other nodes want copies. Written by user. */
volatile __u32 copying SEC(".data.runtime") = 0;

struct token_bucket copies_unproven SEC(".data.runtime") = {};

static __always_inline bool copy_has_protocol(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_UDP ||
	       protocol == IPPROTO_SCTP;
}

/* Returns for how long both directions have been silent, in jiffies. */
static __always_inline __u32 copy_idle(const struct connection *client,
				       const struct connection *reply,
				       __u32 now)
{
	__u32 last = client->seen;

	if (reply && (__s32)(reply->seen - last) > 0)
		last = reply->seen;
	return (__s32)(now - last) > 0 ? now - last : 0;
}

/* Describes a connection by its entries. reply: NULL if there is none. */
static __always_inline void copy_fill(struct connection_copy *e,
				      const struct connection *client,
				      const struct connection *reply,
				      __u8 protocol)
{
	const __u32 word = state_read(client);

	e->source = client->saddr;
	e->endpoint = client->daddr;
	e->source_port = client->sport;
	e->endpoint_port = client->dport;
	e->client = reply ? reply->daddr : client->saddr;
	e->vip = reply ? reply->saddr : client->daddr;
	e->client_port = reply ? reply->dport : client->sport;
	e->vip_port = reply ? reply->sport : client->dport;
	e->seq_end = client->seq_end;
	e->ack = client->ack;
	e->reply_seq_end = reply ? reply->seq_end : client->ack;
	e->reply_ack = reply ? reply->ack : client->seq_end;
	e->id = client->endpoint;
	e->service = 0;
	e->idle = copy_idle(client, reply, (__u32)bpf_jiffies64());
	e->made = 0;
	e->protocol = protocol;
	e->flags = word;
	e->hop = (word >> STATE_HOP_SHIFT) &
		 (HOP_FAMILY | HOP_CHANGES_STREAM | HOP_TUNNELS);
	e->traits = (word >> STATE_TRAITS_SHIFT) & (CONN_SNAT | CONN_ONE_WAY);
	e->generation = word >> STATE_GENERATION_SHIFT;
	e->result = 0;
	e->persist_prefix = 0;
	e->late = 0;
}

/* Sends a copy to user space. Wakes it only if it has read all earlier ones, so a busy
 * reader costs nothing. Global (verifier: globals). */
__noinline __maybe_unused int copy_send(const struct connection *client,
					const struct connection *reply,
					__u32 protocol)
{
	__u32 number = COPIES;
	void *ring = bpf_map_lookup_elem(&watchers, &number);
	struct connection_copy *e;
	struct omitted_counts *n;

	if (!client || !ring)
		return 0;
	e = bpf_ringbuf_reserve(ring, sizeof(*e), 0);
	if (likely(e)) {
		copy_fill(e, client, reply, protocol);
		e->made = bpf_ktime_get_boot_ns() >> COPY_TIME_SHIFT;
		bpf_ringbuf_submit(e, 0);
		return 0;
	}
	n = bpf_map_lookup_elem(&untold_counts, &number);
	if (n)
		n->lost++;
	return 0;
}

/* Reports whether other nodes could continue a connection with this word. They could
 * not before the endpoint has acknowledged the PROXY header: a copy does not contain
 * where the client's data begins. proxy_record() sends it later. */
static __always_inline bool copy_is_complete(__u32 word)
{
	return (word & (STATE_CHANGES_STREAM | STATE_PROXY_ACKED)) !=
	       STATE_CHANGES_STREAM;
}

/* Reports whether other nodes need to know of a change of state. */
static __always_inline bool copy_is_due(__u32 before, __u32 after)
{
	__u8 gained = after & ~before;

	if (!(after & CONN_REPLIED) || after & STATE_ENDED ||
	    !copy_is_complete(after))
		return false;
	if (!state_is_same_generation(before, after))
		gained = after;
	if ((connection_is_closed(after) && !connection_is_closed(before)) ||
	    (connection_may_be_closed(after) &&
	     !connection_may_be_closed(before)))
		return true;
	gained &= CONN_REPLIED | CONN_ASSURED;
	if (gained == CONN_REPLIED)
		return bucket_take_shared(&copies_unproven, COPY_UNPROVEN_RATE,
					  COPY_UNPROVEN_RATE,
					  (__u32)bpf_jiffies64());
	return gained;
}

/* Copies the connection of an entry if its state has changed so. word: before. peer: the
 * other entry, or NULL. Global (verifier: globals). */
__noinline __maybe_unused int copy_if_changed(const struct connection *c,
					      __u32 word,
					      const struct connection *peer,
					      __u32 protocol)
{
	if (!c || !copy_has_protocol(protocol) ||
	    !copy_is_due(word, state_read(c)))
		return 0;
	return word & CONN_REPLY_DIRECTION ? copy_send(peer, c, protocol) :
					     copy_send(c, peer, protocol);
}

#endif
