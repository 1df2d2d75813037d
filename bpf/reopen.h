/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * reopen.h - lets the two entries of a closed connection serve again, when the
 * client connects from the same port and gets the same endpoint.
 *
 * A client with many short connections uses a port again within a second or
 * two, and closed connections are kept for ten. To remove two entries and to
 * insert the same two again is most of the cost of a new connection: six
 * operations on the table, and next hops to be found. Reopening costs two
 * look-ups, and the next hops are known.
 *
 * Readers on other CPUs see nothing torn: the translation does not change,
 * only the state starts anew. The sweep does not remove a connection that was
 * alive a moment ago.
 */
#ifndef LOXILB_REOPEN_H
#define LOXILB_REOPEN_H

#include <linux/errno.h>
#include "conntrack.h"
#include "forward.h"
#include "opening.h"
#include "packet.h"

/* Resolves the next hop for the first packet of a connection, and counts that
 * packet. */
static __always_inline void opening_next_hop(ctx_t *ctx, struct packet *p,
					     struct opening *o,
					     struct connection *c)
{
	o->hop_verdict = next_hop_prepare(ctx, p, c);
	if (o->hop_verdict == VERDICT_CONTINUE ||
	    o->hop_verdict == VERDICT_REDIRECT) {
		c->packets = 1;
		c->bytes = p->length;
	}
}

/* Are these the entries that would be made? Not if a source port of ours is in
 * use, which is quarantined first, and not if there is one entry only. */
static __always_inline bool reopen_matches(const struct connection *c,
					   __u32 word,
					   const struct connection *peer,
					   __u32 peer_word,
					   const struct opening *o)
{
	return !((word | peer_word) & (STATE_TRAITS & ~STATE_TCP)) &&
	       state_is_same_generation(word, peer_word) &&
	       c->endpoint == o->entry.endpoint &&
	       c->dport == o->reply_key.sport &&
	       same_addr(&c->daddr, &o->reply_key.saddr) &&
	       peer_word & CONN_REPLY_DIRECTION &&
	       peer->sport == o->entry.sport &&
	       same_addr(&peer->saddr, &o->entry.saddr);
}

static __always_inline void reopen_reset_entry(const struct packet *p,
					       struct connection *c,
					       __u32 seq_end, __u32 ack)
{
	way_forget_if_silent(c, p->now);
	c->seq_end = seq_end;
	c->ack = ack;
	c->seen = p->now;
	c->packets = 0;
	c->bytes = 0;
}

/* Removes the closed connection, so that new entries can be made. Not part of
 * reopen(): the stack frames of both would be too large for one chain of
 * calls. */
static __noinline void reopen_give_up(struct packet *p, struct opening *o)
{
	struct connection *c = entry_find(&o->client_key);
	__u32 word;

	if (!c)
		return;
	word = state_read(c);
	if (connection_is_closed(word))
		connection_discard(&o->client_key, c, word);
}

/* Reopens the closed connection, or returns -ENOENT if it cannot serve again.
 * plain: the new connection is to have two entries, and the client's own
 * address and port. */
static __noinline int reopen(ctx_t *ctx, struct packet *p, struct opening *o,
			     bool plain)
{
	struct connection *c, *peer;
	__u32 word, peer_word;

	c = entry_find(&o->client_key);
	if (!c)
		return -ENOENT;
	word = state_read(c);
	if (!connection_is_closed(word))
		return -EALREADY;
	o->reply_key.daddr = o->source;
	o->reply_key.dport = o->source_port;
	peer = entry_find(&o->reply_key);
	if (!plain || !peer)
		return -ENOENT;
	peer_word = state_read(peer);
	if (!reopen_matches(c, word, peer, peer_word, o))
		return -ENOENT;
	if (!connection_succeed(c, word, peer, peer_word, 0))
		return -EAGAIN;
	reopen_reset_entry(p, peer, 0, p->seq + 1);
	reopen_reset_entry(p, c, p->seq_end, 0);
	opening_next_hop(ctx, p, o, c);
	o->entry = *c;
	return 0;
}

#endif
