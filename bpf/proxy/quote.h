/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * quote.h - corrects an ICMP error about a packet that was sent with or after a header
 * of the PROXY protocol: the quoted number, which the client compares with its own, and
 * a reported MTU, which must leave room for the header.
 */
#ifndef LOXILB_PROXY_QUOTE_H
#define LOXILB_PROXY_QUOTE_H

#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/icmp_types.h"
#include "protocol/tcp.h"
#include "proxy/header.h"
#include "table/state.h"

/* Returns the client's own number for one that was sent to the endpoint. c is the entry of
 * replies. */
static __always_inline __u32 proxy_number_of(const struct connection *c,
					     __u32 word, __u32 number,
					     __u32 length)
{
	if (!(word & STATE_PROXY_PAST) && number - c->ack < length)
		return c->ack;
	return (word & STATE_PROXY_ACKED) || (__s32)(number - c->ack) > 0 ?
		       number - length :
		       number;
}

/* Changes a word of the error at an offset, and its checksum. */
static __always_inline bool quote_put(ctx_t *ctx, const struct packet *p,
				      __u32 at, __be32 old, __be32 new)
{
	const __u32 check =
		p->l4 + __builtin_offsetof(struct icmp_header, checksum);
	const __u16 delta = sum_fold64((__u64)(__be32)~old + new);
	__u16 sum;

	if (bpf_skb_load_bytes(ctx, check, &sum, sizeof(sum)))
		return false;
	sum = sum_replace(sum, delta);
	return !bpf_skb_store_bytes(ctx, at, &new, sizeof(new), 0) &&
	       !bpf_skb_store_bytes(ctx, check, &sum, sizeof(sum), 0);
}

static __always_inline bool quote_number(ctx_t *ctx, const struct packet *p,
					 __u32 l4, const struct connection *c,
					 __u32 length)
{
	const __u32 at = l4 + __builtin_offsetof(struct tcphdr, seq);
	__be32 old, new;
	__u16 sum;

	if (bpf_skb_load_bytes(ctx, at, &old, sizeof(old)))
		return false;
	new = bpf_htonl(
		proxy_number_of(c, state_read(c), bpf_ntohl(old), length));
	if (old == new)
		return true;
	if (l4 + TCP_SUM_OFFSET + sizeof(sum) > p->l3 + p->length ||
	    bpf_skb_load_bytes(ctx, l4 + TCP_SUM_OFFSET, &sum, sizeof(sum)))
		return quote_put(ctx, p, at, old, new);
	/* the quoted checksum compensates the number */
	sum = sum_replace(sum, sum_fold64((__u64)(__be32)~old + new));
	return !bpf_skb_store_bytes(ctx, at, &new, sizeof(new), 0) &&
	       !bpf_skb_store_bytes(ctx, l4 + TCP_SUM_OFFSET, &sum, sizeof(sum),
				    0);
}

/* Lowers a reported MTU, but not below the least one of its IP version. */
static __always_inline bool quote_mtu(ctx_t *ctx, const struct packet *p,
				      const struct icmp_header *icmp,
				      __u32 length, __u32 least)
{
	const bool reports = p->ipv6 ? icmp->type == ICMPV6_PKT_TOOBIG :
				       icmp->type == ICMP_DEST_UNREACH &&
					       icmp->code == ICMP_FRAG_NEEDED;
	__u32 info = bpf_ntohl(icmp->info);

	if (!reports || (p->ipv6 ? info : info & 0xffff) < least + length)
		return true;
	return quote_put(ctx, p,
			 p->l4 + __builtin_offsetof(struct icmp_header, info),
			 icmp->info, bpf_htonl(info - length));
}

/* Corrects an error that has arrived, before it is translated. l4: the offset of the
 * quoted TCP header. c: the entry of replies to the quoted packet. Global (verifier:
 * globals). */
__noinline __maybe_unused bool proxy_correct_error(ctx_t *ctx,
						   const struct packet *p,
						   const struct connection *c,
						   __u32 l4)
{
	struct icmp_header icmp;
	__u32 length;

	if (!p || !c) /* verifier: null */
		return false;
	if (!(c->flags & CONN_REPLY_DIRECTION))
		return true; /* the client's side reports it */
	length = proxy_length(c);
	return !bpf_skb_load_bytes(ctx, p->l4, &icmp, sizeof(icmp)) &&
	       quote_number(ctx, p, l4, c, length) &&
	       quote_mtu(ctx, p, &icmp, length, p->ipv6 ? 1280 : 68);
}

#endif
