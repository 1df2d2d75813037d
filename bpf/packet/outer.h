/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * outer.h - writes an outer header in front of a packet's own: IPv4 or IPv6, alone (RFC
 * 2003, RFC 2473, RFC 4213) or with UDP (GUE variant 1, without a header of its own).
 * encap.h explains its purpose.
 */
#ifndef LOXILB_OUTER_H
#define LOXILB_OUTER_H

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include "packet/checksum.h"
#include "packet/ctx.h"

#define TUNNEL_TTL 64
#define GUE_PORT 6080
#define GUE_FIRST_SOURCE 0xc000 /* and 16,383 more */
#define TUNNEL_PREFIX4 0xc6120000 /* 198.18.0.0/15 (RFC 2544) */
#define TUNNEL_PREFIX6 0x01000000 /* 100::/64 (RFC 6666) */

/* Properties of the inner packet that the outer header depends on. */
struct inner {
	__u64 hash; /* of the connection */
	__u32 length;
	__u8 protocol; /* the next header of the outer IP header */
	__u8 tos; /* DSCP and ECN (RFC 6040, normal mode) */
	__u8 dont_fragment;
	__u8 gue;
};

struct outer_ipv4 {
	struct iphdr ip;
	struct udphdr udp;
};

struct outer_ipv6 {
	struct ipv6hdr ip;
	struct udphdr udp;
};

static __always_inline void encap_udp(const struct inner *in,
				      struct udphdr *udp)
{
	udp->source = bpf_htons(GUE_FIRST_SOURCE | (in->hash & 0x3fff));
	udp->dest = bpf_htons(GUE_PORT);
	/* no checksum (RFC 6935): the inner packet has its own */
	udp->len = bpf_htons(in->length + sizeof(*udp));
}

static __always_inline bool encap_write(ctx_t *ctx, struct packet *p,
					const void *outer, __u32 size,
					__be16 ethertype, __u64 flags)
{
	flags |= BPF_F_ADJ_ROOM_FIXED_GSO;
	if (bpf_skb_adjust_room(ctx, size, BPF_ADJ_ROOM_MAC, flags) ||
	    bpf_skb_store_bytes(ctx, p->l3, outer, size, BPF_F_RECOMPUTE_CSUM))
		return false;
	return !p->l3 || !bpf_skb_store_bytes(ctx, p->l3 - 2, &ethertype,
					      sizeof(ethertype), 0);
}

/* Adds an outer IPv4 header. Only GUE uses the real source; others use an address of
 * a prefix that no network has. The same for encap_ipv6(). */
static __noinline bool encap_ipv4(ctx_t *ctx, struct packet *p,
				  const struct ip_addr *source,
				  const struct ip_addr *to,
				  const struct inner *in)
{
	struct outer_ipv4 o = {};
	__u32 length = in->length + sizeof(o.ip) + (in->gue ? 8 : 0);

	o.ip.version = 4;
	o.ip.ihl = 5;
	o.ip.tos = in->tos;
	/* 0 for many segments */
	o.ip.tot_len = bpf_htons(length <= 0xffff ? length : 0);
	o.ip.ttl = TUNNEL_TTL;
	o.ip.protocol = in->protocol;
	o.ip.daddr = to->word[3];
	if (in->dont_fragment)
		o.ip.frag_off = bpf_htons(0x4000);
	else
		o.ip.id = bpf_get_prandom_u32();
	if (in->gue) {
		o.ip.saddr = source->word[3];
		encap_udp(in, &o.udp);
	} else {
		o.ip.saddr = bpf_htonl(TUNNEL_PREFIX4 | (in->hash & 0x1ffff));
	}
	o.ip.check = ipv4_sum(&o.ip);
	if (in->gue)
		return encap_write(ctx, p, &o, sizeof(o), bpf_htons(ETH_P_IP),
				   BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 |
					   BPF_F_ADJ_ROOM_ENCAP_L4_UDP);
	return encap_write(ctx, p, &o, sizeof(o.ip), bpf_htons(ETH_P_IP),
			   BPF_F_ADJ_ROOM_ENCAP_L3_IPV4);
}

static __noinline bool encap_ipv6(ctx_t *ctx, struct packet *p,
				  const struct ip_addr *source,
				  const struct ip_addr *to,
				  const struct inner *in)
{
	struct outer_ipv6 o = {};
	__u32 length = in->length + (in->gue ? 8 : 0);

	*(__be32 *)&o.ip = bpf_htonl(6U << 28 | (__u32)in->tos << 20 |
				     (in->hash >> 32 & 0xfffff));
	o.ip.payload_len = bpf_htons(length <= 0xffff ? length : 0);
	o.ip.nexthdr = in->protocol;
	o.ip.hop_limit = TUNNEL_TTL;
	__builtin_memcpy(&o.ip.daddr, to, sizeof(*to));
	if (in->gue) {
		__builtin_memcpy(&o.ip.saddr, source, sizeof(*source));
		encap_udp(in, &o.udp);
		return encap_write(ctx, p, &o, sizeof(o), bpf_htons(ETH_P_IPV6),
				   BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 |
					   BPF_F_ADJ_ROOM_ENCAP_L4_UDP);
	}
	o.ip.saddr.s6_addr32[0] = bpf_htonl(TUNNEL_PREFIX6);
	o.ip.saddr.s6_addr32[2] = in->hash >> 32;
	o.ip.saddr.s6_addr32[3] = in->hash;
	return encap_write(ctx, p, &o, sizeof(o.ip), bpf_htons(ETH_P_IPV6),
			   BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
}

#endif
