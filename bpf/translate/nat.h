/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * nat.h - writes a connection's tuple into a packet, and corrects the
 * checksums.
 *
 * A checksum changes by what changed. It is never computed from the data, so
 * the receiver still sees that a packet was damaged on its way here.
 *
 *   CHECKSUM_NONE, UNNECESSARY  the field is complete: add addresses and ports
 *   CHECKSUM_PARTIAL            the field is the sum of the pseudo header, not
 *                               complemented, without ports: add addresses
 *   CHECKSUM_COMPLETE           as NONE, and skb->csum is the sum of the packet.
 *                               IPv6: the layer 4 checksum balances the
 *                               addresses; add the hop limit. IPv4: the header's
 *                               checksum balances the addresses; add the change
 *                               of the layer 4 field
 *   unknown (before 6.2)        the helpers know; 30 ns each
 */
#ifndef LOXILB_NAT_H
#define LOXILB_NAT_H

#include "packet/checksum.h"
#include "packet/parse.h"

/* CHECKSUM_COMPLETE: updates skb->csum. In a UDP packet without a checksum (old is 0)
 * nothing compensates the ports and addresses. */
static __noinline void nat_sum_complete(ctx_t *ctx, struct packet *p,
					struct connection *c, __u16 old)
{
	bool none = p->tuple.protocol == IPPROTO_UDP && !old;
	__u16 ports = connection_ports_sum(c);

	if (p->ipv6)
		ctx_sum_update(ctx,
			       (none ? c->tuple_sum : 0) + HOP_LIMIT_CHANGE);
	else
		ctx_sum_update(ctx, none ? ports : (__u16)~c->address_sum);
}

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

/* For kernels that do not show ip_summed: two helper calls, which check it
 * themselves. Ports first: that call does not change PARTIAL. */
static __noinline enum verdict nat_l4_helpers(ctx_t *ctx, struct packet *p,
					      struct connection *c)
{
	bool is_udp = p->tuple.protocol == IPPROTO_UDP;
	__u32 field = p->l4 + sum_offset(p->tuple.protocol);
	__u64 udp = is_udp ? BPF_F_MARK_MANGLED_0 : 0;
	__u16 ports = connection_ports_sum(c);
	__be16 *l4;

	if (ctx_sum_replace(ctx, field, 0, ports, udp) ||
	    ctx_sum_replace(ctx, field, 0, c->address_sum,
			    udp | BPF_F_PSEUDO_HDR))
		return drop(p, DROP_NOT_LINEAR);
	l4 = ctx_header(ctx, p->l4, sizeof(struct udphdr));
	if (!l4)
		return drop(p, DROP_NOT_LINEAR);
	l4[0] = c->sport;
	l4[1] = c->dport;
	/* IPv6: the helper wrongly subtracts the addresses from skb->csum. IPv4:
	 * nothing compensates the ports of UDP without a checksum. */
	if (p->ipv6)
		ctx_sum_update(ctx, c->address_sum + HOP_LIMIT_CHANGE);
	else if (is_udp && !((struct udphdr *)l4)->check)
		ctx_sum_update(ctx, ports);
	return VERDICT_CONTINUE;
}

/* sum_offset is a constant, so the protocol is known when this is compiled. */
static __always_inline enum verdict nat_l4(ctx_t *ctx, struct packet *p,
					   struct connection *c,
					   const __u32 sum_offset)
{
	const bool udp = sum_offset == UDP_SUM_OFFSET;
	__be16 *l4 = ctx_header(ctx, p->l4, sum_offset + 2);
	enum ctx_checksum state;
	__u16 *check, old, sum;

	if (!l4)
		return drop(p, DROP_NOT_LINEAR);
	state = ctx_checksum_state(ctx);
	if (unlikely(state == CTX_CHECKSUM_UNKNOWN))
		return nat_l4_helpers(ctx, p, c);
	check = (void *)l4 + sum_offset;
	l4[0] = c->sport;
	l4[1] = c->dport;
	old = *check;
	if (state == CTX_CHECKSUM_PARTIAL) {
		*check = sum_replace_pseudo(old, c->address_sum);
		return VERDICT_CONTINUE;
	}
	if (udp && !old) /* the datagram has no checksum */
		goto complete;
	sum = sum_replace(old, c->tuple_sum);
	*check = udp ? sum_of_udp(sum) : sum;
complete:
	if (unlikely(state == CTX_CHECKSUM_COMPLETE))
		nat_sum_complete(ctx, p, c, old);
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

/* Translates an echo. ICMPv6's checksum covers the addresses, ICMP's does not. The
 * identifier stands for the port of the requesting side. */
static __noinline enum verdict nat_echo(ctx_t *ctx, struct packet *p,
					struct connection *c)
{
	__u16 ports = connection_ports_sum(c);
	__be16 id = p->echo_reply ? c->dport : c->sport;
	enum ctx_checksum state = ctx_checksum_state(ctx);
	struct echo_header *echo;

	if (p->ipv6 && state == CTX_CHECKSUM_UNKNOWN) {
		__u32 field =
			p->l4 + __builtin_offsetof(struct echo_header, check);

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

static __always_inline enum verdict translate(ctx_t *ctx, struct packet *p,
					      struct connection *c, __u16 l3)
{
	enum verdict v;

	v = p->ipv6 ? nat_ipv6(ctx, p, c, l3) : nat_ipv4(ctx, p, c, l3);
	if (v != VERDICT_CONTINUE)
		return v;
	if (p->tuple.protocol == IPPROTO_TCP)
		return nat_l4(ctx, p, c, TCP_SUM_OFFSET);
	if (likely(p->tuple.protocol == IPPROTO_UDP))
		return nat_l4(ctx, p, c, UDP_SUM_OFFSET);
	return nat_echo(ctx, p, c);
}

#endif
