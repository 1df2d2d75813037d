/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * nat.h - writes a connection's tuple into a packet, and corrects the
 * checksums.
 *
 * The checksums of layer 4 are the protocol's (protocol.h); ports.h explains them.
 */
#ifndef LOXILB_NAT_H
#define LOXILB_NAT_H

#include "packet/checksum.h"
#include "protocol/protocol.h"

/* l3: the offset of the IP header, a constant where possible. */
static __always_inline enum verdict
nat_ipv4(ctx_t *ctx, struct packet *p, const struct connection *c, __u16 l3)
{
	struct iphdr *ip = ctx_header(ctx, l3, sizeof(*ip));

	if (!ip)
		return drop(p, DROP_NOT_LINEAR);
	ip->saddr = c->saddr.word[3];
	ip->daddr = c->daddr.word[3];
	ip->ttl--;
	ip->check = sum_replace_all(ip->check, c->address_sum + TTL_CHANGE);
	return VERDICT_CONTINUE;
}

static __always_inline enum verdict
nat_ipv6(ctx_t *ctx, struct packet *p, const struct connection *c, __u16 l3)
{
	struct ipv6hdr *ip = ctx_header(ctx, l3, sizeof(*ip));

	if (!ip)
		return drop(p, DROP_NOT_LINEAR);
	__builtin_memcpy(&ip->saddr, &c->saddr, sizeof(struct ip_addr));
	__builtin_memcpy(&ip->daddr, &c->daddr, sizeof(struct ip_addr));
	ip->hop_limit--;
	return VERDICT_CONTINUE;
}

/* Translates a later fragment. It has no layer 4 header: nothing but IPv4's own
 * checksum compensates the addresses. */
static __always_inline enum verdict
translate_fragment(ctx_t *ctx, struct packet *p, struct connection *c)
{
	if (!p->ipv6)
		return nat_ipv4(ctx, p, c, p->l3);
	ctx_sum_update(ctx, c->address_sum + HOP_LIMIT_CHANGE);
	return nat_ipv6(ctx, p, c, p->l3);
}

static __always_inline enum verdict translate(ctx_t *ctx, struct packet *p,
					      struct connection *c, __u16 l3)
{
	enum verdict v;

	v = p->ipv6 ? nat_ipv6(ctx, p, c, l3) : nat_ipv4(ctx, p, c, l3);
	if (v != VERDICT_CONTINUE)
		return v;
	return protocol_translate(ctx, p, c);
}

#endif
