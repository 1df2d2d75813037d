/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * number.h - decides how a segment changes where a header of the PROXY protocol precedes
 * the client's data.
 *
 * For the endpoint, the client's data begins after the header:
 *
 *	client     SYN  | data                  numbers of the connection table
 *	endpoint   SYN  | header | data         as sent to the endpoint
 *
 * So numbers of the client grow by the header's length on their way, from its first byte
 * on, and acknowledgements of the endpoint shrink. A segment that begins at the first byte
 * gets the header, until the endpoint has acknowledged it: also an ACK without data, as
 * some servers speak first, and each repetition. Until then, the entry of replies holds
 * the number of the first byte as its last acknowledgement.
 */
#ifndef LOXILB_PROXY_NUMBER_H
#define LOXILB_PROXY_NUMBER_H

#include "conntrack/conntrack.h"
#include "observe/copy.h"
#include "protocol/tcp.h"
#include "proxy/header.h"

/* How a segment changes, in packet.chunk. */
enum proxy_change {
	PROXY_UNCHANGED,
	PROXY_SHIFT, /* from the client: its number grows */
	PROXY_HEADER, /* it gets the header in front of its data */
	PROXY_ALONE, /* it becomes the header; the client repeats its data */
	PROXY_REFUSED, /* it must get the header, and cannot */
	PROXY_SYN_ACK, /* from the endpoint: options change */
	PROXY_ACK, /* its acknowledgements shrink */
	PROXY_ACK_FIRST, /* also sets the acknowledgement, which may cover the header */
	/* of FTP, which has no header (helper/ftp.h): */
	FTP_SYN_ACK,
	FTP_LINE, /* it begins a line */
	FTP_AGAIN, /* it repeats data, which may be a line that was announced */
	FTP_FURTHER, /* ... and new data follows */
};

/* More data than this is not moved to make room for the header. */
#define PROXY_DATA_MAX 9216

/* Returns the change of a client's segment that begins at its first byte, while the
 * endpoint has not acknowledged the header. A RST must have exactly the number that the
 * endpoint expects, which loxilb does not know: the number after the header, unless the
 * header is lost. Otherwise, the endpoint answers by an ACK, and the client by another
 * RST. If the header is lost, a large segment is sent again as several small ones. */
static __always_inline __u8 proxy_change_first(ctx_t *ctx,
					       const struct packet *p,
					       const struct connection *c,
					       __u32 word)
{
	const __u32 rst = CONN_ASSURED | STATE_SENT_RST;
	bool repeated;

	if (p->tcp_flags & TCP_RST)
		return (word & rst) == CONN_ASSURED ? PROXY_SHIFT :
						      PROXY_UNCHANGED;
	if (!(p->tcp_flags & TCP_ACK))
		return p->seq_end == p->seq ? PROXY_UNCHANGED : PROXY_REFUSED;
	if (p->fragment)
		return PROXY_REFUSED;
	if (!ctx->gso_size && tcp_payload(p) <= PROXY_DATA_MAX)
		return PROXY_HEADER;
	/* If its numbers are not recorded, its repetition would look like the first one. */
	repeated = !(word & CONN_ASSURED) || c->seq_end != p->seq ||
		   !tcp_continues(p, c);
	return repeated ? PROXY_ALONE : PROXY_SHIFT;
}

/* Returns the change of a client's segment that begins before its first byte: a
 * keep-alive or window probe passes. Forged data could replace the header, and urgent
 * data would remove a byte of it. */
static __always_inline __u8 proxy_change_earlier(const struct packet *p,
						 __s32 ahead)
{
	const __s32 end = ahead + (__s32)(p->seq_end - p->seq);

	return p->fragment || end > 0 || p->tcp_flags & TCP_URG ?
		       PROXY_REFUSED :
		       PROXY_UNCHANGED;
}

static __always_inline void proxy_decide_client(ctx_t *ctx, struct packet *p,
						struct connection *c,
						__u32 word)
{
	const struct connection *reply;
	__s32 ahead;

	if (p->tcp_flags & TCP_SYN) {
		p->chunk = tcp_payload(p) || p->fragment ? PROXY_REFUSED :
							   PROXY_UNCHANGED;
		return;
	}
	p->chunk = PROXY_SHIFT;
	if (word & STATE_PROXY_ACKED)
		return;
	reply = connection_peer(c, IPPROTO_TCP);
	if (!reply)
		return; /* tcp_update() finds that, too */
	ahead = p->seq - reply->ack;
	/* Read again: another CPU may have recorded the state, and then the number, meanwhile. */
	if (state_read_after(c) & STATE_PROXY_ACKED)
		return;
	if (!ahead)
		p->chunk = proxy_change_first(ctx, p, c, word);
	else if (ahead < 0)
		p->chunk = proxy_change_earlier(p, ahead);
}

/* Records the endpoint's acknowledgement in both entries. */
static __always_inline void proxy_record(struct connection *c, __u32 word,
					 __u32 states)
{
	struct connection *client = connection_peer(c, IPPROTO_TCP);
	__u32 client_word;

	if (!client)
		return;
	client_word = state_read(client);
	if (!states_are_of_pair(word, client_word))
		return;
	state_add_both(client, client_word, c, word, states);
	if (unlikely(copying) && !(word & STATE_PROXY_ACKED))
		copy_send(client, c, IPPROTO_TCP);
}

/* Sets p->ack to the endpoint's acknowledgement in the client's own numbers. */
static __always_inline void proxy_decide_reply(struct packet *p,
					       struct connection *c, __u32 word)
{
	const __u32 length = proxy_length(c), first = c->ack,
		    ahead = p->ack - first;

	if (!(p->tcp_flags & TCP_ACK))
		return;
	if (p->tcp_flags & TCP_SYN) {
		p->chunk = PROXY_SYN_ACK;
		return;
	}
	p->chunk = PROXY_ACK;
	if (word & STATE_PROXY_PAST) {
		p->ack -= length;
		return;
	}
	if (!p->fragment) {
		p->chunk = PROXY_ACK_FIRST;
		p->fragment_id = first;
	}
	if (ahead < length) {
		p->ack = first;
		return;
	}
	p->ack -= length;
	if (ahead - length >= TCP_MAX_AHEAD || !(word & CONN_REPLIED) ||
	    p->tcp_flags & TCP_RST)
		return; /* a RST can have any number that it answers */
	if (ahead > length)
		proxy_record(c, word, STATE_PROXY_ACKED | STATE_PROXY_PAST);
	else if (!(word & STATE_PROXY_ACKED))
		proxy_record(c, word, STATE_PROXY_ACKED);
}

/* Decides how a segment changes, before it updates the state: from here on, p has numbers
 * of the client. Global (verifier: globals). */
__noinline __maybe_unused int proxy_decide(ctx_t *ctx, struct packet *p,
					   struct connection *c)
{
	__u32 word;

	if (!p || !c) /* verifier: null */
		return 0;
	word = state_read(c);
	if (p->chunk || !(word & STATE_CHANGES_STREAM))
		return 0;
	if (word & CONN_REPLY_DIRECTION)
		proxy_decide_reply(p, c, word);
	else
		proxy_decide_client(ctx, p, c, word);
	return 0;
}

#endif
