/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * reset.h - which RSTs are believed, and what takes them back.
 *
 * A RST counts if its receiver would accept it. If its sender continues, it was forged.
 */
#ifndef LOXILB_TCP_RESET_H
#define LOXILB_TCP_RESET_H

#include <linux/bpf.h>
#include <stdbool.h>
#include "conntrack/conntrack.h"
#include "protocol/tcp.h"
#include "tcp/handshake.h"

/* Reports whether the number is between the receiver's acknowledgement and the end of
 * the sent data. */
static __always_inline bool tcp_in_flight(__u32 number,
					  const struct connection *sender,
					  const struct connection *receiver)
{
	__u32 flight = sender->seq_end - receiver->ack;

	return flight < TCP_MAX_AHEAD && number - receiver->ack <= flight;
}

/* A later SYN with another number is remembered until the endpoint acknowledges it,
 * as 6 bits of the expected acknowledgement: half of them in each entry, 0 for none. */
#define TCP_TAG_BITS 3
#define TCP_TAG_HALF ((1U << TCP_TAG_BITS) - 1)
#define TCP_TAG_MAX ((1U << 2 * TCP_TAG_BITS) - 1)

static __always_inline __u32 tcp_syn_tag(__u32 ack)
{
	return (ack & TCP_TAG_MAX) ?: TCP_TAG_MAX;
}

static __always_inline void
tcp_record_other_syn(const struct packet *p, struct connection *client,
		     __u32 word, struct connection *reply, __u32 reply_word)
{
	__u32 tag = tcp_syn_tag(p->seq + 1);

	state_change(client, word, STATE_OTHER_SYN,
		     (tag & TCP_TAG_HALF) << STATE_OTHER_SYN_SHIFT);
	state_change(reply, reply_word, STATE_OTHER_SYN,
		     tag >> TCP_TAG_BITS << STATE_OTHER_SYN_SHIFT);
}

static __always_inline bool tcp_acknowledges_other_syn(const struct packet *p,
						       __u32 reply_word,
						       __u32 client_word)
{
	__u32 low = client_word >> STATE_OTHER_SYN_SHIFT & TCP_TAG_HALF,
	      high = reply_word >> STATE_OTHER_SYN_SHIFT & TCP_TAG_HALF;

	return (low | high << TCP_TAG_BITS) == tcp_syn_tag(p->ack);
}

/* Reports whether the receiver would accept this RST (RFC 5961 section 3.2). Its
 * number must be the next byte that the receiver expects, which is between its last
 * acknowledgement and the last byte sent. A RST that answers a SYN must acknowledge
 * that SYN. */
static __always_inline bool
tcp_reset_plausible(const struct packet *p, const struct connection *c,
		    __u32 word, const struct connection *peer, __u32 peer_word)
{
	if (word & CONN_REPLIED)
		return tcp_in_flight(p->seq, c, peer) || p->seq == c->seq_end ||
		       p->seq == peer->ack;
	if (word & CONN_REPLY_DIRECTION)
		return (p->tcp_flags & TCP_ACK) &&
		       (p->ack == peer->seq_end ||
			tcp_acknowledges_other_syn(p, word, peer_word));
	return p->seq == c->seq_end || p->seq + 1 == c->seq_end;
}

/* Reports whether either side has begun to close the connection, given the client's
 * word. */
#define TCP_IS_ENDING \
	(CONN_RESET | CONN_FIN_CLIENT | CONN_FIN_ENDPOINT | STATE_ENDED)

static __always_inline void tcp_reset(const struct packet *p,
				      struct connection *c, __u32 word,
				      struct connection *peer, __u32 peer_word)
{
	if (!tcp_reset_plausible(p, c, word, peer, peer_word))
		return;
	c->seen = p->now;
	if (!(word & STATE_SENT_RST))
		state_change(c, word, 0, STATE_SENT_RST);
	peer_word = connection_record(c, word, peer, peer_word, CONN_RESET);
	if (word & CONN_REPLY_DIRECTION && !(peer_word & TCP_IS_ENDING))
		handshake_reset(p, c, word);
}

/* Clears a RST: its sender continues, so the RST was forged, and the receiver has not
 * believed it. If the other side has sent one too, that one stands. If another CPU
 * changes the peer's state, or has ended the connection, it is left to the next
 * segment. */
static __noinline void tcp_clear_reset(struct connection *c, __u32 word,
				       struct connection *peer, __u32 peer_word)
{
	bool reply = word & CONN_REPLY_DIRECTION;
	__u32 clear = STATE_SENT_RST;

	if (!(peer_word & STATE_SENT_RST)) {
		if (peer_word & STATE_TRAIT(CONN_RESTING | CONN_ENDED) ||
		    __sync_val_compare_and_swap(
			    (__u32 *)&peer->flags, peer_word,
			    peer_word & ~(__u32)CONN_RESET) != peer_word)
			return;
		if (reply)
			active_recount(c->endpoint, &c->daddr, peer_word,
				       peer_word & ~(__u32)CONN_RESET);
		clear |= CONN_RESET;
	}
	if (reply)
		state_change(c, word, clear, 0);
	else
		client_change(c, &peer->daddr, word, clear, 0);
}

#endif
