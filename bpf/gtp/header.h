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
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "decap/outer_header.h"
#include "gtp/port.h"
#include "packet/ctx.h"

#define GTP_VERSION_MASK 0xf0 /* version and protocol type */
#define GTP_VERSION 0x30 /* version 1, GTP rather than GTP' */
#define GTP_OPTIONS 0x07 /* any of the next three: four bytes follow */
#define GTP_EXTENSION 0x04
#define GTP_USER_DATA 255 /* the only type with a user's packet */
#define GTP_END_MARKER 254 /* the last message of a tunnel that moves */
#define GTP_PDU_SESSION 0x85 /* the extension header's type */
#define GTP_EXTENSIONS 4 /* packets with more of them are not handled */

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

/* The beginning of an IP packet of either version. */
struct gtp_inner {
	__u8 version; /* in the upper half */
	__u8 tos;
	__be16 length4; /* IPv4: of the packet */
	__be16 length6; /* IPv6: of what follows the header */
};

/* Reads the IP version of a user's packet at o->size. Returns false if it is none, or ends
 * behind an offset from the outer header: what follows a datagram, such as padding, is not
 * part of it. */
static __always_inline bool gtp_inner(ctx_t *ctx, struct outer *o, __u32 end)
{
	struct gtp_inner *inner =
		ctx_header(ctx, o->l3 + o->size, sizeof(*inner));
	__u32 length;

	if (!inner)
		return false;
	o->inner_ipv6 = inner->version >> 4 == 6;
	length = o->inner_ipv6 ?
			 sizeof(struct ipv6hdr) + bpf_ntohs(inner->length6) :
			 bpf_ntohs(inner->length4);
	return (o->inner_ipv6 || inner->version >> 4 == 4) &&
	       o->size + length <= end;
}

/* Reports whether an outer header holds a user's IP packet in a tunnel. Then o->size
 * includes UDP and GTP. */
static __always_inline bool gtp_has_packet(ctx_t *ctx, struct outer *o,
					   __u32 *teid)
{
	struct udphdr *udp =
		ctx_header(ctx, o->l3 + o->size,
			   sizeof(struct udphdr) + sizeof(struct gtp));
	struct gtp *gtp;
	__u8 flags;
	__u32 end;

	if (!udp || udp->dest != bpf_htons(GTP_PORT))
		return false;
	gtp = (struct gtp *)(udp + 1);
	flags = gtp->flags;
	if ((flags & GTP_VERSION_MASK) != GTP_VERSION ||
	    gtp->type != GTP_USER_DATA)
		return false;
	*teid = bpf_ntohl(gtp->teid);
	end = o->size + bpf_ntohs(udp->len);
	o->size += sizeof(*udp) + sizeof(*gtp);
	return end <= o->length && gtp_pass_options(ctx, o, flags) &&
	       gtp_inner(ctx, o, end);
}

#endif
