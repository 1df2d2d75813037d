/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * length.h - the length of a packet that has grown or shrunk.
 */
#ifndef LOXILB_LENGTH_H
#define LOXILB_LENGTH_H

#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"

/* Writes the packet's length into the IP header. skb->csum is not in use: the caller has
 * resized the packet. */
static __always_inline bool packet_set_length(ctx_t *ctx, struct packet *p,
					      __u32 length)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__be16 old;

	p->length = length;
	if (p->ipv6) {
		ip6 = ctx_header(ctx, p->l3, sizeof(*ip6));
		if (!ip6)
			return false;
		ip6->payload_len = bpf_htons(length - sizeof(*ip6));
		return true;
	}
	ip = ctx_header(ctx, p->l3, sizeof(*ip));
	if (!ip)
		return false;
	old = ip->tot_len;
	ip->tot_len = bpf_htons(length);
	ip->check = sum_replace(ip->check, sum_change(old, ip->tot_len));
	return true;
}

#endif
