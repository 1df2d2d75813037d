/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * state.h - the state of SCTP associations (RFC 9260).
 *
 * Only the two sides know the verification tags of their packets. A packet with another
 * tag neither changes the state nor keeps the connection alive. It is forwarded
 * nevertheless: its receiver drops it, or answers it.
 *
 * A side announces the tag that it wants to see in INIT or INIT ACK. connection.ack has
 * the tag of each direction's packets. connection.seq_end has another one, of a handshake
 * whose COOKIE ECHO is still to come: the client has restarted, or the endpoint has
 * answered a repeated INIT with another tag. A COOKIE ECHO with an announced tag proves that its
 * client has seen the INIT ACK, so it decides which tag counts in its direction; in a restart, in
 * both. In the first handshake, the endpoint's COOKIE ACK decides the other one: of two INITs,
 * one may be forged, and changes nothing.
 *
 * The endpoint may announce more tags than are kept, in answers to forged INITs. So a COOKIE
 * ECHO with an unknown tag leaves it in seq_end (CONN_TAG_SHOWN), where it counts once COOKIE
 * ACK shows that the endpoint has accepted it. Its repetition proves nothing: it may be forged. If
 * several are unknown, none counts: the association continues with the endpoint's tag only.
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

/* Records a client's further INIT. Later, a tag of the endpoint is for that INIT only. */
static __always_inline void sctp_init(const struct packet *p,
				      struct connection *c, __u32 word,
				      struct connection *peer)
{
	if (p->seq == peer->ack || p->seq == peer->seq_end)
		return;
	peer->seq_end = p->seq;
	if (word & SCTP_ESTABLISHED)
		c->seq_end = 0;
}

/* Keeps another tag of the client's packets that an INIT ACK announces, and whether an earlier one
 * is lost by that. */
static __always_inline void sctp_announce_tag(struct connection *client,
					      __u32 tag)
{
	const __u32 word = state_read(client);
	const bool replaces = client->seq_end && client->seq_end != tag &&
			      !(word & STATE_TAG_SHOWN);

	state_change(client, word,
		     STATE_TAG_SHOWN |
			     (client->seq_end ? 0 : STATE_TAGS_UNKEPT),
		     replaces ? STATE_TAGS_UNKEPT : 0);
	client->seq_end = tag;
}

/* Records the tag that an endpoint's INIT ACK announces. Returns the events. */
static __always_inline __u8 sctp_init_ack(const struct packet *p,
					  const struct connection *c,
					  __u32 word, struct connection *peer)
{
	if (sctp_has_tag(p, c)) {
		if (!peer->ack)
			peer->ack = p->seq;
		else if (peer->ack != p->seq)
			sctp_announce_tag(peer, p->seq);
		return CONN_REPLIED;
	}
	/* in a restart, COOKIE ECHO may have shown another answer's tag already */
	if (p->ack && p->ack == c->seq_end &&
	    !(word & SCTP_ESTABLISHED && peer->seq_end))
		sctp_announce_tag(peer, p->seq);
	else if (peer->seq_end != p->seq)
		state_change(peer, state_read(peer), 0, STATE_TAGS_UNKEPT);
	return 0;
}

/* Makes the other tag of a direction the one that counts. */
static __always_inline void sctp_use_other_tag(struct connection *c)
{
	c->ack = c->seq_end;
	c->seq_end = 0;
}

/* Makes both tags of a restart count. The association may have been closing, or an ABORT of the
 * earlier one may have come after the INIT: it is open again. */
static __always_inline void sctp_restart(struct connection *client,
					 struct connection *reply)
{
	const __u32 ends = SCTP_FINS | SCTP_COMPLETE | CONN_RESET;

	sctp_use_other_tag(client);
	sctp_use_other_tag(reply);
	client_change(client, &reply->daddr, state_read(client), ends, 0);
	state_change(reply, state_read(reply), ends, 0);
}

/* Reports whether a packet has the other tag of its direction, which an INIT or INIT ACK has
 * announced. */
static __always_inline bool sctp_has_other_tag(const struct packet *p,
					       const struct connection *c)
{
	return p->ack && p->ack == c->seq_end &&
	       !(state_read(c) & STATE_TAG_SHOWN);
}

/* Decides by a packet which tag of its direction counts. Returns whether it has one of the
 * two. */
static __always_inline bool sctp_confirm_tag(const struct packet *p,
					     struct connection *c)
{
	if (!sctp_has_tag(p, c) && !sctp_has_other_tag(p, c))
		return false;
	c->ack = p->ack;
	c->seq_end = 0;
	return true;
}

/* Keeps the unknown tag of a COOKIE ECHO, unless it must be forged: all announced tags are kept. Of
 * several, COOKIE ACK does not show which one is the client's: none of them counts. */
static __always_inline void sctp_show_tag(const struct packet *p,
					  struct connection *c)
{
	const __u32 word = state_read(c);
	__u32 tag = p->ack;

	if (c->seq_end && !(word & (STATE_TAG_SHOWN | STATE_TAGS_UNKEPT)))
		return;
	if (word & STATE_TAG_SHOWN && c->seq_end && c->seq_end != tag)
		tag = c->ack;
	state_change(c, word, 0, STATE_TAG_SHOWN);
	c->seq_end = tag;
}

/* Records a COOKIE ECHO. Returns the events. */
static __always_inline __u8 sctp_cookie_echo(const struct packet *p,
					     struct connection *c, __u32 word,
					     struct connection *peer)
{
	const bool restarts = word & SCTP_ESTABLISHED && peer->seq_end;

	if (restarts && sctp_has_other_tag(p, c)) {
		sctp_restart(c, peer);
		return CONN_ASSURED;
	}
	if (sctp_confirm_tag(p, c))
		return CONN_ASSURED;
	if (p->ack && (restarts || !(word & CONN_ASSURED)))
		sctp_show_tag(p, c);
	return 0;
}

/* Records a COOKIE ACK. If the tag of COOKIE ECHO was unknown, the client's next packet
 * shows that the client exists. Returns the events. */
static __always_inline __u8 sctp_cookie_ack(const struct packet *p,
					    struct connection *c, __u32 word,
					    struct connection *peer)
{
	if (word & SCTP_ESTABLISHED) {
		if (!p->ack || sctp_has_tag(p, c) || !c->seq_end ||
		    !peer->seq_end ||
		    (p->ack != c->seq_end &&
		     !(state_read(peer) & STATE_TAG_SHOWN)))
			return 0;
		c->seq_end = p->ack; /* as below */
		sctp_restart(peer, c);
		return SCTP_ESTABLISHED;
	}
	if (word & CONN_ASSURED) {
		/* of more INITs than are kept, one was the client's */
		if (p->ack && c->seq_end)
			c->seq_end = p->ack;
		return sctp_confirm_tag(p, c) ? SCTP_ESTABLISHED : 0;
	}
	if (!p->ack || !(state_read(peer) & STATE_TAG_SHOWN))
		return 0;
	c->ack = p->ack;
	c->seq_end = 0;
	sctp_use_other_tag(peer);
	return SCTP_ESTABLISHED;
}

/* Reports whether a client's packet is an ABORT with the tag of an INIT that may be forged: the
 * endpoint has accepted no cookie yet. It has nothing to end. */
static __always_inline bool sctp_aborts_init(const struct packet *p, __u32 word)
{
	return p->chunk == SCTP_ABORT && p->reflected &&
	       !(word & SCTP_ESTABLISHED);
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
		return sctp_may_end(p, c, peer) ? CONN_RESET : 0;
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
		sctp_init(p, c, word, peer);
		return 0;
	}
	if (p->chunk == SCTP_COOKIE_ECHO)
		return word & CONN_REPLIED ?
			       sctp_cookie_echo(p, c, word, peer) :
			       0;
	if (!p->chunk)
		return word & SCTP_ESTABLISHED && sctp_has_tag(p, c) ?
			       CONN_ASSURED :
			       0;
	if (sctp_aborts_init(p, word))
		return 0;
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

static __noinline enum verdict
sctp_single_entry(struct packet *p, struct connection *c, __u32 word)
{
	struct ip_addr client = p->tuple.saddr;
	__u8 events = sctp_events_one_way(p, c, word);

	connection_is_assured_now(
		p, c, client_change(c, &client, word, 0, events), events);
	sctp_notify_closing(&p->tuple, c, NULL, word, events);
	c->seen = p->now; /* of a client that has restarted, too */
	if (unlikely(copying))
		sctp_copy_if_changed(c, word, NULL, events);
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
	tag = peer->ack;
	events = sctp_events(p, c, word, peer);
	if (sctp_is_sign_of_life(p, c, word))
		c->seen = p->now;
	if (word & CONN_REPLY_DIRECTION) {
		if (events & SCTP_ESTABLISHED &&
		    (!(word & CONN_ASSURED) || peer->ack != tag))
			sctp_record_tag(peer, c);
		peer_word = connection_record_both(peer, peer_word, c, word,
						   events);
		sctp_notify_closing(NULL, peer, c, peer_word, events);
	} else {
		if (events & CONN_ASSURED)
			sctp_record_tag(c, peer);
		peer_word = connection_record_both(c, word, peer, peer_word,
						   events);
		sctp_notify_closing(&p->tuple, c, peer, peer_word, events);
		if (connection_is_assured_now(p, c, peer_word, events))
			source_mark_known(p);
	}
	if (unlikely(copying))
		sctp_copy_if_changed(c, word, peer, events);
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
