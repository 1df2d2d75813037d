/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * header.h - the header of GTP-U (3GPP TS 29.281 section 5), and the extension header
 * with the QoS flow (TS 38.415 section 5.5.2).
 */
#ifndef LOXILB_GTP_HEADER_H
#define LOXILB_GTP_HEADER_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "decap/outer_header.h"
#include "packet/checksum.h"
#include "packet/ctx.h"

#define GTP_PORT 2152
#define GTP_VERSION_MASK 0xf0 /* version and protocol type */
#define GTP_VERSION 0x30 /* version 1, GTP rather than GTP' */
#define GTP_OPTIONS 0x07 /* any of the next three: four bytes follow */
#define GTP_EXTENSION 0x04
#define GTP_USER_DATA 255 /* the only type with a user's packet */
#define GTP_PDU_SESSION 0x85 /* the extension header's type */
#define GTP_EXTENSIONS 4 /* more of them in a row are left alone */
#define GTP_TTL 64

struct gtp {
	__u8 flags;
	__u8 type;
	__be16 length; /* of what follows the first eight bytes */
	__be32 teid;
};

/* Follows if any of GTP_OPTIONS is set. */
struct gtp_options {
	__be16 sequence;
	__u8 number; /* of the N-PDU */
	__u8 next; /* the type of the first extension header; 0: none */
};

/* The outer header of an answer. */
struct gtp_outer {
	struct iphdr ip;
	struct udphdr udp;
	struct gtp gtp;
	struct gtp_options options;
	__u8 extension_length; /* in units of four bytes */
	__u8 pdu_type; /* in the upper half; 0: downlink */
	__u8 qfi;
	__u8 next;
};

/* Passes an extension header at *size from the outer one. Returns the type of the next
 * one; 0: none. A negative number: it is not whole. */
static __always_inline int gtp_extension(ctx_t *ctx, struct outer *o)
{
	__u8 *length = ctx_header(ctx, o->l3 + o->size, 1), *next;
	__u32 bytes;

	if (!length || !*length)
		return -1;
	bytes = *length * 4;
	next = ctx_header(ctx, o->l3 + o->size + bytes - 1, 1);
	if (!next)
		return -1;
	o->size += bytes;
	return *next;
}

/* Passes the options and extension headers. Returns false if they are not whole, or too
 * many. */
static __always_inline bool gtp_pass_options(ctx_t *ctx, struct outer *o,
					     __u8 flags)
{
	struct gtp_options *options;
	int next;

	if (!(flags & GTP_OPTIONS))
		return true;
	options = ctx_header(ctx, o->l3 + o->size, sizeof(*options));
	if (!options)
		return false;
	o->size += sizeof(*options);
	next = flags & GTP_EXTENSION ? options->next : 0;
	for (int i = 0; i < GTP_EXTENSIONS && next > 0; i++)
		next = gtp_extension(ctx, o);
	return !next;
}

/* Reports whether an outer header holds a user's IP packet in a tunnel. Then o->size
 * includes UDP and GTP. */
static __always_inline bool gtp_holds(ctx_t *ctx, struct outer *o, __u32 *teid)
{
	struct udphdr *udp =
		ctx_header(ctx, o->l3 + o->size,
			   sizeof(struct udphdr) + sizeof(struct gtp));
	struct gtp *gtp;
	__u8 *version;
	__u8 flags;

	if (!udp || udp->dest != bpf_htons(GTP_PORT))
		return false;
	gtp = (struct gtp *)(udp + 1);
	flags = gtp->flags;
	if ((flags & GTP_VERSION_MASK) != GTP_VERSION ||
	    gtp->type != GTP_USER_DATA)
		return false;
	*teid = bpf_ntohl(gtp->teid);
	o->size += sizeof(*udp) + sizeof(*gtp);
	if (!gtp_pass_options(ctx, o, flags))
		return false;
	version = ctx_header(ctx, o->l3 + o->size, 1);
	if (!version)
		return false;
	o->inner_ipv6 = *version >> 4 == 6;
	return o->inner_ipv6 || *version >> 4 == 4;
}

/* Puts a packet with an Ethernet header into a tunnel. */
static __always_inline bool gtp_put(ctx_t *ctx, __be32 from, __be32 to,
				    __u32 teid, __u8 qfi, __u8 tos)
{
	struct gtp_outer o = {};
	__u32 length = ctx->len - ETH_HLEN;
	__be16 ethertype = bpf_htons(ETH_P_IP);

	o.ip.version = 4;
	o.ip.ihl = 5;
	o.ip.tos = tos; /* DSCP and ECN (RFC 6040, normal mode) */
	o.ip.tot_len = bpf_htons(sizeof(o) + length);
	o.ip.id = bpf_get_prandom_u32();
	o.ip.ttl = GTP_TTL;
	o.ip.protocol = IPPROTO_UDP;
	o.ip.saddr = from;
	o.ip.daddr = to;
	o.ip.check = ipv4_sum(&o.ip);
	o.udp.source = bpf_htons(GTP_PORT);
	o.udp.dest = bpf_htons(GTP_PORT);
	o.udp.len = bpf_htons(sizeof(o) - sizeof(o.ip) + length);
	o.gtp.flags = GTP_VERSION | GTP_EXTENSION;
	o.gtp.type = GTP_USER_DATA;
	o.gtp.length = bpf_htons(sizeof(o) - sizeof(o.ip) - sizeof(o.udp) -
				 sizeof(o.gtp) + length);
	o.gtp.teid = bpf_htonl(teid);
	o.options.next = GTP_PDU_SESSION;
	o.extension_length = 1;
	o.qfi = qfi;
	return !bpf_skb_adjust_room(ctx, sizeof(o), BPF_ADJ_ROOM_MAC,
				    BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 |
					    BPF_F_ADJ_ROOM_ENCAP_L4_UDP) &&
	       !bpf_skb_store_bytes(ctx, ETH_HLEN, &o, sizeof(o),
				    BPF_F_RECOMPUTE_CSUM) &&
	       !bpf_skb_store_bytes(ctx, ETH_HLEN - sizeof(ethertype),
				    &ethertype, sizeof(ethertype), 0);
}

#endif
