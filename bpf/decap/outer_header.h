/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * outer_header.h - reads and removes the outer header of an arriving packet.
 */
#ifndef LOXILB_OUTER_HEADER_H
#define LOXILB_OUTER_HEADER_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "packet/address.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "parse/parse.h"

#define ECN_MASK 3
#define ECN_ECT1 1
#define ECN_CE 3

/* The outer header. */
struct outer {
	struct ip_addr saddr;
	struct ip_addr daddr;
	__u32 l3; /* its offset */
	__u32 size; /* UDP included */
	__u32 length; /* of the packet, as the header states */
	__u8 ipv6;
	__u8 tos;
	__u8 protocol;
	__u8 inner_ipv6;
};

/* Reads an outer IP header, if it has no options and the packet is not a fragment. */
static __always_inline bool outer_ip(ctx_t *ctx, struct outer *o)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;

	if (ctx_ethertype(ctx, o->l3) == bpf_htons(ETH_P_IPV6)) {
		ip6 = ctx_header(ctx, o->l3, sizeof(*ip6));
		if (!ip6 || ip6->version != 6)
			return false;
		o->ipv6 = 1;
		o->protocol = ip6->nexthdr;
		o->tos = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
		o->size = sizeof(*ip6);
		o->length = sizeof(*ip6) + bpf_ntohs(ip6->payload_len);
		__builtin_memcpy(&o->saddr, &ip6->saddr, 16);
		__builtin_memcpy(&o->daddr, &ip6->daddr, 16);
		return true;
	}
	if (ctx_ethertype(ctx, o->l3) != bpf_htons(ETH_P_IP))
		return false;
	ip = ctx_header(ctx, o->l3, sizeof(*ip));
	if (!ip || ip->version != 4 || ip->ihl != 5 ||
	    ip->frag_off & (IP_OFFSET_MASK | IP_MORE_FRAGMENTS))
		return false;
	o->protocol = ip->protocol;
	o->tos = ip->tos;
	o->size = sizeof(*ip);
	o->length = bpf_ntohs(ip->tot_len);
	map_ipv4(&o->saddr, ip->saddr);
	map_ipv4(&o->daddr, ip->daddr);
	return true;
}

/* Combines the ECN fields (RFC 6040 section 4.2). Returns false if the packet
 * must be dropped. */
static __always_inline bool ecn_combine(__u8 outer, __u8 *inner)
{
	if ((outer & ECN_MASK) == ECN_CE) {
		if (!(*inner & ECN_MASK))
			return false;
		*inner |= ECN_CE;
	} else if ((outer & ECN_MASK) == ECN_ECT1 && (*inner & ECN_MASK) == 2) {
		*inner ^= ECN_MASK;
	}
	return true;
}

/* Combines the outer and the inner ECN field. Returns false if the packet must be
 * dropped. */
static __always_inline bool ecn_write_ipv4(struct iphdr *ip, __u8 outer)
{
	__be16 old = *(__be16 *)ip;
	__u8 tos = ip->tos;

	if (!ecn_combine(outer, &tos))
		return false;
	ip->tos = tos;
	ip->check = sum_replace(ip->check, sum_change(old, *(__be16 *)ip));
	return true;
}

/* Combines them in an IPv6 header. Pointers into the packet are invalid afterwards. */
static __always_inline bool ecn_write_ipv6(ctx_t *ctx, struct ipv6hdr *ip6,
					   __u8 outer)
{
	__u8 tos = ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
	__be16 old = *(__be16 *)ip6, new;

	if (!ecn_combine(outer, &tos))
		return false;
	new = bpf_htons((bpf_ntohs(old) & 0xf00f) | tos << 4);
	if (old != new) {
		*(__be16 *)ip6 = new;
		ctx_sum_update(ctx, sum_change(old, new));
	}
	return true;
}

/* Removes the outer header. If the inner header is of the other version, the outer one
 * is first changed to that version, so that the kernel recognizes the packet. */
static __noinline bool outer_remove(ctx_t *ctx, const struct outer *o)
{
	__be16 protocol =
		o->inner_ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	__s32 size = o->size;

	if (o->ipv6 != o->inner_ipv6) {
		if (bpf_skb_change_proto(ctx, protocol, 0))
			return false;
		size += o->inner_ipv6 ? 20 : -20;
	}
	if (bpf_skb_adjust_room(ctx, -size, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_FIXED_GSO))
		return false;
	return !o->l3 || !bpf_skb_store_bytes(ctx, o->l3 - 2, &protocol,
					      sizeof(protocol), 0);
}

#endif
