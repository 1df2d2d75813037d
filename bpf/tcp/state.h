/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * state.h - the TCP state of a connection (RFC 9293), as a set of events.
 *
 *   events                                state (as `loxicmd get ct` shows it)
 *   -                                     sync-sent
 *   REPLIED                               sync-ack
 *   REPLIED ASSURED                       est
 *   FIN of one side                       fini
 *   FIN of both sides                     closed-wait
 *   FIN of both, both acknowledged; RST   closed
 *
 * Events are used instead of a state variable, because they are only added, with one
 * exception: the two directions may add events on two CPUs at once without a lock, and
 * half-close and simultaneous close need no separate states.
 *
 * Matching addresses and ports are not enough. A segment changes the state only if its
 * numbers show that its sender sees the packets; other segments are forwarded, and the
 * receiver judges them (docs/adr/0067-tcp-state.md).
 *
 * If the endpoint answers the client directly, only the client's segments are seen. The
 * client's acknowledgements replace the endpoint's numbers, and the client's FIN closes
 * the connection here.
 */
#ifndef LOXILB_TCP_STATE_H
#define LOXILB_TCP_STATE_H

#include "conntrack/conntrack.h"
#include "conntrack/end.h"
#include "limit/known.h"
#include "observe/copy.h"
#include "protocol/protocol.h"
#include "tcp/handshake.h"
#include "tcp/mss.h"
#include "tcp/redial.h"
#include "tcp/reset.h"
#include "tcp/sample.h"

/* Records a segment that the endpoint sends before the client has acknowledged one:
 * client->ack becomes the first number that the endpoint has sent. If the endpoint
 * begins again elsewhere, as with SYN cookies, the last beginning counts. */
static __always_inline void tcp_record_answer(const struct packet *p,
					      struct connection *reply,
					      struct connection *client)
{
	__u32 first = p->seq + !!(p->tcp_flags & TCP_SYN);

	if (!tcp_in_flight(first, reply, client)) {
		client->ack = first;
		reply->seq_end = p->seq_end;
	} else if (p->seq_end - reply->seq_end < TCP_MAX_AHEAD) {
		reply->seq_end = p->seq_end;
	}
	if ((p->tcp_flags & TCP_ACK) && tcp_in_flight(p->ack, client, reply))
		reply->ack = p->ack;
}

static __noinline void tcp_notify_restart(const struct connection *client,
					  const struct connection *reply)
{
	event_notify(NULL, client, reply,
		     EVENT(EVENT_OPENED, 0, IPPROTO_TCP, 0));
}

/* Restarts a connection after the endpoint has accepted another SYN of the client: its
 * state was unknown, or both sides have lost the connection although it seemed alive.
 */
static __noinline void tcp_restart(const struct packet *p,
				   struct connection *reply, __u32 word,
				   struct connection *client, __u32 client_word)
{
	if (word & CONN_REPLIED) {
		/* read once: the row may change hands */
		const struct ip_addr addr = reply->daddr;
		const __u32 id = reply->endpoint;
		struct connection_count *n = connection_counts_find(id);

		if (!n)
			return;
		connection_begins(n, id, &addr, IPPROTO_TCP);
		if (!connection_begin_next(client, client_word, &p->tuple,
					   reply, CONN_REPLIED)) {
			connection_ended(id, &addr, 0, IPPROTO_TCP);
			return;
		}
		connection_has_begun(n);
		if (unlikely(watching))
			tcp_notify_restart(client, reply);
	} else {
		client_word =
			client_change(client, &reply->daddr, client_word,
				      STATE_TCP | CONN_RESET, CONN_REPLIED);
		if (client_word & STATE_ENDED)
			return;
		state_change(reply, word, STATE_TCP | CONN_RESET, CONN_REPLIED);
	}
	client->seq_end = p->ack;
	client->ack = p->seq + 1;
	reply->seq_end = p->seq_end;
	reply->ack = p->ack;
}

/* Handles a SYN of the client: a copy of the first one, or another one, which the
 * endpoint answers with a challenge ACK or accepts. */
static __always_inline void
tcp_handle_client_syn(const struct packet *p, struct connection *c, __u32 word,
		      struct connection *reply, __u32 reply_word)
{
	bool alone = is_opening_syn(p);

	if (!alone || !(word & CONN_REPLIED))
		c->seen = p->now;
	if (alone && !(word & CONN_REPLIED) && !handshake_is_held_back(c))
		handshake_count(c->endpoint, HANDSHAKE(repeated));
	if (alone && p->seq_end != c->seq_end && p->seq + 1 != reply->ack)
		tcp_record_other_syn(p, c, word, reply, reply_word);
}

/* Handles a SYN of the endpoint. It answers the client if it acknowledges the client's
 * SYN, or crosses it (simultaneous open). A repetition is not a sign of life: the
 * client is silent. */
static __always_inline void tcp_handle_endpoint_syn(const struct packet *p,
						    struct connection *c,
						    __u32 word,
						    struct connection *client,
						    __u32 client_word)
{
	bool ack = p->tcp_flags & TCP_ACK;

	if (!(word & CONN_ASSURED) &&
	    (!ack || tcp_in_flight(p->ack, client, c))) {
		tcp_record_answer(p, c, client);
		client_word = connection_record(c, word, client, client_word,
						CONN_REPLIED);
		if (!(client_word & (CONN_REPLIED | STATE_ENDED)) &&
		    !handshake_is_outward(&p->tuple, c, true))
			handshake_answered(c, p->now);
		if (!(word & CONN_REPLIED))
			c->seen = p->now;
	} else if (ack && p->seq_end != c->seq_end &&
		   tcp_acknowledges_other_syn(p, word, client_word)) {
		c->seen = p->now;
		tcp_restart(p, c, word, client, client_word);
	}
}

/* Reports whether a FIN fits the other side's numbers. Used if it does not continue its
 * own direction, because a later segment has overtaken it, or some were not seen. No
 * data was sent beyond it. */
static __always_inline bool tcp_fin_fits(const struct packet *p,
					 const struct connection *c,
					 const struct connection *peer)
{
	return (__s32)(p->seq_end - c->seq_end) >= 0 &&
	       p->seq_end - peer->ack < TCP_MAX_AHEAD &&
	       peer->seq_end - p->ack < TCP_MAX_AHEAD;
}

/* Reports whether a segment completes the handshake: a client's segment does if it
 * acknowledges the endpoint's. Records the endpoint's number. */
static __always_inline bool tcp_handshake(const struct packet *p,
					  struct connection *c, bool reply,
					  struct connection *peer)
{
	if (reply) {
		tcp_record_answer(p, c, peer);
		return false;
	}
	if (!tcp_in_flight(p->ack, peer, c))
		return false;
	c->seq_end = p->seq_end;
	c->ack = p->ack;
	return true;
}

/* Reports to watchers that a connection is closing, if these events are its first FIN.
 * word: the replaced word of the client's entry. */
static __noinline void tcp_notify_closing(const struct connection_key *key,
					  const struct connection *client,
					  const struct connection *reply,
					  __u32 word, __u8 events)
{
	const __u8 fins = CONN_FIN_CLIENT | CONN_FIN_ENDPOINT;

	if (!(events & fins) || word & (fins | STATE_ENDED) ||
	    likely(!watching))
		return;
	event_notify(key, client, reply,
		     EVENT(EVENT_CLOSING, 0, IPPROTO_TCP, word | events));
}

/* Handles a segment with ACK but without SYN and RST. */
static __always_inline void tcp_segment(struct packet *p, struct connection *c,
					__u32 word, struct connection *peer,
					__u32 peer_word)
{
	bool reply = word & CONN_REPLY_DIRECTION, goes_on;
	__u8 events = 0;

	if (!(word & CONN_ASSURED)) {
		if (!(word & CONN_REPLIED))
			return;
		if (reply && peer_word & CONN_ASSURED)
			events =
				CONN_ASSURED; /* the entry was being moved when it was recorded */
		else if (tcp_handshake(p, c, reply, peer))
			events = CONN_ASSURED;
		else if (!reply)
			return;
	}
	goes_on = tcp_continues(p, c);
	if (word & STATE_SENT_RST && goes_on &&
	    (p->seq_end != c->seq_end || p->ack != c->ack))
		tcp_clear_reset(c, word, peer, peer_word);
	if ((p->tcp_flags & TCP_FIN) && (goes_on || tcp_fin_fits(p, c, peer))) {
		events |= reply ? CONN_FIN_ENDPOINT : CONN_FIN_CLIENT;
		c->seq_end = p->seq_end;
	}
	if (goes_on) {
		c->seq_end = p->seq_end;
		c->ack = p->ack;
	}
	if (word & (reply ? CONN_FIN_CLIENT : CONN_FIN_ENDPOINT) &&
	    p->ack == peer->seq_end)
		events |=
			reply ? CONN_FIN_CLIENT_ACKED : CONN_FIN_ENDPOINT_ACKED;
	if (!events)
		return;
	word = connection_record(c, word, peer, peer_word, events);
	tcp_notify_closing(NULL, reply ? peer : c, reply ? c : peer, word,
			   events);
	/* this ACK makes the connection assured, so its client exists */
	if (connection_count_assured(p, c, word, events)) {
		source_mark_known(p);
		if (!reply && !handshake_is_outward(&p->tuple, c, false))
			handshake_completed(p, c, word);
	}
}

/* Handles an ACK where only the client is seen. The first one shows that the endpoint
 * may have answered, the next one, if it continues from there, that it has. The
 * endpoint's numbers are unknown. */
static __always_inline void tcp_single_segment(const struct packet *p,
					       struct connection *c, __u32 word)
{
	__u32 sent = p->seq_end - c->seq_end, acked = p->ack - c->ack;
	bool fits = tcp_continues(p, c);
	__u8 events = CONN_ASSURED;

	if (!(word & CONN_REPLIED)) {
		fits = sent + TCP_MAX_AHEAD < 2 * TCP_MAX_AHEAD;
		events = CONN_REPLIED;
	} else if (p->tcp_flags &
		   TCP_FIN) { /* an ACK may have overtaken the FIN */
		fits |= sent < TCP_MAX_AHEAD &&
			acked + TCP_MAX_AHEAD < 2 * TCP_MAX_AHEAD;
	}
	if (!fits)
		return;
	if (word & CONN_RESET && (sent || acked))
		client_change(c, &c->saddr, word, CONN_RESET, 0);
	if ((__s32)sent > 0)
		c->seq_end = p->seq_end;
	if ((__s32)acked > 0 || events == CONN_REPLIED)
		c->ack = p->ack;
	if (p->tcp_flags & TCP_FIN)
		events |= CONN_FIN_CLIENT;
	if ((word & events) == events)
		return;
	word = client_change(c, &c->saddr, word, 0, events);
	connection_count_assured(p, c, word, events);
	tcp_notify_closing(&p->tuple, c, NULL, word, events);
}

/* Reports whether the endpoint of a connection is lost. Global (verifier: globals). */
__noinline bool tcp_endpoint_is_lost(const struct connection *c)
{
	const struct endpoint *ep;

	if (!c) /* verifier: null */
		return false;
	ep = endpoint_find(c->endpoint);
	return ep && endpoint_is_lost(ep);
}

/* Reports whether a SYN repeats the first one of an unanswered connection whose
 * endpoint no longer accepts connections. Then it opens a connection to another
 * endpoint: otherwise the client would repeat it for two minutes. */
static __always_inline bool
tcp_syn_moves(const struct packet *p, const struct connection *c, __u32 word)
{
	return is_opening_syn(p) &&
	       !(word & (CONN_REPLIED | CONN_REPLY_DIRECTION)) &&
	       tcp_endpoint_is_lost(c);
}

/* Updates the state like tcp_transition(), from the client's segments alone. Global
 * (verifier: globals). */
__noinline enum verdict tcp_single_entry(struct packet *p, struct connection *c)
{
	struct connection_key key;
	__u32 ahead, word;
	enum verdict v;

	if (!p || !c)
		return VERDICT_DROP;
	word = state_read(c);
	if (!connection_has_tuple(c, &p->tuple))
		return drop(p, DROP_CONNECTION_RACE);
	ahead = p->seq - c->seq_end;
	if (is_opening_syn(p)) {
		/* after its FIN, a client that connects again uses a higher
		 * sequence number (RFC 9293 section 3.6.1) */
		if ((word & CONN_RESET) ||
		    ((word & CONN_FIN_CLIENT) && (__s32)ahead >= 0) ||
		    tcp_syn_moves(p, c, word)) {
			key = p->tuple; /* verifier: memory */
			connection_end(&key, c, word, PORT_IS_FREE);
			return VERDICT_MISS;
		}
		if (word & CONN_REPLIED) {
			v = redial(p, c, NULL);
			if (v == VERDICT_MISS) {
				key = p->tuple;
				connection_end(&key, c, word, PORT_IS_FREE);
			}
			return v; /* CONTINUE: the endpoint answers it with a challenge ACK */
		}
		c->seq_end = p->seq_end;
	} else if (p->tcp_flags & TCP_RST) {
		/* The next byte that the endpoint expects is unknown, but not the
		 * next byte that the client sends. The client's FIN may count or not. */
		if (ahead && ahead != (__u32)-1)
			return VERDICT_CONTINUE;
		client_change(c, &c->saddr, word, 0, CONN_RESET);
	} else if ((p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_ACK) {
		tcp_single_segment(p, c, word);
	}
	c->seen = p->now;
	if (unlikely(copying))
		copy_if_changed(c, word, NULL, IPPROTO_TCP);
	/* AGAIN: another CPU was moving the entry (grow.h), and its row may belong to
	 * another connection by now */
	return states_are_of_pair(state_read(c), word) ? VERDICT_CONTINUE :
							 VERDICT_AGAIN;
}

/* Handles a segment that may change the state: SYN, FIN or RST, or any segment
 * while the connection opens or closes. Returns MISS if the segment opens a new
 * connection in place of this one: this one is removed, or may be reopened
 * (reopen.h). hash: of entry_find_hashed(). Global, as tcp_single_entry() is. */
__noinline enum verdict tcp_transition(struct packet *p, struct connection *c,
				       __u64 hash)
{
	struct connection *peer;
	__u32 word, peer_word;
	enum verdict v;

	if (!p || !c)
		return VERDICT_DROP;
	word = state_read(c);
	if (unlikely(word & STATE_TRAIT(CONN_SINGLE_ENTRY | CONN_ENDED)))
		return word & STATE_TRAIT(CONN_RESTING | CONN_ENDED) ?
			       VERDICT_MISS :
			       tcp_single_entry(p, c);
	if (connection_is_closed(word) && is_opening_syn(p) &&
	    !(word & CONN_REPLY_DIRECTION)) {
		p->may_reopen = true;
		return VERDICT_MISS;
	}
	if (tcp_syn_moves(p, c, word)) {
		connection_end(&p->tuple, c, word, port_fate(word));
		return VERDICT_MISS;
	}
	peer = connection_peer_hashed(c, IPPROTO_TCP, hash);
	if (!peer) {
		connection_end(&p->tuple, c, word, port_fate(word));
		return VERDICT_MISS;
	}
	peer_word = state_read(peer);
	if (!connection_is_pair(&p->tuple, word, peer, peer_word))
		return drop(p, DROP_CONNECTION_RACE);
	if (p->tcp_flags & TCP_RST) {
		tcp_reset(p, c, word, peer, peer_word);
	} else if (!(p->tcp_flags & TCP_SYN)) {
		c->seen = p->now;
		if (p->tcp_flags & TCP_ACK)
			tcp_segment(p, c, word, peer, peer_word);
	} else if (word & CONN_REPLY_DIRECTION) {
		tcp_handle_endpoint_syn(p, c, word, peer, peer_word);
	} else {
		if (is_opening_syn(p) && word & CONN_REPLIED) {
			v = redial(p, c, peer);
			if (v == VERDICT_MISS)
				connection_end(&p->tuple, c, word,
					       port_fate(word));
			if (v != VERDICT_CONTINUE)
				return v;
		}
		tcp_handle_client_syn(p, c, word, peer, peer_word);
	}
	if (unlikely(copying))
		copy_if_changed(c, word, peer, IPPROTO_TCP);
	return connection_check_recorded(p, c, peer);
}

static __always_inline enum verdict tcp_update(ctx_t *ctx, struct packet *p,
					       struct connection *c, __u64 hash)
{
	if (unlikely((p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST)) ||
		     !tcp_is_established(state_peek(c)))) {
		enum verdict v;

		/* read again, so that established packets do not extract the bit */
		if (!ONLY_PROXY &&
		    unlikely(state_read(c) & STATE_CHANGES_STREAM) &&
		    !is_opening_syn(p))
			return VERDICT_OTHER; /* another program's */
		if (is_opening_syn(p) && redial_may_ask(state_read(c)))
			p->plain_syn = syn_is_plain(ctx, p);
		v = tcp_transition(p, c, hash);
		if (v == VERDICT_CONTINUE && mss_applies(p))
			v = mss_clamp(ctx, p, c);
		return v;
	}
	c->seen = p->now;
	tcp_record_sequence(p, c);
	return VERDICT_CONTINUE;
}

#endif
