/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * icmp.h - echoes, the only messages of ICMP with connections, in both IP versions (RFC
 * 792, RFC 4443): header, checksum, lifetime. Their states are those of a flow.
 * translate/icmp.h handles errors.
 */
#ifndef LOXILB_ICMP_ECHO_H
#define LOXILB_ICMP_ECHO_H

#include <linux/in.h>
#include <linux/in6.h>
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "protocol/flow.h"

/* The header, in both IP versions. */
struct echo_header {
	__u8 type;
	__u8 code;
	__u16 check;
	__be16 id;
	__be16 seq;
};

#define ECHO_REQUEST 8
#define ECHO_REPLY 0
#define ECHO6_REQUEST 128
#define ECHO6_REPLY 129
#define ECHO_SUM_OFFSET __builtin_offsetof(struct echo_header, check)

/* ICMPv6's checksum covers the addresses, ICMP's does not. */
static __always_inline struct protocol echo_facts(bool ipv6)
{
	return (struct protocol){
		.sum_has_addresses = ipv6,
		.sum_offset = ECHO_SUM_OFFSET,
		.header = sizeof(struct echo_header),
		.find = FIND_ECHO_STATES,
		.lifetime = LIFETIME_ICMP,
	};
}

/* Returns the number of ICMP in an IP version. */
static __always_inline __u8 icmp_protocol(bool ipv6)
{
	return ipv6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
}

/* Returns the protocol in the other IP version: ICMP and ICMPv6 are two
 * protocols. */
static __always_inline __u8 family_protocol(__u8 protocol)
{
	if (protocol == IPPROTO_ICMP)
		return IPPROTO_ICMPV6;
	return protocol == IPPROTO_ICMPV6 ? IPPROTO_ICMP : protocol;
}

/* Parses an echo. The identifier stands for the port of the requesting side; the
 * replying side has none. A frame's padding is not part of the message. Not inlined,
 * since few packets are echoes. */
static __noinline enum verdict echo_parse(ctx_t *ctx, struct packet *p,
					  __u32 l4_length)
{
	struct echo_header *echo = ctx_header(ctx, p->l4, sizeof(*echo));

	if (!echo || l4_length < sizeof(*echo))
		return packet_is_short(p);
	if (echo->type == (p->ipv6 ? ECHO6_REQUEST : ECHO_REQUEST)) {
		p->tuple.sport = echo->id;
		p->tuple.dport = 0;
		return VERDICT_CONTINUE;
	}
	if (echo->type == (p->ipv6 ? ECHO6_REPLY : ECHO_REPLY)) {
		p->tuple.sport = 0;
		p->tuple.dport = echo->id;
		p->echo_reply = 1;
		return VERDICT_CONTINUE;
	}
	p->tuple.sport = 0;
	p->tuple.dport = 0;
	return VERDICT_UNCOMMON;
}

static __always_inline struct timeout echo_timeout(void)
{
	return flow_timeout(timeout_udp_unreplied, timeout_half_open_pressed,
			    IDLE_SHORTENS);
}

/* Translates an echo. The identifier stands for the port of the requesting side. */
static __noinline enum verdict echo_translate(ctx_t *ctx, struct packet *p,
					      struct connection *c)
{
	__u16 ports = connection_ports_sum(c);
	__be16 id = p->echo_reply ? c->dport : c->sport;
	enum ctx_checksum state = ctx_checksum_state(ctx);
	struct echo_header *echo;

	if (p->ipv6 && state == CTX_CHECKSUM_UNKNOWN) {
		__u32 field = p->l4 + ECHO_SUM_OFFSET;

		if (ctx_sum_replace(ctx, field, 0, ports, 0) ||
		    ctx_sum_replace(ctx, field, 0, c->address_sum,
				    BPF_F_PSEUDO_HDR))
			return drop(p, DROP_NOT_LINEAR);
		ctx_sum_update(ctx, c->address_sum + HOP_LIMIT_CHANGE);
	}
	echo = ctx_header(ctx, p->l4, sizeof(*echo));
	if (!echo)
		return drop(p, DROP_NOT_LINEAR);
	if (!p->ipv6 && echo->id != id)
		echo->check = sum_replace(echo->check, ports);
	else if (p->ipv6 && state == CTX_CHECKSUM_PARTIAL)
		echo->check = sum_replace_pseudo(echo->check, c->address_sum);
	else if (p->ipv6 && state != CTX_CHECKSUM_UNKNOWN)
		echo->check = sum_replace(echo->check, c->tuple_sum);
	echo->id = id;
	if (p->ipv6 && state == CTX_CHECKSUM_COMPLETE)
		ctx_sum_update(ctx, HOP_LIMIT_CHANGE);
	return VERDICT_CONTINUE;
}

#endif
