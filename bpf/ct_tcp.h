/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ct_tcp.h - the TCP state of a connection (RFC 9293), as a set of events seen.
 *
 *   events                                state (as `loxicmd get ct` shows it)
 *   -                                     sync-sent
 *   REPLIED                               sync-ack
 *   REPLIED ASSURED                       est
 *   FIN of one side                       fini
 *   FIN of both sides                     closed-wait
 *   FIN of both, both acknowledged; RST   closed
 *
 * Events rather than a state variable: they are only ever added, so that the
 * two directions may note theirs on two CPUs at once without a lock, and
 * half-close and simultaneous close need no states of their own.
 *
 * Of a connection whose endpoint answers directly, only the client is heard: it
 * acknowledges what it has seen, so its first ACK stands for the endpoint's SYN
 * too, and its FIN ends the connection as far as anybody here will know.
 */
#ifndef LOXILB_CT_TCP_H
#define LOXILB_CT_TCP_H

#include "conntrack.h"
#include "established.h"
#include "mss.h"
#include "parse.h"

/* A RST is believed only where the receiver would believe it (RFC 5961
 * section 3.2): at the next byte that it waits for. That is between what it
 * acknowledged last and what was sent last. An answer to a SYN must
 * acknowledge just that SYN. */
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

/* Asked after tcp_note_sequence: c->seq_end is this segment's own unless that
 * lies back, or too far ahead to be believed. */
static __always_inline bool tcp_fin_plausible(const struct packet *p,
					      const struct connection *c,
					      const struct connection *peer)
{
	return p->seq - peer->ack < TCP_MAX_WINDOW ||
	       p->seq_end - c->seq_end < TCP_MAX_WINDOW;
}

/* The events that a segment brings about, besides a RST. */
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

/* As tcp_transition(), by the client's segments alone. Global: the verifier looks
 * at it once. */
__noinline enum verdict tcp_single_entry(struct packet *p, struct connection *c)
{
	const __u8 opens = TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN;
	struct connection_key key;
	__u8 events = 0;
	__u32 ahead;

	if (!p || !c)
		return VERDICT_DROP;
	ahead = p->seq - c->seq_end;
	if ((p->tcp_flags & opens) == TCP_SYN) {
		/* after its FIN, a client that dials again does so with a
		 * higher number (RFC 9293 section 3.6.1) */
		if ((c->flags & CONN_RESET) ||
		    ((c->flags & CONN_FIN_CLIENT) && (__s32)ahead >= 0)) {
			key = p->tuple; /* see connection_find() */
			connection_remove(&key, c);
			return VERDICT_MISS;
		}
		if (c->flags & CONN_REPLIED)
			return VERDICT_CONTINUE; /* the endpoint will challenge it */
		c->seq_end = p->seq_end;
	} else if (p->tcp_flags & TCP_RST) {
		/* which byte the endpoint waits for is not known, but which
		 * one the client would send next; its FIN may count or not */
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
	connection_add_flags_both(c, NULL, events);
	return VERDICT_CONTINUE;
}

/* A segment that may change the state: SYN, FIN or RST, or any while the
 * connection is being opened or closed. MISS: it opens a new connection in
 * place of this one, which is ended, or may serve again (reopen.h). */
static __noinline enum verdict tcp_transition(struct packet *p,
					      struct connection *c)
{
	const __u8 opens = TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN;
	struct connection *peer;
	__u8 events;

	if (unlikely(c->traits & CONN_SINGLE_ENTRY))
		return c->traits & CONN_RESTING ? VERDICT_MISS :
						  tcp_single_entry(p, c);
	if (connection_is_closed(c->flags) &&
	    (p->tcp_flags & opens) == TCP_SYN &&
	    !(c->flags & CONN_REPLY_DIRECTION)) {
		p->may_reopen = true;
		return VERDICT_MISS;
	}
	peer = connection_peer(c, IPPROTO_TCP);
	if (!peer) {
		connection_discard(&p->tuple, c, p->now);
		return VERDICT_MISS;
	}
	if (p->tcp_flags & TCP_RST) {
		if (!tcp_reset_plausible(p, c, peer))
			return VERDICT_CONTINUE;
		c->seen = p->now;
		connection_add_flags_both(c, peer, CONN_RESET);
		return VERDICT_CONTINUE;
	}
	if ((p->tcp_flags & opens) == TCP_SYN && (c->flags & CONN_REPLIED) &&
	    !(c->flags & CONN_REPLY_DIRECTION))
		return VERDICT_CONTINUE; /* the endpoint will challenge it */
	/* the endpoint's first number; or a client that dials again with
	 * another one */
	if (!(c->flags & CONN_REPLIED))
		c->seq_end = p->seq_end;
	c->seen = p->now;
	tcp_note_sequence(p, c);
	events = tcp_events(p, c, peer);
	if (events)
		connection_add_flags_both(c, peer, events);
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
