/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * redial.h - decides about a SYN that meets a connection which looks alive.
 *
 * A client that vanished dials again from the same port. If its endpoint is well,
 * the SYN goes there: the endpoint answers it, by a challenge ACK or by accepting
 * it (RFC 9293 section 3.10.7.4). If the endpoint is down, has left the service, or
 * does not answer, the SYN opens a new connection.
 *
 * Anybody can forge a SYN, so a SYN alone ends no connection whose endpoint may
 * answer: the endpoint's own silence does (docs/adr/0067-redials.md).
 */
#ifndef LOXILB_REDIAL_H
#define LOXILB_REDIAL_H

#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "packet.h"
#include "rows.h"
#include "service.h"
#include "state.h"
#include "table.h"

/* For how long a lost endpoint must have been silent in a connection until a SYN
 * ends it. */
#define REDIAL_LOST_SILENCE (3 * hz)

/* How long a SYN waits for its answer, before the next one ends the connection.
 * Clients repeat a SYN after 1 s (RFC 6298), and Linux sends no second
 * challenge ACK for 0.5 s. */
#define REDIAL_WAIT (hz * 3 / 4)

/* A SYN that was asked longer ago than this is forgotten. */
#define REDIAL_MEMORY (130 * hz)

/* By the hash of the client's tuple: its upper half, and below it the jiffies when a
 * SYN was last forwarded for the endpoint to answer. Two connections that share a
 * word forget each other's. Not a map, as a program may have 64 of those. Written by
 * the packet path. */
volatile __u64 redials[MAX_REDIALS] SEC(".data.runtime") = {};

static __always_inline bool redial_is_silent_for(const struct packet *p,
						 const struct connection *c,
						 __u32 time)
{
	return (__s32)(p->now - c->seen) >= (__s32)time;
}

/* Reports whether the endpoint has left an earlier SYN unanswered. Else this SYN
 * may be the one to be answered: not if either side was heard of just now, since
 * the endpoint may then be limiting its challenge ACKs. */
static __always_inline bool redial_is_unanswered(const struct packet *p,
						 const struct connection *c,
						 const struct connection *reply)
{
	const struct table_state *t = table_state_get();
	__u64 hash = t ? table_hash(t, &p->tuple) : 0, found;
	__u64 i = hash % MAX_REDIALS;
	__u32 asked;

	found = redials[i];
	asked = found;
	if (!((found ^ hash) >> 32)) {
		if (p->now - asked < REDIAL_WAIT)
			return false;
		if (p->now - asked <= REDIAL_MEMORY &&
		    (__s32)(c->seen - asked) < 0 &&
		    (__s32)(reply->seen - asked) < 0)
			return true;
	}
	if (redial_is_silent_for(p, c, REDIAL_WAIT) &&
	    redial_is_silent_for(p, reply, REDIAL_WAIT))
		redials[i] = hash >> 32 << 32 | p->now;
	return false;
}

/* Refuses a SYN of a connection with an endpoint that has left its service. */
static __always_inline enum verdict redial_refuse(struct packet *p,
						  __u32 service)
{
	service_count_refused(service, DROP_TUPLE_IN_USE);
	return drop(p, DROP_TUPLE_IN_USE);
}

/* Decides about a SYN of the client that is not the first of a connection which
 * the endpoint has answered. reply: the entry of answers; NULL if none are seen, and
 * then the client's own packets stand for them. CONTINUE: the SYN follows the
 * connection. MISS: it opens a new one. Global (verifier 1). */
__noinline enum verdict redial(struct packet *p, const struct connection *c,
			       const struct connection *reply)
{
	const struct endpoint *ep;
	__u16 flags;

	if (!p || !c) /* verifier 2 */
		return VERDICT_DROP;
	ep = endpoint_find(c->endpoint);
	flags = ep ? ep->flags & ENDPOINT_LOST : 0;
	if (flags && redial_is_silent_for(p, reply ?: c, REDIAL_LOST_SILENCE))
		return VERDICT_MISS;
	if (flags & ENDPOINT_REMOVED) /* whose address may be a stranger's */
		return redial_refuse(p, ep->service);
	if (!reply || !(state_read(reply) & CONN_ASSURED) ||
	    !redial_is_unanswered(p, c, reply))
		return VERDICT_CONTINUE;
	return VERDICT_MISS;
}

#endif
