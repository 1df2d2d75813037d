/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * list.h - lists the VIPs of a service in INIT ACK, so the client knows further paths.
 */
#ifndef LOXILB_SCTP_LIST_H
#define LOXILB_SCTP_LIST_H

#include "packet/length.h"
#include "sctp/paths.h"

#if ONLY_SCTP
#define SCTP_LISTED_IPV4 8
#define SCTP_LISTED_IPV6 20

/* Continues a checksum over bytes that are appended to a packet. */
static __always_inline __u32 sctp_crc_append(__u32 check, const __u8 *bytes,
					     __u32 length)
{
	const struct sctp_crc *t = sctp_crc_get();
	__u32 crc = ~check;

	if (!t)
		return check;
	NO_UNROLL
	for (__u32 i = 0; i < SCTP_LISTED_IPV6; i++)
		if (i < length)
			crc = crc >> 8 ^ sctp_crc_row(t->byte, crc ^ bytes[i]);
	return ~crc;
}

/* Writes an address at an offset of the packet. Returns the checksum that follows. */
static __noinline __u32 sctp_list_one(ctx_t *ctx, const struct ip_addr *a,
				      __u32 at, __u32 check)
{
	const bool ipv6 = !is_mapped_ipv4(a);
	const __u32 length = ipv6 ? SCTP_LISTED_IPV6 : SCTP_LISTED_IPV4;
	struct {
		struct sctp_parameter p;
		struct ip_addr addr;
	} one = { .addr = *a };

	one.p.type = bpf_htons(ipv6 ? SCTP_ADDRESS_IPV6 : SCTP_ADDRESS_IPV4);
	one.p.length = bpf_htons(length);
	if (!ipv6)
		one.addr.word[0] = a->word[3];
	if (ipv6 ? ctx_store(ctx, at, &one, SCTP_LISTED_IPV6) :
		   ctx_store(ctx, at, &one, SCTP_LISTED_IPV4))
		return check;
	return sctp_crc_append(check, (void *)&one, length);
}

/* Adds so many bytes to the length of the packet's only chunk. Returns the checksum that
 * follows from it, before anything is appended. */
static __always_inline __u32 sctp_chunk_grow(ctx_t *ctx, const struct packet *p,
					     __u32 growth, __u32 check)
{
	const __u32 at = p->l4 + sizeof(struct sctp_header),
		    behind = p->length - (at - p->l3);
	const struct sctp_crc *t = sctp_crc_get();
	struct sctp_parameter h; /* type and flags, length */
	__u32 was, now;

	if (!t || bpf_skb_load_bytes(ctx, at, &h, sizeof(h)))
		return check;
	__builtin_memcpy(&was, &h, sizeof(was));
	h.length = bpf_htons(((bpf_ntohs(h.length) + 3) & ~3U) + growth);
	__builtin_memcpy(&now, &h, sizeof(now));
	if (ctx_store(ctx, at, &h, sizeof(h)))
		return check;
	return check ^ sctp_crc_change(t, was ^ now, behind);
}

/* Reports whether a VIP must be listed: all except the one that the client knows. */
static __always_inline bool sctp_is_listed(const struct ip_addr *a,
					   const struct connection *c)
{
	return sctp_is_address_set(a) && !same_addr(a, &c->saddr);
}

/* Appends the service's other VIPs to the endpoint's INIT ACK, before it is translated.
 * Without memory for them, it leaves as it is. Global (verifier: globals). */
__noinline int sctp_list_vips(ctx_t *ctx, struct packet *p,
			      const struct connection *c)
{
	const struct endpoint *ep = c ? endpoint_find(c->endpoint) : NULL;
	const struct sctp_vip_list *vips =
		ep ? sctp_vips_of(ep->service) : NULL;
	__u32 check, growth = 0, each, end;
	bool partial;

	if (!p || !c || !vips) /* the first two: verifier: null */
		return 0;
	each = is_mapped_ipv4(&c->saddr) ? SCTP_LISTED_IPV4 : SCTP_LISTED_IPV6;
	for (int i = 0; i < SCTP_VIPS; i++)
		growth += sctp_is_listed(&vips->vip[i], c) ? each : 0;
	end = p->l3 + p->length;
	partial = ctx_checksum_is_partial(ctx, p->l4 + SCTP_SUM_OFFSET);
	if (!growth || p->fragment || ctx_resize(ctx, end + growth) ||
	    bpf_skb_load_bytes(ctx, p->l4 + SCTP_SUM_OFFSET, &check,
			       sizeof(check)))
		return 0;
	p->listed = growth;
	check = sctp_chunk_grow(ctx, p, growth, check);
	NO_UNROLL
	for (int i = 0; i < SCTP_VIPS; i++) {
		if (!sctp_is_listed(&vips->vip[i], c))
			continue;
		check = sctp_list_one(ctx, &vips->vip[i], end, check);
		end += each;
	}
	if (!partial)
		ctx_store(ctx, p->l4 + SCTP_SUM_OFFSET, &check, sizeof(check));
	return packet_set_length(ctx, p, p->length + growth);
}
#endif

#endif
