/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * claim.h - reserves the tuple that an endpoint will answer to, by making the entry of
 * its answers.
 *
 * The connection that inserts that entry owns the tuple: two clients never share one.
 * Its source is the client's address and port, or a local one (snat.h) if the endpoint's
 * answers would bypass this machine otherwise. A connection whose endpoint answers its
 * client directly has no entry of answers, and reserves nothing.
 */
#ifndef LOXILB_CLAIM_H
#define LOXILB_CLAIM_H

#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "conntrack/expiry.h"
#include "open/snat.h"
#include "packet/checksum.h"
#include "packet/packet.h"
#include "service/opening.h"
#include "service/select.h"
#include "table/epoch.h"
#include "table/pair.h"

/* Fills in the keys and the entry of answers: its key is the tuple that the endpoint
 * sends, its tuple the one that the client expects. At this point the source is the
 * client's. */
static __always_inline void describe_entries(const struct packet *p,
					     const struct endpoint *ep,
					     struct opening *o)
{
	struct connection *c = &o->entries.entry;

	__builtin_memset(c, 0, sizeof(*c));
	o->entries.client_key = p->tuple;
	o->source.addr = p->tuple.saddr;
	o->source.port = p->tuple.sport;
	o->entries.reply_key = (struct connection_key){
		.saddr = ep->addr,
		.daddr = p->tuple.saddr,
		.sport = endpoint_port(p, ep),
		.dport = p->tuple.sport,
		.protocol = p->tuple.protocol,
	};
	c->saddr = p->tuple.daddr;
	c->daddr = p->tuple.saddr;
	c->sport = p->tuple.dport;
	c->dport = p->tuple.sport;
	c->seen = p->now;
	hop_forget(c, p->now); /* no next hop is known yet */
	c->endpoint = o->choice.endpoint;
	c->ack = protocol_first_ack(p);
	c->flags = CONN_REPLY_DIRECTION;
	c->generation = ++o->generation;
	o->entries.is_pair = false;
	if (family_differs(p, ep)) {
		o->entries.reply_key.protocol =
			family_protocol(p->tuple.protocol);
		c->hop = HOP_FAMILY;
	}
	if (unlikely(o->service.flags & (SERVICE_PROXY | SERVICE_FTP)))
		c->hop |= HOP_CHANGES_STREAM;
	if (unlikely(o->service.flags & SERVICE_UNCOMMON))
		c->hop |= o->service.flags & SERVICE_NO_XDP ? HOP_NO_XDP :
							      HOP_HELPER;
}

/* The number of endpoints on this machine. Packets pay nothing while it is 0. Written
 * by user. */
volatile __u32 local_endpoints SEC(".data.runtime") = 0;

/* Reports whether the endpoint's answers would bypass this machine: if the client is in
 * the endpoint's own network, or is a neighbour of the router to the endpoint; or if
 * user space expects this for any client. */
static __always_inline bool answers_bypass_us(const struct endpoint *ep,
					      const struct ip_addr *client)
{
	if (ep->flags & ENDPOINT_SNAT)
		return true;
	if (ep->addr_bits && same_prefix(&ep->addr, client, ep->addr_bits))
		return true;
	return ep->source_bits &&
	       same_prefix(&ep->source, client, ep->source_bits);
}

/* Reports whether the endpoint must see a local address as the source: if the mode
 * requires it, if the endpoint's answer would bypass this machine, if the endpoint is
 * the client itself, or if it uses the other IP version. Not if the endpoint is on this
 * machine: the kernel drops packets from outside whose source is an address of the
 * machine. Global (verifier: globals). */
__noinline int needs_local_source(const struct packet *p,
				  const struct opening *o,
				  const struct endpoint *ep)
{
	if (!p || !o || !ep) /* verifier: null */
		return false;
	if (family_differs(p, ep))
		return true;
	if (o->service.mode == MODE_DEFAULT &&
	    !same_addr(&ep->addr, &p->tuple.saddr) &&
	    !answers_bypass_us(ep, &p->tuple.saddr))
		return false;
	return !local_endpoints || !is_local_address(&ep->addr);
}

/* Leaves the entry of answers to enter(), if it can be inserted together with the
 * client's. Then the tuple is not reserved yet: if it is in use, enter() returns MISS,
 * and the claim is repeated with is_apart. */
static __always_inline bool claim_as_pair(struct entries *e)
{
	if (unlikely(e->is_apart) ||
	    !keys_are_pair(&e->client_key, &e->reply_key))
		return false;
	e->reply = e->entry;
	e->is_pair = true;
	return true;
}

/* Reserves the tuple with the client's own address and port, even if an ended
 * connection still has it. TWIN: another CPU has opened the same connection. TAKEN: the
 * client has a live connection to this endpoint from that port, through another VIP. */
static __noinline enum verdict claim_source_of_client(struct packet *p,
						      struct opening *o)
{
	const struct connection_key *key = &o->entries.reply_key;
	struct connection *old;
	enum verdict v;
	__u32 word;

	connection_set_sums(&o->entries.entry, key);
	if (likely(claim_as_pair(&o->entries)))
		return VERDICT_CONTINUE;
	v = insert_entry(p, key, &o->entries.entry);
	if (v != VERDICT_TAKEN)
		return v;
	old = entry_find(key);
	if (!old)
		return drop(p, DROP_CONNECTION_RACE);
	word = state_read(old);
	if (!connection_is_replaceable(old, p, key->protocol))
		return connection_answers(old, &p->tuple) ? VERDICT_TWIN :
							    VERDICT_TAKEN;
	if (!connection_end(key, old, word, PORT_IS_FREE))
		return drop(p, DROP_CONNECTION_RACE); /* another CPU ends it */
	return insert_entry(p, key, &o->entries.entry);
}

/* Reserves the tuple of an outward connection whose source is given. Both addresses change,
 * so its keys are no pair. */
static __always_inline enum verdict claim_given_source(struct packet *p,
						       struct opening *o)
{
	o->source.addr = o->outward.peer.source;
	o->source.port = p->tuple.sport;
	o->entries.reply_key.daddr = o->source.addr;
	o->entries.is_apart = true;
	return claim_source_of_client(p, o);
}

/* Reserves a tuple at the chosen endpoint. CONTINUE: the entry of answers is made, and
 * o->source is the source that the endpoint will see. TAKEN: the tuple may be free at
 * another endpoint. Global (verifier: globals). */
__noinline enum verdict claim_at_endpoint(ctx_t *ctx, struct packet *p)
{
	struct opening *o = opening_get();
	const struct endpoint *ep;

	if (!p || !o) /* verifier: null */
		return VERDICT_DROP;
	ep = opening_endpoint(o);
	if (!ep)
		return drop(p, DROP_CONNECTION_RACE);
	describe_entries(p, ep, o);
	if (o->service.mode == MODE_DSR)
		return VERDICT_CONTINUE;
	if (unlikely(o->outward.is && o->outward.keeps_port))
		return claim_given_source(p, o);
	if (needs_local_source(p, o, ep)) {
		o->source.keeps_address = false;
		return claim_local_source(ctx, p, ep, o);
	}
	return o->source.keeps_address ? claim_local_source(ctx, p, ep, o) :
					 claim_source_of_client(p, o);
}

#endif
