/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mtu.h - the largest packet for a next hop, and the handling of longer ones.
 */
#ifndef LOXILB_MTU_H
#define LOXILB_MTU_H

#include <stdbool.h>
#include "packet/address.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "parse/parse.h"
#include "protocol/protocol.h"
#include "proxy/header.h"

/* An IPv6 header is this much longer than an IPv4 header. */
#define FAMILY_GROWTH 20

/* Reports whether this direction of a connection leaves as IPv6. */
static __always_inline bool leaves_as_ipv6(const struct connection *c)
{
	return !is_mapped_ipv4(&c->daddr);
}

/* Returns how much longer a tunnel's outer header makes a packet. */
static __always_inline __u16 tunnel_overhead(const struct connection *c,
					     const struct ip_addr *target)
{
	return (is_mapped_ipv4(target) ? sizeof(struct iphdr) :
					 sizeof(struct ipv6hdr)) +
	       (c->hop & HOP_TUNNEL_GUE ? sizeof(struct udphdr) : 0);
}

/* Returns the length of the largest packet that fits the MTU, before this
 * direction adds a tunnel's header to it or translates it to the other IP
 * version. */
static __always_inline __u16 mtu_before(const struct connection *c,
					const struct ip_addr *target, __u16 mtu)
{
	if (c->hop & HOP_TUNNELS)
		return mtu - tunnel_overhead(c, target);
	if (connection_has_proxy_header(c) &&
	    !(c->flags & CONN_REPLY_DIRECTION))
		mtu -= proxy_length(c);
	if (!(c->hop & HOP_FAMILY))
		return mtu;
	if (leaves_as_ipv6(c))
		return mtu - FAMILY_GROWTH;
	return mtu < 0xffff - FAMILY_GROWTH ? mtu + FAMILY_GROWTH : 0xffff;
}

/* Returns how much longer a fragment becomes by the fragment header of IPv6, which
 * mtu_before() does not consider. */
static __always_inline __u16 fragment_growth(const struct packet *p,
					     const struct connection *c)
{
	return !p->ipv6 && p->fragment && c->hop & HOP_FAMILY ?
		       sizeof(struct fragment_header) :
		       0;
}

/* A packet of more than 64 KiB has this before its TCP header while it is
 * between devices of one machine: a hop-by-hop header with the jumbo payload
 * option (RFC 2675). */
#define JUMBO_HEADER 8

/* Returns the length of the packet, or of each packet that it will be segmented into,
 * except perhaps the last. The SCTP sender itself segments for its path MTU: the
 * lengths are unknown here, and count as 0. */
static __always_inline __u32 segment_length(ctx_t *ctx, const struct packet *p)
{
	__u32 headers, segment = ctx->gso_size;

	if (!segment)
		return p->length;
	if (ONLY_SCTP && segment == CTX_SEGMENTS_VARY)
		return 0;
	headers = p->length - protocol_payload(p);
	if (p->ipv6 && p->length > 0xffff + sizeof(struct ipv6hdr))
		headers -= JUMBO_HEADER; /* removed by segmentation */
	return headers + segment;
}

/* Handles a packet that is longer than its next hop's MTU. Returns CONTINUE if it will be
 * segmented and each segment fits. Packets are never fragmented here, even where IPv4
 * would allow it: senders follow the ICMP error anyway, and send smaller packets. */
static __noinline enum verdict mtu_check(ctx_t *ctx, struct packet *p,
					 __u16 mtu)
{
	if (segment_length(ctx, p) <= mtu)
		return VERDICT_CONTINUE;
	if (p->later_fragment) /* no ICMP error is sent about it (RFC 1122) */
		return drop(p, DROP_TOO_BIG);
	return drop_and_answer(p, DROP_TOO_BIG,
			       ANSWER_TOO_BIG | mtu << ANSWER_MTU_SHIFT);
}

#endif
