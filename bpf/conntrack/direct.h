/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * direct.h - answers of endpoints that answer clients directly (MODE_DSR), if they
 * still pass through this machine because it is the endpoints' router. The kernel would
 * drop them, since their source is the VIP, an address of this machine. So they are
 * forwarded here, unchanged except for the TTL (docs/adr/0048-direct-return.md).
 *
 * They have no entry in the table. A temporary one is derived from the entry of the
 * client's packets.
 */
#ifndef LOXILB_DIRECT_H
#define LOXILB_DIRECT_H

#include "conntrack/conntrack.h"
#include "conntrack/expiry.h"
#include "packet/packet.h"
#include "service/opening.h"
#include "table/epoch.h"

/* Whether there has been a service of MODE_DSR; otherwise direct answers are not looked
 * up. Connections outlive a change of the mode, so it stays set. Written by user. */
volatile __u32 direct_answers SEC(".data.runtime") = 0;

/* Returns the client's entry of the connection that a packet with this tuple answers.
 * The key is in the opening, to save stack. */
static __noinline __maybe_unused struct connection *
direct_find(const struct connection_key *answer, __u32 now)
{
	struct opening *o = opening_get();
	struct connection *c;

	if (likely(!direct_answers) || !o)
		return NULL;
	o->entries.client_key = *answer;
	o->entries.client_key.saddr = answer->daddr;
	o->entries.client_key.daddr = answer->saddr;
	o->entries.client_key.sport = answer->dport;
	o->entries.client_key.dport = answer->sport;
	c = entry_find(&o->entries.client_key);
	if (!c || (c->traits & (CONN_ONE_WAY | CONN_ENDED)) != CONN_ONE_WAY)
		return NULL;
	/* no other entry of the connection can have been used later */
	if ((__s32)(now - c->seen) >
	    (__s32)connection_timeout(c->endpoint, state_read(c),
				      answer->protocol))
		return NULL;
	return c;
}

/* Makes the temporary entry of answers with this tuple, in the opening of this CPU.
 * Returns NULL if they answer no connection. */
static __always_inline struct connection *
direct_answer_entry(const struct connection_key *answer, __u32 now)
{
	struct connection *c = direct_find(answer, now);
	struct opening *o = opening_get();

	if (!c || !o)
		return NULL;
	if (!connection_is_closed(c->flags)) {
		hop_forget_if_old(c, now);
		c->seen = now;
	}
	__builtin_memset(&o->entries.entry, 0, sizeof(o->entries.entry));
	o->entries.entry.saddr = answer->saddr;
	o->entries.entry.daddr = answer->daddr;
	o->entries.entry.sport = answer->sport;
	o->entries.entry.dport = answer->dport;
	o->entries.entry.seen = now;
	hop_forget(&o->entries.entry, now); /* none is known yet */
	o->entries.entry.endpoint = c->endpoint;
	o->entries.entry.flags = CONN_REPLY_DIRECTION;
	return &o->entries.entry;
}

/* Returns the entry of a packet, or the temporary one of a direct answer. */
static __noinline __maybe_unused struct connection *
entry_or_direct_answer(struct packet *p)
{
	struct connection *c = entry_find(&p->tuple);

	if (c)
		return c;
	p->direct = true;
	return direct_answer_entry(&p->tuple, p->now);
}

#endif
