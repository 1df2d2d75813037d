/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sample.h - samples connections that have just become assured, to see whether their
 * endpoint answers (judge.h, docs/adr/0076-passive-health.md).
 *
 * The client's packet that completes the handshake occupies one of a few places, if one
 * is free. Later packets have no additional work: judge.h compares the numbers in
 * entries with those stored here.
 */
#ifndef LOXILB_SAMPLE_H
#define LOXILB_SAMPLE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "shared.h"
#include "packet/packet.h"
#include "tcp/handshake.h"

/* Returns the place for a client's sample of an endpoint. Each client has one place:
 * silent connections of few clients leave places for others. */
static __always_inline struct connection_sample *
sample_place(__u32 endpoint, const struct ip_addr *client)
{
	const __u64 hash =
		client_hash(client); /* its upper bits are mixed best */
	__u32 place = endpoint * SAMPLES_PER_ENDPOINT +
		      (hash * SAMPLES_PER_ENDPOINT >> 32);

	asm volatile("" : "+r"(place)); /* verifier: bounds */
	return &samples[place % SAMPLES];
}

/* Takes a place, if it is free, or was not judged for long. Of two CPUs, one
 * succeeds. */
static __always_inline bool sample_claim(struct connection_sample *s, __u32 now)
{
	__u32 since = *(volatile __u32 *)&s->since;

	if (since && now - since <= 4 * SAMPLE_STALL * hz)
		return false;
	return __sync_val_compare_and_swap(&s->since, since, now ?: 1) == since;
}

/* Counts a handshake that the client's packet has completed, and samples the
 * connection if there is room. Global (verifier: globals). */
__noinline __maybe_unused int
handshake_completed(const struct packet *p, const struct connection *client,
		    __u32 word)
{
	struct connection_sample *s;

	if (!p || !client) /* verifier: null */
		return 0;
	handshake_step(client->endpoint, HANDSHAKE_STEP(completed));
	if (client->endpoint >= OUTCOME_ROWS)
		return 0;
	s = sample_place(client->endpoint, &p->tuple.saddr);
	if (!sample_claim(s, p->now))
		return 0;
	s->key = p->tuple;
	s->endpoint = client->endpoint;
	s->client_first = p->seq;
	s->endpoint_first = p->ack;
	s->asked = 0;
	s->generation = word >> STATE_GENERATION_SHIFT;
	return 0;
}

/* Counts a SYN that opens a connection. Global (verifier: globals). */
__noinline __maybe_unused int handshake_opened(const struct packet *p,
					       __u32 endpoint)
{
	struct endpoint_outcomes *row = outcomes_find(endpoint);
	__u32 client;

	if (!p) /* verifier: null */
		return 0;
	if (row && !outcomes_answered_lately(row, p->now)) {
		client = client_hash(&p->tuple.saddr);
		if (row->last_client != client) {
			/* of two CPUs' additions, one may be lost */
			row->last_client = client;
			row->clients++;
		}
	}
	return handshake_step(endpoint, HANDSHAKE_STEP(opened));
}

/* Counts a SYN that leaves, if it is the first one of its connection to leave: a
 * policer may have dropped earlier ones. Global (verifier: globals). */
__noinline __maybe_unused int handshake_opened_late(const struct packet *p,
						    const struct connection *c)
{
	const __u8 not_first = CONN_REPLIED | CONN_REPLY_DIRECTION;

	if (!p || !c || !handshake_is_held_back(c) || c->flags & not_first ||
	    c->traits & CONN_ONE_WAY ||
	    handshake_is_outward(&p->tuple, c, false))
		return 0;
	return handshake_opened(p, c->endpoint);
}

#endif
