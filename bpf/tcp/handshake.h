/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * handshake.h - counts the outcomes of handshakes with each endpoint, from which user
 * space recognizes dead endpoints (docs/adr/0076-passive-health.md).
 *
 * Packets of established connections pay nothing. Connections whose answers are not
 * seen do not count, and neither do connections that endpoints open.
 */
#ifndef LOXILB_HANDSHAKE_H
#define LOXILB_HANDSHAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/bpf.h>
#include "config.h"
#include "maps.h"
#include "shared.h"
#include "observe/wake.h"
#include "packet/address.h"
#include "packet/clock.h"
#include "packet/packet.h"
#include "table/rows.h"
#include "table/state.h"

/* How many endpoints may open connections outwards (egress.h). Packets pay nothing
 * while it is 0. Written by user. */
volatile __u32 egress_count SEC(".data.runtime") = 0;

#define HANDSHAKES_SHIFT 4
#define HANDSHAKES (1U << HANDSHAKES_SHIFT)
_Static_assert(sizeof(struct handshake_counts) == HANDSHAKES * sizeof(__u64),
	       "handshake_count() masks with it");

#define HANDSHAKE(member) \
	(offsetof(struct handshake_counts, member) / sizeof(__u64))

#define HANDSHAKE_STEPS_SHIFT 3
#define HANDSHAKE_STEPS (1U << HANDSHAKE_STEPS_SHIFT)
_Static_assert(sizeof(struct handshake_progress) ==
		       HANDSHAKE_STEPS * sizeof(__u64),
	       "handshake_step() masks with it");

#define HANDSHAKE_STEP(member) \
	(offsetof(struct handshake_progress, member) / sizeof(__u64))

/* Increments this CPU's counter of an endpoint, and marks the endpoint as changed. The
 * addition is a barrier, like handshake_count()'s. Global (verifier: globals). */
__noinline __maybe_unused int handshake_step(__u32 endpoint, __u32 step)
{
	__u64 *row = ONLY_SCTP ? NULL :
				 endpoint_row(&handshake_steps, endpoint),
	      found;

	step &= HANDSHAKE_STEPS - 1;
	asm volatile("" : "+r"(step)); /* verifier: bounds */
	if (!row)
		return 0;
	found = __sync_fetch_and_add(row + step, 1);
	asm volatile("" : : "r"(found));
	wake_mark_handshake(endpoint);
	return 0;
}

/* Increments a counter that all CPUs share of an endpoint, and marks the endpoint as changed. The
 * addition is a barrier because its result is used: a reader that finds the bit
 * cleared sees the number. Global (verifier: globals). */
__noinline __maybe_unused int handshake_count(__u32 endpoint, __u32 counter)
{
	__u64 *row = ONLY_SCTP ? NULL : endpoint_row(&handshakes, endpoint),
	      found;

	counter &= HANDSHAKES - 1;
	asm volatile("" : "+r"(counter)); /* verifier: bounds */
	if (!row)
		return 0;
	found = __sync_fetch_and_add(row + counter, 1);
	asm volatile("" : : "r"(found));
	wake_mark_handshake(endpoint);
	return 0;
}

/* Reports whether no SYN of a connection has left yet, since a policer has dropped
 * them: they are no evidence about the endpoint. client: the client's entry. */
static __always_inline bool
handshake_is_held_back(const struct connection *client)
{
	return !client->packets && client->hop & HOP_ATTACHED;
}

/* Reports whether the endpoint has opened the connection outwards: then the other host's
 * address and port stay. Otherwise they change, since no endpoint is its own service.
 * key: of the entry. */
static __always_inline bool
handshake_is_outward(const struct connection_key *key,
		     const struct connection *c, bool reply)
{
	if (likely(!egress_count))
		return false;
	return reply ? same_addr(&c->saddr, &key->saddr) &&
			       c->sport == key->sport :
		       same_addr(&c->daddr, &key->daddr) &&
			       c->dport == key->dport;
}

/* While an endpoint answers SYNs, changes of the client are no evidence, and are not
 * counted (sample.h): a busy endpoint's row is then written some 64 times a second, and
 * otherwise only read. */
static __always_inline bool
outcomes_answered_lately(const struct endpoint_outcomes *row, __u32 now)
{
	return jiffies_within(row->answered_at, now, hz >> 5);
}

static __always_inline void outcomes_note_answer(__u32 endpoint, __u32 now)
{
	struct endpoint_outcomes *row = outcomes_find(endpoint);

	if (row && !jiffies_within(row->answered_at, now, hz >> 6))
		row->answered_at = now;
}

/* Counts an answer to the client's SYN, in the bucket of the time since the first
 * SYN; reply->seen is still the time of that. Global (verifier: globals). */
__noinline __maybe_unused int handshake_answered(const struct connection *reply,
						 __u32 now)
{
	__u32 bucket = 0, took;

	if (!reply) /* verifier: null */
		return 0;
	took = now - reply->seen;
	NO_UNROLL
	for (; took && bucket < HANDSHAKE_BUCKETS - 1; took >>= 1)
		bucket++;
	outcomes_note_answer(reply->endpoint, now);
	if (likely(bucket < HANDSHAKE_FAST))
		return handshake_step(reply->endpoint,
				      HANDSHAKE_STEP(answered) + bucket);
	return handshake_count(reply->endpoint, HANDSHAKE(answered) + bucket);
}

/* The largest total length of an endpoint's packets without data: a SYN+ACK with all
 * usual options, and ACKs with time stamps. */
#define HANDSHAKE_BYTES(packets, ipv6) \
	(8 + ((ipv6) ? 72ULL : 52ULL) * (packets))

/* Counts a RST of the endpoint that ends the connection before the endpoint has sent
 * data. It does not count if the client has not acknowledged the SYN+ACK: the client
 * may not exist, and the endpoint has given up. word: the entry's word before the RST.
 * Global (verifier: globals). */
__noinline __maybe_unused int handshake_reset(const struct packet *p,
					      const struct connection *reply,
					      __u32 word)
{
	if (!p || !reply /* verifier: null */ ||
	    handshake_is_outward(&p->tuple, reply, true))
		return 0;
	if (!(word & CONN_REPLIED))
		return handshake_count(reply->endpoint, HANDSHAKE(refused));
	if (!(word & CONN_ASSURED) ||
	    reply->bytes > HANDSHAKE_BYTES(reply->packets, p->ipv6))
		return 0;
	return handshake_count(reply->endpoint, HANDSHAKE(reset));
}

#endif
