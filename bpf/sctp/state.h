/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * state.h - the state of SCTP associations (RFC 9260).
 *
 * Only the two sides know the verification tags of their packets. A packet with another
 * tag neither changes the state nor keeps the connection alive. It is forwarded
 * nevertheless: its receiver drops it, or answers it.
 *
 * Each side announces the tag of the packets that it wants to see: the client in INIT, the
 * endpoint in INIT ACK. A sender that sees no answer can forge any packet of the client. It cannot
 * make the endpoint accept a cookie, and learns no tag of the endpoint. So tags come from the
 * endpoint's packets. connection.ack has the tags that count, connection.seq_end of both entries
 * the tags of the two latest other INIT ACKs: to a repeated INIT, a client that restarts, or a
 * forged INIT. Such a tag counts once the client shows by COOKIE ECHO that it knows it. The
 * client's own tag is then unknown (0) until COOKIE ACK, which always decides it.
 *
 * If no COOKIE ECHO has shown the endpoint's tag by then, more INITs were forged or repeated
 * meanwhile than are kept, and it stays unknown. Such an association lives by its endpoint's
 * packets. Its client cannot end it, nor use a further path. More tags would cost memory in every
 * entry, or a map that a flood fills.
 *
 * Where answers are not seen, the first COOKIE ECHO shows the client's tag, and any packet keeps
 * the connection alive: a client that restarts there has an unknown tag, and closes in its
 * endpoint's sight only.
 */
#ifndef LOXILB_SCTP_STATE_H
#define LOXILB_SCTP_STATE_H

#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "limit/known.h"
#include "observe/copy.h"
#include "protocol/protocol.h"
#include "sctp/copy.h"
#include "sctp/paths.h"
#include "table/state.h"

/* sctp_has_tag() for ABORT and SHUTDOWN COMPLETE, which may have the other direction's
 * tag and flag T instead (section 8.5.1). peer: NULL if unknown. */
static __always_inline bool sctp_may_end(const struct packet *p,
					 const struct connection *c,
					 const struct connection *peer)
{
	if (!p->reflected)
		return sctp_has_tag(p, c);
	return peer && p->ack && p->ack == peer->ack;
}

/* Records a client's further INIT: either may be forged, so the endpoint's ABORT ends neither. */
static __always_inline void sctp_init(const struct packet *p, __u32 word,
				      struct connection *reply)
{
	if (!(word & CONN_REPLIED) && p->seq != reply->ack)
		reply->ack = 0;
}

/* Records the tags of INIT ACK: of the first one, both. Returns the events. */
static __always_inline __u8 sctp_init_ack(const struct packet *p,
					  struct connection *reply, __u32 word,
					  struct connection *client)
{
	if (!(word & CONN_REPLIED)) {
		reply->ack = p->ack;
		client->ack = p->seq;
	} else if (p->seq != client->ack && p->seq != client->seq_end) {
		reply->seq_end = client->seq_end;
		client->seq_end = p->seq;
	}
	return CONN_REPLIED;
}

/* Makes tags count. The association may have been closing, or an ABORT of the earlier one may have
 * come after the INIT: it is open again. tag, reply_tag: of the packets to the endpoint, and to the
 * client. */
static __always_inline void sctp_use_tags(struct connection *client, __u32 tag,
					  struct connection *reply,
					  __u32 reply_tag)
{
	client->ack = tag;
	reply->ack = reply_tag;
	client->seq_end = 0;
	reply->seq_end = 0;
	client_change(client, &reply->daddr, state_read(client), SCTP_ENDS, 0);
	state_change(reply, state_read(reply), SCTP_ENDS, 0);
}

/* Records a COOKIE ECHO: with a tag that is kept, its client has seen the INIT ACK. Returns the
 * events. */
static __always_inline __u8 sctp_cookie_echo(const struct packet *p,
					     struct connection *client,
					     struct connection *reply)
{
	if (sctp_has_tag(p, client))
		return CONN_ASSURED; /* also if a copy has decided the tags */
	if (!p->ack || (p->ack != client->seq_end && p->ack != reply->seq_end))
		return 0;
	sctp_use_tags(client, p->ack, reply, 0);
	return CONN_ASSURED;
}

/* Records a COOKIE ACK: the endpoint has accepted the cookie of the client with this tag. Returns
 * the events. */
static __always_inline __u8 sctp_cookie_ack(const struct packet *p,
					    struct connection *reply,
					    __u32 word,
					    struct connection *client)
{
	if (!p->ack)
		return 0;
	if (word & CONN_ASSURED && !reply->ack)
		reply->ack = p->ack; /* after COOKIE ECHO */
	else if (!(word & CONN_ASSURED) || p->ack != reply->ack)
		sctp_use_tags(client, 0, reply, p->ack);
	return CONN_REPLIED | CONN_ASSURED | SCTP_ESTABLISHED;
}

/* Reports whether ABORT may have something to end. Before the tags are known to be the client's, it
 * answers the only INIT. */
static __always_inline bool sctp_may_abort(__u32 word)
{
	return word & CONN_ASSURED || !(word & CONN_REPLIED);
}

/* Returns the events of chunks that both sides send. side: the sender's FIN flag. */
static __always_inline __u8 sctp_end(const struct packet *p,
				     const struct connection *c,
				     const struct connection *peer, __u32 word,
				     __u8 side)
{
	switch (p->chunk) {
	case SCTP_SHUTDOWN:
	case SCTP_SHUTDOWN_ACK:
		return word & CONN_ASSURED && sctp_has_tag(p, c) ? side : 0;
	case SCTP_SHUTDOWN_COMPLETE:
		return word & SCTP_FINS && sctp_may_end(p, c, peer) ?
			       SCTP_ESTABLISHED | SCTP_COMPLETE :
			       0;
	case SCTP_ABORT:
		return sctp_may_abort(word) && sctp_may_end(p, c, peer) ?
			       CONN_RESET :
			       0;
	default:
		return 0;
	}
}

/* Returns the events that a packet adds to the state, and records the tags in it. */
static __always_inline __u8 sctp_events(const struct packet *p,
					struct connection *c, __u32 word,
					struct connection *peer)
{
	if (word & CONN_REPLY_DIRECTION) {
		if (p->chunk == SCTP_INIT_ACK)
			return sctp_init_ack(p, c, word, peer);
		if (p->chunk == SCTP_COOKIE_ACK)
			return sctp_cookie_ack(p, c, word, peer);
		return sctp_end(p, c, peer, word, CONN_FIN_ENDPOINT);
	}
	if (p->chunk == SCTP_INIT) {
		sctp_init(p, word, peer);
		return 0;
	}
	if (p->chunk == SCTP_COOKIE_ECHO)
		return sctp_cookie_echo(p, c, peer);
	return sctp_end(p, c, peer, word, CONN_FIN_CLIENT);
}

/* Records a chunk of a connection whose endpoint answers the client directly. */
static __always_inline __u8 sctp_events_one_way(const struct packet *p,
						struct connection *c,
						__u32 word)
{
	if (p->chunk != SCTP_COOKIE_ECHO)
		return sctp_end(p, c, NULL, word, CONN_FIN_CLIENT);
	if (!c->ack)
		c->ack = p->ack;
	return sctp_has_tag(p, c) ?
		       CONN_REPLIED | CONN_ASSURED | SCTP_ESTABLISHED :
		       0;
}

/* Reports to watchers that an association is closing, if these events are the first
 * SHUTDOWN. word: the replaced word of the client's entry. */
static __always_inline void
sctp_notify_closing(const struct connection_key *key,
		    const struct connection *client,
		    const struct connection *reply, __u32 word, __u8 events)
{
	if (likely(!watching) || !(events & SCTP_FINS) ||
	    word & (SCTP_FINS | STATE_ENDED))
		return;
	event_notify(key, client, reply,
		     EVENT(EVENT_CLOSING, 0, IPPROTO_SCTP, word | events));
}

/* Reports whether a packet keeps its connection alive: only its sender knows the tag. Of
 * a handshake, any packet does. */
static __always_inline bool sctp_is_sign_of_life(const struct packet *p,
						 const struct connection *c,
						 __u32 word)
{
	return sctp_has_tag(p, c) || !(word & CONN_ASSURED);
}

/* Reports whether an unanswered INIT opens an association with another endpoint, since
 * its own no longer accepts any. */
static __always_inline bool
sctp_init_moves(const struct packet *p, const struct connection *c, __u32 word)
{
	const struct endpoint *ep;

	if (p->chunk != SCTP_INIT ||
	    word & (CONN_REPLIED | CONN_REPLY_DIRECTION))
		return false;
	ep = endpoint_find(c->endpoint);
	return ep && endpoint_is_lost(ep);
}

/* connection_count_assured() for a packet of the endpoint. */
static __always_inline void
sctp_assured_by_endpoint(const struct connection *client,
			 const struct connection *reply, __u32 word,
			 __u8 events)
{
	if (!(events & CONN_ASSURED) || word & (CONN_ASSURED | STATE_ENDED))
		return;
	half_open_count_of(client->endpoint, IPPROTO_SCTP, -1);
	if (unlikely(watching))
		event_notify(NULL, client, reply,
			     EVENT(EVENT_ASSURED, 0, IPPROTO_SCTP, 0));
}

static __noinline enum verdict
sctp_single_entry(struct packet *p, struct connection *c, __u32 word)
{
	struct ip_addr client = p->tuple.saddr;
	__u8 events = sctp_events_one_way(p, c, word);

	connection_count_assured(
		p, c, client_change(c, &client, word, 0, events), events);
	sctp_notify_closing(&p->tuple, c, NULL, word, events);
	c->seen = p->now; /* of a client that has restarted, too */
	if (unlikely(copying))
		sctp_copy_if_changed(c, word, NULL, events & ~word);
	return VERDICT_CONTINUE;
}

/* Handles a packet that may change the state: by its chunk, or since the client is not
 * known to exist; or that has a wrong tag. Returns MISS if the association is closed and the
 * packet opens another one, or has the tag of another one. Global (verifier: globals). */
__noinline enum verdict sctp_transition(struct packet *p, struct connection *c,
					__u64 hash)
{
	struct connection *peer;
	__u32 word, peer_word, tag;
	__u8 events;
	bool decided;

	if (!p || !c) /* verifier: null */
		return VERDICT_DROP;
	word = state_read(c);
	if (word & STATE_TRAIT(CONN_RESTING | CONN_ENDED) ||
	    (connection_is_closed(word) && p->chunk == SCTP_INIT))
		return VERDICT_MISS;
	if (!sctp_has_tag(p, c) && sctp_is_of_another(p, c, word))
		return VERDICT_MISS;
	if (unlikely(sctp_init_moves(p, c, word))) {
		connection_end(&p->tuple, c, word, port_fate(word));
		return VERDICT_MISS;
	}
	if (word & STATE_TRAIT(CONN_ONE_WAY))
		return sctp_single_entry(p, c, word);
	peer = connection_peer_hashed(c, IPPROTO_SCTP, hash);
	if (!peer)
		return VERDICT_CONTINUE;
	peer_word = state_read(peer);
	if (!connection_is_pair(&p->tuple, word, peer, peer_word))
		return drop(p, DROP_CONNECTION_RACE);
	tag = c->ack;
	events = sctp_events(p, c, word, peer);
	decided = events & CONN_ASSURED &&
		  (!(word & CONN_ASSURED) || c->ack != tag);
	if (sctp_is_sign_of_life(p, c, word))
		c->seen = p->now;
	if (word & CONN_REPLY_DIRECTION) {
		if (decided)
			sctp_record_tag(peer, c);
		peer_word = connection_record_both(peer, peer_word, c, word,
						   events);
		sctp_assured_by_endpoint(peer, c, peer_word, events);
		sctp_notify_closing(NULL, peer, c, peer_word, events);
	} else {
		if (decided)
			sctp_record_tag(c, peer);
		peer_word = connection_record_both(c, word, peer, peer_word,
						   events);
		sctp_notify_closing(&p->tuple, c, peer, peer_word, events);
		if (connection_count_assured(p, c, peer_word, events))
			source_mark_known(p);
	}
	if (unlikely(copying))
		sctp_copy_if_changed(c, word, peer,
				     decided ? events : events & ~word);
	return connection_check_recorded(p, c, peer);
}

static __always_inline enum verdict
sctp_update(struct packet *p, struct connection *c, __u64 hash)
{
	const __u32 settled =
		STATE_TRAIT(CONN_RESTING | CONN_ENDED) | CONN_ASSURED;
	const __u32 word = state_read(c);

	if (unlikely(p->chunk || (word & settled) != CONN_ASSURED ||
		     !sctp_has_tag(p, c)))
		return sctp_transition(p, c, hash);
	c->seen = p->now;
	return VERDICT_CONTINUE;
}

#endif
