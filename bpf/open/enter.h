/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * enter.h - makes the entry of the client's packets, or both entries: the connection is
 * open.
 */
#ifndef LOXILB_OPEN_ENTER_H
#define LOXILB_OPEN_ENTER_H

#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "observe/wake.h"
#include "open/claim.h"
#include "open/reopen.h"
#include "packet/checksum.h"
#include "packet/packet.h"
#include "rules/ipsec.h"
#include "service/opening.h"
#include "table/pair.h"

/* Derives the client's entry from the entry of answers. */
static __always_inline void describe_client_entry(const struct packet *p,
						  struct opening *o)
{
	const struct connection_key *reply = &o->entries.reply_key;
	struct connection *c = &o->entries.entry;

	c->saddr = o->source.addr;
	c->daddr = reply->saddr;
	c->sport = o->source.port;
	c->dport = reply->sport;
	c->seq_end = p->seq_end;
	c->ack = 0;
	c->flags = 0;
	connection_invert_sums(c);
}

/* Makes the only entry of a connection whose endpoint answers the client directly.
 * Packets keep their addresses and ports. */
static __always_inline void describe_single_entry(const struct packet *p,
						  struct opening *o)
{
	const __u16 service = o->service.flags;
	struct connection *c = &o->entries.entry;

	c->saddr = p->tuple.saddr;
	c->daddr = p->tuple.daddr;
	c->sport = p->tuple.sport;
	c->dport = p->tuple.dport;
	c->seq_end = p->seq_end;
	c->ack = p->ack;
	/* a segment from the middle of a connection opens it where a hash chooses the
	 * endpoint (admit.h) */
	c->flags = (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_ACK ?
			   CONN_REPLIED :
			   0;
	c->traits = CONN_ONE_WAY;
	c->hop = service & SERVICE_TUNNEL_GUE  ? HOP_TUNNEL_GUE :
		 service & SERVICE_TUNNEL_IPIP ? HOP_TUNNEL_IPIP :
						 0;
	if (unlikely(service & SERVICE_NO_XDP))
		c->hop |= HOP_NO_XDP;
}

/* Decides whether an existing entry with the client's key and this word is replaced.
 * CONTINUE: yes, it is an orphan, or its connection is closed, and was not found before
 * because another CPU was moving it (grow.h). DROP: not yet, another CPU is deleting
 * it. TWIN: no, a copy of the packet has made it on another CPU. TAKEN: no, the client
 * is itself an endpoint, and this is the key of answers to a source port in quarantine.
 */
static __always_inline enum verdict decide_old_entry(struct packet *p,
						     __u32 word)
{
	if (state_is_leftover(word))
		return VERDICT_CONTINUE;
	if (word & STATE_ENDED)
		return drop(p, DROP_CONNECTION_RACE);
	if (word & CONN_REPLY_DIRECTION)
		return VERDICT_TAKEN;
	return connection_is_closed(word) ? VERDICT_CONTINUE : VERDICT_TWIN;
}

/* Inserts the client's entry, replacing an old one if that is allowed. */
static __always_inline enum verdict insert_client_entry(struct packet *p,
							const struct entries *e)
{
	struct connection *old;
	enum verdict v;
	__u32 word;

	v = insert_entry(p, &e->client_key, &e->entry);
	if (v != VERDICT_TAKEN)
		return v;
	old = entry_find(&e->client_key);
	if (!old)
		return drop(p, DROP_CONNECTION_RACE);
	word = state_read(old);
	v = decide_old_entry(p, word);
	if (v != VERDICT_CONTINUE)
		return v;
	if (!connection_end(&e->client_key, old, word,
			    word & STATE_ENDED ? PORT_IS_FREE :
						 port_fate(word)))
		return drop(p, DROP_CONNECTION_RACE); /* another CPU ends it */
	return insert_entry(p, &e->client_key, &e->entry);
}

/* Inserts both entries. MISS: they cannot be inserted as a pair. */
static __always_inline enum verdict insert_entries(struct packet *p,
						   const struct entries *e)
{
	if (unlikely(!e->is_pair))
		return insert_client_entry(p, e);
	return pair_insert(&e->client_key, &e->entry, &e->reply_key,
			   &e->reply) ?
		       VERDICT_MISS :
		       VERDICT_CONTINUE;
}

/* Undoes claim(). Global (verifier: globals). */
__noinline int unclaim(const struct entries *e)
{
	if (e && !e->is_pair && !(e->entry.traits & CONN_ONE_WAY))
		entry_delete(&e->reply_key,
			     state_read(&e->entry) | CONN_REPLY_DIRECTION, 0);
	return 0;
}

/* Undoes claim() and enter(). */
static __always_inline void undo_opening(const struct packet *p,
					 const struct opening *o)
{
	connection_ended(o->entries.entry.endpoint, &p->tuple.saddr, 0,
			 p->tuple.protocol);
	unclaim(&o->entries);
}

/* Checks the IPsec policies for the packets of both directions. TAKEN: one refuses
 * the connection, and claim() is undone. */
static __always_inline enum verdict check_ipsec(ctx_t *ctx, struct packet *p,
						struct opening *o)
{
	const struct connection *c = &o->entries.entry;

	if (likely(!ipsec_count))
		return VERDICT_CONTINUE;
	ipsec_record_epoch(hop_epoch(p));
	if (!ipsec_stops(ctx, p, c) &&
	    (c->traits & CONN_ONE_WAY ||
	     !ipsec_stops_answer(p, p->tuple.protocol)))
		return VERDICT_CONTINUE;
	unclaim(&o->entries);
	return verdict_taken(p, DROP_IPSEC_POLICY);
}

/* Makes the client's entry, with the next hop and this packet already counted, so it
 * need not be looked up again. The connection is counted before others can see the
 * entry, and end it. MISS: claim() must reserve the tuple first. Global (verifier:
 * globals). */
__noinline enum verdict enter(ctx_t *ctx, struct packet *p, struct opening *o)
{
	struct connection_count *n;
	enum verdict v;
	__u32 id;

	if (!p || !o) /* verifier: null */
		return VERDICT_DROP;
	id = o->choice.endpoint;
	n = connection_counts_find(id);
	if (!n) /* never happens: the endpoint exists */
		return drop(p, DROP_CONNECTION_RACE);
	if (o->service.mode == MODE_DSR)
		describe_single_entry(p, o);
	else
		describe_client_entry(p, o);
	v = check_ipsec(ctx, p, o);
	if (v != VERDICT_CONTINUE)
		return v;
	prepare_first_packet(ctx, p, o, &o->entries.entry);
	connection_begins(n, id, &p->tuple.saddr, p->tuple.protocol);
	v = insert_entries(p, &o->entries);
	if (v != VERDICT_CONTINUE) {
		undo_opening(p, o);
		return v;
	}
	connection_has_begun(n);
	wake_on_entries();
	return VERDICT_OPENED;
}

#endif
