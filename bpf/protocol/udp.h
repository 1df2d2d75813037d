/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * udp.h - UDP (RFC 768): header, checksum, lifetime. Its states are those of a flow, and
 * refused packets are answered by ICMP.
 */
#ifndef LOXILB_UDP_H
#define LOXILB_UDP_H

#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include "packet/ctx.h"
#include "packet/packet.h"
#include "packet/ports.h"
#include "protocol/flow.h"

#define UDP_SUM_OFFSET __builtin_offsetof(struct udphdr, check)

static __always_inline struct protocol udp_facts(void)
{
	return (struct protocol){
		.has_ports = true,
		.is_in_xdp = true,
		.sum_is_optional = true,
		.sum_has_addresses = true,
		.sum_offset = UDP_SUM_OFFSET,
		.header = sizeof(struct udphdr),
		.find = FIND_FLOW_STATES,
		.lifetime = LIFETIME_UDP,
	};
}

static __always_inline enum verdict udp_parse(ctx_t *ctx, struct packet *p,
					      __u32 l4_length)
{
	struct udphdr *udp = ctx_header(ctx, p->l4, sizeof(*udp));
	__u32 length;

	if (!udp)
		return packet_is_short(p);
	p->tuple.sport = udp->source;
	p->tuple.dport = udp->dest;
	length = bpf_ntohs(udp->len);
	/* a fragment is shorter than its length field */
	if (unlikely(p->fault)) {
		if (l4_length < sizeof(*udp))
			p->fault = DROP_MALFORMED;
		return VERDICT_CONTINUE;
	}
	if (unlikely(length < sizeof(*udp) || length > l4_length))
		p->fault = DROP_MALFORMED;
	else if (unlikely(p->ipv6 && !udp->check))
		p->fault = DROP_UDP_ZERO_CHECKSUM;
	return VERDICT_CONTINUE;
}

/* The long timeout is for flows whose client sent again after an answer. It shrinks
 * as the table fills: a forger can open as many such flows as endpoints answer. Where
 * answers are not seen it shrinks further, since a forger needs none. */
static __always_inline struct timeout udp_timeout(__u32 word)
{
	const __u32 both = CONN_REPLIED | CONN_ASSURED;
	bool lasts = (word & both) == both;
	bool answered =
		lasts && !(word & (STATE_TRAIT(CONN_ONE_WAY) | STATE_TUNNEL));

	return flow_timeout(
		lasts ? timeout_udp_replied : timeout_udp_unreplied,
		answered ? timeout_udp_unreplied : timeout_half_open_pressed,
		word & CONN_REPLIED ? IDLE_REPLACES : IDLE_SHORTENS);
}

static __always_inline enum verdict udp_translate(ctx_t *ctx, struct packet *p,
						  struct connection *c)
{
	return ports_translate(ctx, p, c, UDP_SUM_OFFSET, true);
}

#endif
