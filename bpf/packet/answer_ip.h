/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * answer_ip.h - writes the IP header of an answer to a packet's sender.
 */
#ifndef LOXILB_ANSWER_IP_H
#define LOXILB_ANSWER_IP_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"

#define ANSWER_TTL 64
#define ANSWER_ICMP_TOS \
	0xc0 /* internetwork control (RFC 1812 section 4.3.2.5) */
/* Writes the IP header of an answer. */
static __noinline __maybe_unused bool answer_ip(ctx_t *ctx, struct packet *p,
						const struct ip_addr *src,
						__u32 protocol, __u32 length)
{
	struct ipv6hdr ip6 = {};
	struct iphdr ip = {};

	if (!src)
		return false;
	if (p->ipv6) {
		ip6.version = 6;
		ip6.payload_len = bpf_htons(length);
		ip6.nexthdr = protocol;
		ip6.hop_limit = ANSWER_TTL;
		__builtin_memcpy(&ip6.saddr, src, sizeof(*src));
		__builtin_memcpy(&ip6.daddr, &p->tuple.saddr, sizeof(*src));
		return !ctx_store(ctx, p->l3, &ip6, sizeof(ip6));
	}
	ip.version = 4;
	ip.ihl = 5;
	ip.tot_len = bpf_htons(sizeof(ip) + length);
	ip.tos = protocol == IPPROTO_ICMP ? ANSWER_ICMP_TOS : 0;
	ip.frag_off = bpf_htons(0x4000);
	ip.ttl = ANSWER_TTL;
	ip.protocol = protocol;
	ip.saddr = src->word[3];
	ip.daddr = p->tuple.saddr.word[3];
	ip.check = ipv4_sum(&ip);
	return !ctx_store(ctx, p->l3, &ip, sizeof(ip));
}

#endif
