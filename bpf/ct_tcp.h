/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ct_tcp.h - the TCP state of a connection (RFC 9293), as a set of events.
 *
 *   events                                state (as `loxicmd get ct` shows it)
 *   -                                     sync-sent
 *   REPLIED                               sync-ack
 *   REPLIED ASSURED                       est
 *   FIN of one side                       fini
 *   FIN of both sides                     closed-wait
 *   FIN of both, both acknowledged; RST   closed
 *
 * Events are used instead of a state variable, because they are only ever
 * added: the two directions may add theirs on two CPUs at once without a lock,
 * and half-close and simultaneous close need no states of their own.
 *
 * If the endpoint answers the client directly, only the client's segments are
 * seen. The client acknowledges what it has received, so its first ACK stands
 * for the endpoint's SYN as well, and its FIN closes the connection here.
 */
#ifndef LOXILB_CT_TCP_H
#define LOXILB_CT_TCP_H

#include "conntrack.h"
#include "established.h"
#include "known.h"
#include "mss.h"
#include "parse.h"

/* Would the receiver accept this RST (RFC 5961 section 3.2)? It must be at the
 * next byte that the receiver waits for. That is between what the receiver
 * acknowledged last and what was sent last. A RST that answers a SYN must
 * acknowledge that SYN. */
static __always_inline bool tcp_reset_plausible(const struct packet *p,
						const struct connection *c,
						const struct connection *peer)
{
	if ((c->flags & CONN_REPLY_DIRECTION) && !(c->flags & CONN_REPLIED))
		return (p->tcp_flags & TCP_ACK) && p->ack == peer->seq_end;
	if (!(c->flags & CONN_REPLIED))
		return p->seq == c->seq_end || p->seq + 1 == c->seq_end;
	return p->seq - peer->ack <= c->seq_end - peer->ack;
}

/* Is the FIN within the window? Called after tcp_note_sequence(): c->seq_end is
 * then the end of this segment, unless the segment is old or too far ahead. */
static __always_inline bool tcp_fin_plausible(const struct packet *p,
					      const struct connection *c,
					      const struct connection *peer)
{
	return p->seq - peer->ack < TCP_MAX_WINDOW ||
	       p->seq_end - c->seq_end < TCP_MAX_WINDOW;
}

/* Returns the events that a segment causes, except for RST. */
static __always_inline __u8 tcp_events(const struct packet *p,
				       const struct connection *c,
				       const struct connection *peer)
{
	bool reply = c->flags & CONN_REPLY_DIRECTION;
	__u8 events = 0, peer_fin, peer_fin_acked;

	if (reply && (p->tcp_flags & TCP_SYN))
		return CONN_REPLIED;
	if (p->tcp_flags & TCP_SYN)
		return 0;
	if (!reply && (p->tcp_flags & TCP_ACK) && (c->flags & CONN_REPLIED))
		events |= CONN_ASSURED;
	if ((p->tcp_flags & TCP_FIN) && (c->flags & CONN_REPLIED) &&
	    tcp_fin_plausible(p, c, peer))
		events |= reply ? CONN_FIN_ENDPOINT : CONN_FIN_CLIENT;
	peer_fin = reply ? CONN_FIN_CLIENT : CONN_FIN_ENDPOINT;
	peer_fin_acked =
		reply ? CONN_FIN_CLIENT_ACKED : CONN_FIN_ENDPOINT_ACKED;
	if ((c->flags & peer_fin) && (p->tcp_flags & TCP_ACK) &&
	    p->ack == peer->seq_end)
		events |= peer_fin_acked;
	return events;
}

/* Notes events that a segment of direction c causes. */
static __always_inline void tcp_note(struct connection *c, __u32 word,
				     struct connection *peer, __u32 peer_word,
				     __u8 events)
{
	if (word & CONN_REPLY_DIRECTION)
		connection_note_both(peer, peer_word, c, word, events);
	else
		connection_note_both(c, word, peer, peer_word, events);
}

/* Does what tcp_transition() does, from the client's segments alone. Global:
 * the verifier checks it once. */
__noinline enum verdict tcp_single_entry(struct packet *p, struct connection *c)
{
	const __u8 opens = TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN;
	struct connection_key key;
	__u8 events = 0;
	__u32 ahead, word;

	if (!p || !c)
		return VERDICT_DROP;
	word = state_read(c);
	if (!connection_is_of(c, &p->tuple))
		return drop(p, DROP_CONNECTION_RACE);
	ahead = p->seq - c->seq_end;
	if ((p->tcp_flags & opens) == TCP_SYN) {
		/* after its FIN, a client that connects again uses a higher
		 * sequence number (RFC 9293 section 3.6.1) */
		if ((c->flags & CONN_RESET) ||
		    ((c->flags & CONN_FIN_CLIENT) && (__s32)ahead >= 0)) {
			key = p->tuple; /* see connection_find() */
			connection_end(&key, c, word, PORT_IS_FREE);
			return VERDICT_MISS;
		}
		if (c->flags & CONN_REPLIED)
			return VERDICT_CONTINUE; /* the endpoint answers it with a challenge ACK */
		c->seq_end = p->seq_end;
	} else if (p->tcp_flags & TCP_RST) {
		/* The byte that the endpoint waits for is not known, but the
		 * one that the client sends next is. The client's FIN may count
		 * or not. */
		if (ahead && ahead != (__u32)-1)
			return VERDICT_CONTINUE;
		events = CONN_RESET;
	} else if (ahead + TCP_MAX_WINDOW < 2 * TCP_MAX_WINDOW) {
		if (p->tcp_flags & TCP_ACK)
			events = CONN_REPLIED | CONN_ASSURED;
		if (p->tcp_flags & TCP_FIN)
			events |= CONN_FIN_CLIENT;
	}
	c->seen = p->now;
	tcp_note_sequence(p, c);
	if ((word & events) != events)
		connection_note(c, word, events);
	return VERDICT_CONTINUE;
}

/* Handles a segment that may change the state: SYN, FIN or RST, or any segment
 * while the connection opens or closes. Returns MISS if the segment opens a new
 * connection in place of this one: this one is removed, or may be reopened
 * (reopen.h). */
static __noinline enum verdict tcp_transition(struct packet *p,
					      struct connection *c)
{
	const __u8 opens = TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN;
	__u32 word = state_read(c), peer_word;
	struct connection *peer;
	__u8 events;

	if (unlikely(word & STATE_TRAIT(CONN_SINGLE_ENTRY | CONN_ENDED)))
		return word & STATE_TRAIT(CONN_RESTING | CONN_ENDED) ?
			       VERDICT_MISS :
			       tcp_single_entry(p, c);
	if (connection_is_closed(c->flags) &&
	    (p->tcp_flags & opens) == TCP_SYN &&
	    !(c->flags & CONN_REPLY_DIRECTION)) {
		p->may_reopen = true;
		return VERDICT_MISS;
	}
	peer = connection_peer(c, IPPROTO_TCP);
	if (!peer) {
		connection_discard(&p->tuple, c, word);
		return VERDICT_MISS;
	}
	peer_word = state_read(peer);
	if (!connection_is_pair(&p->tuple, word, peer, peer_word))
		return drop(p, DROP_CONNECTION_RACE);
	if (p->tcp_flags & TCP_RST) {
		if (!tcp_reset_plausible(p, c, peer))
			return VERDICT_CONTINUE;
		c->seen = p->now;
		tcp_note(c, word, peer, peer_word, CONN_RESET);
		return VERDICT_CONTINUE;
	}
	if ((p->tcp_flags & opens) == TCP_SYN && (c->flags & CONN_REPLIED) &&
	    !(c->flags & CONN_REPLY_DIRECTION))
		return VERDICT_CONTINUE; /* the endpoint answers it with a challenge ACK */
	/* the endpoint's first sequence number; or a client that connects again
	 * with another one */
	if (!(c->flags & CONN_REPLIED))
		c->seq_end = p->seq_end;
	c->seen = p->now;
	tcp_note_sequence(p, c);
	events = tcp_events(p, c, peer);
	if (events & ~c->flags & CONN_ASSURED)
		source_note_known(p);
	if (events)
		tcp_note(c, word, peer, peer_word, events);
	return VERDICT_CONTINUE;
}

static __always_inline enum verdict tcp_update(ctx_t *ctx, struct packet *p,
					       struct connection *c)
{
	if (unlikely((p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) ||
		     !tcp_is_established(c->flags))) {
		enum verdict v = tcp_transition(p, c);

		if (v == VERDICT_CONTINUE && mss_applies(p))
			v = mss_clamp(ctx, p, c);
		return v;
	}
	c->seen = p->now;
	tcp_note_sequence(p, c);
	return VERDICT_CONTINUE;
}

#endif
