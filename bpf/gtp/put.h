/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * put.h - puts packets into GTP-U tunnels: an outer header of IPv4 or IPv6, with the
 * extension header that names the QoS flow.
 */
#ifndef LOXILB_GTP_PUT_H
#define LOXILB_GTP_PUT_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "gtp/header.h"
#include "packet/address.h"
#include "packet/checksum.h"
#include "packet/ctx.h"

#define GTP_TTL 64
#define GTP_PART 512 /* bytes that bpf_csum_diff takes before Linux 6.14 */
#define GTP_PARTS 3
#define GTP_LARGEST             \
	(GTP_PART * GTP_PARTS - \
	 4) /* of packets to users; a route has a smaller MTU */

/* The tunnel of answers. */
struct gtp_downlink {
	struct ip_addr from; /* the user plane function */
	struct ip_addr to; /* the base station; of the same IP version */
	__u32 teid; /* of the tunnel's end there, host byte order */
	__u32 qfi; /* the QoS flow, 0 to 63 */
};

/* The headers after the outer IP header. */
struct gtp_message {
	struct udphdr udp;
	struct gtp gtp;
	struct gtp_options options;
	__u8 extension_length; /* in units of four bytes */
	__u8 pdu_type; /* in the upper half; 0: downlink */
	__u8 qfi;
	__u8 next;
};

struct gtp_outer_ipv4 {
	struct iphdr ip;
	struct gtp_message message;
};

struct gtp_outer_ipv6 {
	struct ipv6hdr ip;
	struct gtp_message message;
};

struct gtp_bytes {
	__u8 at[GTP_PART * GTP_PARTS];
};

/* 0 -> a copy of a packet, for its checksum. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct gtp_bytes);
} gtp_scratch SEC(".maps");

/* Writes all but the UDP checksum. length: of the user's packet. */
static __always_inline void
gtp_message(struct gtp_message *m, const struct gtp_downlink *d, __u32 length)
{
	m->udp.source = bpf_htons(GTP_PORT);
	m->udp.dest = bpf_htons(GTP_PORT);
	m->udp.len = bpf_htons(sizeof(*m) + length);
	m->gtp.flags = GTP_VERSION | GTP_EXTENSION;
	m->gtp.type = GTP_USER_DATA;
	m->gtp.length = bpf_htons(sizeof(*m) - sizeof(m->udp) - sizeof(m->gtp) +
				  length);
	m->gtp.teid = bpf_htonl(d->teid);
	m->options.next = GTP_PDU_SESSION;
	m->extension_length = 1;
	m->qfi = d->qfi;
}

/* Adds the sum of a packet after its Ethernet header. Returns a negative number if it
 * is too large. Global (verifier: globals). */
__noinline __s64 gtp_sum(ctx_t *ctx, __u32 sum)
{
	__u32 zero = 0, length = ctx->len - ETH_HLEN, last = length - 1;
	struct gtp_bytes *copy = bpf_map_lookup_elem(&gtp_scratch, &zero);
	__u64 part;

	/* both bounds visible (verifier: bounds) */
	asm volatile("" : "+r"(last));
	if (!copy || last >= GTP_LARGEST ||
	    bpf_skb_load_bytes(ctx, ETH_HLEN, copy->at, last + 1))
		return -1;
	/* sums are of words of four bytes */
	copy->at[last + 1] = copy->at[last + 2] = copy->at[last + 3] = 0;
	length = (last + 4) & ~3U;
	for (int i = 0; i < GTP_PARTS && length; i++) {
		part = length < GTP_PART ? length : GTP_PART;
		length -= part;
		asm volatile("" : "+r"(part)); /* as above */
		if (part > GTP_PART)
			return -1;
		sum = bpf_csum_diff(NULL, 0, (void *)copy->at + i * GTP_PART,
				    part, sum);
	}
	return sum;
}

static __always_inline bool gtp_write(ctx_t *ctx, void *outer, __u32 size,
				      __be16 ethertype, __u64 flags)
{
	return !bpf_skb_adjust_room(ctx, size, BPF_ADJ_ROOM_MAC,
				    flags | BPF_F_ADJ_ROOM_ENCAP_L4_UDP) &&
	       !bpf_skb_store_bytes(ctx, ETH_HLEN, outer, size,
				    BPF_F_RECOMPUTE_CSUM) &&
	       !bpf_skb_store_bytes(ctx, ETH_HLEN - sizeof(ethertype),
				    &ethertype, sizeof(ethertype), 0);
}

/* No UDP checksum: the user's packet has its own. tos: DSCP and ECN (RFC 6040, normal
 * mode), as for IPv6. */
static __always_inline bool gtp_put_ipv4(ctx_t *ctx,
					 const struct gtp_downlink *d, __u8 tos)
{
	__u32 length = ctx->len - ETH_HLEN;
	struct gtp_outer_ipv4 o = {};

	o.ip.version = 4;
	o.ip.ihl = 5;
	o.ip.tos = tos;
	o.ip.tot_len = bpf_htons(sizeof(o) + length);
	o.ip.id = bpf_get_prandom_u32();
	o.ip.ttl = GTP_TTL;
	o.ip.protocol = IPPROTO_UDP;
	o.ip.saddr = d->from.word[3];
	o.ip.daddr = d->to.word[3];
	o.ip.check = ipv4_sum(&o.ip);
	gtp_message(&o.message, d, length);
	return gtp_write(ctx, &o, sizeof(o), bpf_htons(ETH_P_IP),
			 BPF_F_ADJ_ROOM_ENCAP_L3_IPV4);
}

/* With a UDP checksum: receivers may refuse packets without one (RFC 8200 section 8.1).
 * It covers the user's packet. */
static __always_inline bool gtp_put_ipv6(ctx_t *ctx,
					 const struct gtp_downlink *d, __u8 tos)
{
	__u32 length = ctx->len - ETH_HLEN;
	struct gtp_outer_ipv6 o = {};
	__s64 sum;

	*(__be32 *)&o.ip = bpf_htonl(6U << 28 | (__u32)tos << 20);
	o.ip.payload_len = bpf_htons(sizeof(o.message) + length);
	o.ip.nexthdr = IPPROTO_UDP;
	o.ip.hop_limit = GTP_TTL;
	__builtin_memcpy(&o.ip.saddr, &d->from, 16);
	__builtin_memcpy(&o.ip.daddr, &d->to, 16);
	gtp_message(&o.message, d, length);
	sum = pseudo_sum(&d->from, &d->to, IPPROTO_UDP,
			 sizeof(o.message) + length);
	sum = gtp_sum(ctx, bpf_csum_diff(NULL, 0, (void *)&o.message,
					 sizeof(o.message), sum));
	if (sum < 0)
		return false;
	o.message.udp.check = sum_of_udp((__u16)~sum_fold(sum));
	return gtp_write(ctx, &o, sizeof(o), bpf_htons(ETH_P_IPV6),
			 BPF_F_ADJ_ROOM_ENCAP_L3_IPV6);
}

/* Puts a packet with an Ethernet header into a tunnel. */
static __always_inline bool gtp_put(ctx_t *ctx, const struct gtp_downlink *d,
				    __u8 tos)
{
	return is_mapped_ipv4(&d->to) ? gtp_put_ipv4(ctx, d, tos) :
					gtp_put_ipv6(ctx, d, tos);
}

#endif
