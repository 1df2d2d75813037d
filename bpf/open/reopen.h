/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * reopen.h - reuses the two entries of a closed connection, when the client connects
 * from the same port and gets the same endpoint.
 *
 * A client with many short connections uses a port again within a second or two, and
 * closed connections are kept for ten. Removing two entries and inserting the same two
 * again is most of the cost of a new connection. Reopening costs two lookups, and the
 * next hops are known.
 *
 * Readers on other CPUs see nothing torn: the translation does not change, only the
 * state restarts. The sweep does not remove a connection that was alive a moment ago.
 */
#ifndef LOXILB_REOPEN_H
#define LOXILB_REOPEN_H

#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "open/claim.h"
#include "packet/packet.h"
#include "route/nexthop.h"
#include "service/opening.h"

/* Finds the next hop for the first packet of a connection, and counts it. c is the
 * client's entry. */
static __always_inline void prepare_first_packet(ctx_t *ctx, struct packet *p,
						 struct opening *o,
						 struct connection *c)
{
	o->hop = next_hop_resolve(ctx, p, c);
	if (o->hop == VERDICT_CONTINUE || o->hop == VERDICT_REDIRECT) {
		c->packets = 1;
		c->bytes = p->length;
	}
}

/* Reports whether a new connection would make exactly these two entries. It would not
 * if there is only one entry, or a local source port, which is quarantined first. */
static __always_inline bool reopen_matches(const struct connection *c,
					   __u32 word,
					   const struct connection *peer,
					   __u32 peer_word,
					   const struct entries *new)
{
	if ((word | peer_word) & (STATE_TRAITS & ~STATE_TCP))
		return false;
	if (!(peer_word & CONN_REPLY_DIRECTION) ||
	    c->endpoint != new->entry.endpoint ||
	    (c->hop ^ new->entry.hop) & (HOP_CHANGES_STREAM | HOP_HELPER))
		return false;
	return connection_is_pair(&new->client_key, word, peer, peer_word) &&
	       connection_answers(c, &new->reply_key);
}

static __always_inline void reopen_entry(const struct packet *p,
					 struct connection *c, __u32 seq_end,
					 __u32 ack)
{
	hop_forget_if_silent(c, p->now);
	c->seq_end = seq_end;
	c->ack = ack;
	c->seen = p->now;
	c->packets = 0;
	c->bytes = 0;
}

/* Counts the end of the connection that these two entries belonged to. */
static __always_inline void count_previous(struct connection *c, __u32 word,
					   struct connection *peer)
{
	row_count_end(row_of_connection(peer), word | CONN_REPLY_DIRECTION, 0);
	row_count_end(row_of_connection(c), word, row_removed(peer->seen));
}

static __always_inline void reopen_both(const struct packet *p,
					struct connection *c,
					struct connection *peer)
{
	row_restart(row_of_connection(c));
	reopen_entry(p, peer, 0, p->seq + 1);
	reopen_entry(p, c, p->seq_end, 0);
}

/* Retries after another CPU has moved one of the entries (grow.h). */
static __noinline void reopen_moved(const struct packet *p,
				    const struct entries *e)
{
	struct connection *c, *peer;

	entry_settle(&e->client_key);
	entry_settle(&e->reply_key);
	peer = entry_find(&e->reply_key);
	c = entry_find(&e->client_key);
	if (c && peer)
		reopen_both(p, c, peer);
}

/* Restarts the connection in these two entries. */
static __always_inline enum verdict
reopen_entries(ctx_t *ctx, struct packet *p, struct opening *o,
	       struct connection *c, __u32 word, struct connection *peer)
{
	/* read once: the row may change hands */
	const __u32 id = o->entries.entry.endpoint;
	struct connection_count *n = connection_counts_find(id);

	if (!n)
		return drop(p, DROP_CONNECTION_RACE);
	connection_begins(n, id, &p->tuple.saddr, IPPROTO_TCP);
	if (!connection_begin_next(c, word, &o->entries.reply_key, peer, 0)) {
		connection_ended(id, &p->tuple.saddr, 0, IPPROTO_TCP);
		return drop(p, DROP_CONNECTION_RACE);
	}
	count_previous(c, word, peer);
	connection_has_begun(n);
	reopen_both(p, c, peer);
	if (unlikely(!states_are_of_pair(state_read(c), state_read(peer)))) {
		reopen_moved(p, &o->entries);
		c = entry_find(&o->entries.client_key);
		if (!c)
			return drop(p, DROP_CONNECTION_RACE);
	}
	prepare_first_packet(ctx, p, o, c);
	o->entries.entry = *c;
	return VERDICT_OPENED;
}

/* Reopens the closed connection: OPENED. MISS: it cannot be reopened. */
static __noinline enum verdict reopen_closed(ctx_t *ctx, struct packet *p,
					     struct opening *o)
{
	const struct endpoint *ep = opening_endpoint(o);
	struct connection *c, *peer;
	__u32 word, peer_word;

	if (!ep)
		return drop(p, DROP_CONNECTION_RACE);
	describe_entries(p, ep, o);
	c = entry_find_established(&o->entries.client_key, false);
	if (!c)
		return VERDICT_MISS;
	word = state_read(c);
	if (!connection_is_closed(word))
		return VERDICT_TWIN;
	peer = entry_find_established(&o->entries.reply_key, false);
	if (!peer || o->service.mode == MODE_DSR ||
	    needs_local_source(p, o, ep))
		return VERDICT_MISS;
	peer_word = state_read(peer);
	if (!reopen_matches(c, word, peer, peer_word, &o->entries))
		return VERDICT_MISS;
	return reopen_entries(ctx, p, o, c, word, peer);
}

/* Removes the closed connection of a key, so that new entries can be made. */
static __noinline void reopen_give_up(const struct connection_key *key)
{
	struct connection *c = entry_find(key);
	__u32 word;

	if (!c)
		return;
	word = state_read(c);
	if (connection_is_closed(word))
		connection_discard(key, c, word);
}

/* Reopens the closed connection that the packet has met, if it can be reopened:
 * OPENED. Otherwise removes it: MISS. */
static __always_inline enum verdict reopen(ctx_t *ctx, struct packet *p,
					   struct opening *o)
{
	enum verdict v = VERDICT_MISS;

	if (likely(!p->may_reopen))
		return VERDICT_MISS;
	if (unlikely(ipsec_count)) { /* otherwise checked in enter() only */
		reopen_give_up(&p->tuple);
		return VERDICT_MISS;
	}
	v = reopen_closed(ctx, p, o);
	if (v == VERDICT_MISS)
		reopen_give_up(&o->entries.client_key);
	return v;
}

#endif
