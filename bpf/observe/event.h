/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * event.h - reports events of connections to watchers: opened, assured, closing, ended.
 *
 * A watcher is a ring buffer, which exists while a reader does. Without one, a
 * connection pays for reading one cached word per event. A packet never waits: a
 * watcher that falls behind gets all events of some connections and none of others, and
 * when its ring is full it loses events. Both are counted
 * (docs/adr/0052-connection-events.md).
 */
#ifndef LOXILB_EVENT_H
#define LOXILB_EVENT_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "shared.h"
#include "table/state.h"
#include "table/table.h"

/* When its ring is half full, and when it is three quarters full, a watcher gets the
 * events of one connection of this many. Powers of two. */
#define EVENT_SAMPLE_HALF_FULL 16
#define EVENT_SAMPLE_NEARLY_FULL 256

/* Whether there are watchers. Next to memory that each packet reads anyway. Written
 * by user. The sweep always reads watchers_now. */
volatile __u32 watching SEC(".data.runtime") = 0;

/* Returns n if a ring as full as this gets the events of one connection of n. */
static __always_inline __u32 event_sample(void *ring)
{
	__u64 used = bpf_ringbuf_query(ring, BPF_RB_AVAIL_DATA),
	      size = bpf_ringbuf_query(ring, BPF_RB_RING_SIZE);

	if (likely(2 * used < size))
		return 1;
	return 4 * used < 3 * size ? EVENT_SAMPLE_HALF_FULL :
				     EVENT_SAMPLE_NEARLY_FULL;
}

/* Returns a number that is the same for all events of a connection. */
static __always_inline __u32 event_hash(const struct connection_key *key,
					const struct connection *reply)
{
	__u32 client = 0;

	if (key)
		client = (key->saddr.word[2] ^ key->saddr.word[3]) + key->sport;
	else if (reply)
		client = (reply->daddr.word[2] ^ reply->daddr.word[3]) +
			 reply->dport;
	return client * (__u32)(HASH_FACTOR >> 32) >> 24;
}

/* The parts of an event that are not in the entries, in one word: the kind, the cause
 * of the end, the protocol; and the state word of the client's entry. */
#define EVENT_CAUSE_SHIFT 8
#define EVENT_PROTOCOL_SHIFT 16
#define EVENT_STATE_SHIFT 32
#define EVENT(kind, cause, protocol, word)              \
	((kind) | (__u64)(cause) << EVENT_CAUSE_SHIFT | \
	 (__u64)(protocol) << EVENT_PROTOCOL_SHIFT |    \
	 (__u64)(word) << EVENT_STATE_SHIFT)

static __always_inline void event_fill(struct connection_event *e,
				       const struct connection *client,
				       const struct connection *reply,
				       __u64 what)
{
	__u32 word = what >> EVENT_STATE_SHIFT;

	e->time = bpf_ktime_get_ns();
	e->source = client->saddr;
	e->peer = client->daddr;
	e->source_port = client->sport;
	e->peer_port = client->dport;
	e->endpoint = client->endpoint;
	e->packets_in = client->packets;
	e->bytes_in = client->bytes;
	e->packets_out = reply ? reply->packets : 0;
	e->bytes_out = reply ? reply->bytes : 0;
	e->kind = what;
	e->cause = what >> EVENT_CAUSE_SHIFT;
	e->protocol = what >> EVENT_PROTOCOL_SHIFT;
	e->flags = word;
	e->traits = word >> STATE_TRAITS_SHIFT;
	e->reply_traits = reply ? reply->traits : 0;
	__builtin_memset(e->pad, 0, sizeof(e->pad));
}

/* Sends an event to one watcher. Global (verifier: globals). */
__noinline __maybe_unused int event_notify_one(__u32 number,
					       const struct connection_key *key,
					       const struct connection *client,
					       const struct connection *reply,
					       __u64 what)
{
	void *ring = bpf_map_lookup_elem(&watchers, &number);
	struct omitted_counts *n = bpf_map_lookup_elem(&untold_counts, &number);
	struct connection_event *e;
	__u32 sample;

	if (!ring || !n || !client) /* client: verifier: null */
		return 0;
	sample = event_sample(ring);
	if (unlikely(event_hash(key, reply) & (sample - 1))) {
		n->sampled++;
		return 0;
	}
	e = bpf_ringbuf_reserve(ring, sizeof(*e), 0);
	if (unlikely(!e)) {
		n->lost++;
		return 0;
	}
	if (key) {
		e->client = key->saddr;
		e->vip = key->daddr;
		e->client_port = key->sport;
		e->vip_port = key->dport;
	} else if (reply) {
		e->client = reply->daddr;
		e->vip = reply->saddr;
		e->client_port = reply->dport;
		e->vip_port = reply->sport;
	}
	e->sample = sample;
	event_fill(e, client, reply, what);
	/* no wakeup: readers poll often enough, and waking them costs more than all
	 * this */
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Sends an event of a connection to all watchers, given the entry of its client, and
 * the key of that or of the reply entry. Global (verifier: globals). */
__noinline __maybe_unused int event_notify(const struct connection_key *key,
					   const struct connection *client,
					   const struct connection *reply,
					   __u64 what)
{
	__u32 left = watchers_now;

	if (!client) /* verifier: null */
		return 0;
	NO_UNROLL
	for (__u32 i = 0; i < MAX_WATCHERS; i++) {
		if (left >> i & 1)
			event_notify_one(i, key, client, reply, what);
	}
	return 0;
}

#endif
