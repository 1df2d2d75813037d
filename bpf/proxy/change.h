/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * change.h - changes the segments of connections with a header of the PROXY protocol.
 *
 * All segments except SYNs of clients have a separate program, so other connections pay
 * nothing for them (docs/adr/0096-proxy-protocol.md).
 */
#ifndef LOXILB_PROXY_CHANGE_H
#define LOXILB_PROXY_CHANGE_H

#include "proxy/number.h"
#include "proxy/option.h"
#include "proxy/segment.h"

/* Removes the data of a SYN (RFC 7413), which would reach the endpoint without header. The
 * client sends it again when the endpoint does not acknowledge it. Later fragments could bring
 * data nevertheless, so a SYN must be whole. */
static __always_inline enum verdict proxy_change_syn(ctx_t *ctx,
						     struct packet *p)
{
	if (!is_opening_syn(p) || p->fault)
		return VERDICT_CONTINUE;
	if (p->fragment)
		return drop(p, DROP_NOT_TRANSLATABLE);
	p->seq_end = p->seq + 1;
	return segment_cut(ctx, p) ? VERDICT_CONTINUE :
				     drop(p, DROP_NOT_LINEAR);
}

static __always_inline bool
proxy_change_syn_ack(ctx_t *ctx, const struct packet *p, __u32 length)
{
	return option_lower_mss(ctx, p, length) &&
	       option_erase(ctx, p, OPTION_MPTCP) &&
	       option_erase(ctx, p, OPTION_FAST_OPEN);
}

/* Changes a segment as proxy_decide() has decided. */
static __always_inline bool proxy_change_segment(ctx_t *ctx, struct packet *p,
						 const struct connection *c)
{
	const __u32 length = proxy_length(c);

	switch (p->chunk) {
	case PROXY_SHIFT:
		return segment_number(ctx, p, TCP_SEQ_AT, p->seq + length);
	case PROXY_ALONE:
		return segment_cut(ctx, p) && segment_insert(ctx, p);
	case PROXY_HEADER:
		return segment_insert(ctx, p);
	case PROXY_SYN_ACK:
		return proxy_change_syn_ack(ctx, p, length);
	case PROXY_ACK:
	case PROXY_ACK_FIRST:
		return segment_number(ctx, p, TCP_ACK_AT, p->ack) &&
		       option_shift_sack(ctx, p, length);
	default:
		return true;
	}
}

/* Changes a packet of a connection with a header, before it is translated. */
static __always_inline enum verdict proxy_change(ctx_t *ctx, struct packet *p,
						 const struct connection *c)
{
	if (p->later_fragment || p->icmp_error ||
	    p->tuple.protocol != IPPROTO_TCP)
		return VERDICT_CONTINUE;
	if (!ONLY_PROXY)
		return proxy_change_syn(ctx, p);
	if (p->chunk == PROXY_REFUSED)
		return drop(p, DROP_NOT_TRANSLATABLE);
	return proxy_change_segment(ctx, p, c) ? VERDICT_CONTINUE :
						 drop(p, DROP_NOT_LINEAR);
}

#endif
