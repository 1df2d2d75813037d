/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * source_port.h - gives users' packets to a balanced address a source port of their
 * tunnel, so that the packet path sees a connection for each tunnel (docs/adr/0117-n3.md).
 *
 * The packets of a base station all have the same addresses and ports, and a receiver
 * ignores the source port: its own messages to the base station are requests, which go
 * to GTP-U's port (TS 29.281 section 4.4.2).
 */
#ifndef LOXILB_GTP_SOURCE_PORT_H
#define LOXILB_GTP_SOURCE_PORT_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_endian.h>
#include "gtp/header.h"
#include "gtp/port.h"
#include "packet/address.h"
#include "packet/ctx.h"
#include "parse/parse.h"

#define GTP_SOURCE_BITS 14
#define GTP_FACTOR \
	0x9e3779b1 /* spreads consecutive TEIDs, and TEIDs with equal low bits */
#define IP6_FRAGMENT 44

/* VIPs of services with ALGORITHM_N3. Written by user. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct ip_addr);
	__type(value, __u32);
} gtp_vips SEC(".maps");

struct gtp_ip6_fragment {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* in units of eight bytes, and flags */
	__be32 id;
};

/* Returns the offset of a UDP header, also of a first fragment; 0: there is none. */
static __always_inline __u32 gtp_udp(ctx_t *ctx, __u32 l3, struct ip_addr *to)
{
	__be16 type = ctx_ethertype(ctx, l3);
	struct gtp_ip6_fragment *f;
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__u8 next;

	if (type == bpf_htons(ETH_P_IP)) {
		ip = ctx_header(ctx, l3, sizeof(*ip));
		if (!ip || ip->version != 4 || ip->ihl < sizeof(*ip) / 4 ||
		    ip->protocol != IPPROTO_UDP ||
		    ip->frag_off & IP_OFFSET_MASK)
			return 0;
		map_ipv4(to, ip->daddr);
		return l3 + ip->ihl * 4;
	}
	if (type != bpf_htons(ETH_P_IPV6))
		return 0;
	ip6 = ctx_header(ctx, l3, sizeof(*ip6));
	if (!ip6 || ip6->version != 6)
		return 0;
	__builtin_memcpy(to, &ip6->daddr, 16);
	next = ip6->nexthdr;
	l3 += sizeof(*ip6);
	if (next == IP6_FRAGMENT) {
		f = ctx_header(ctx, l3, sizeof(*f));
		if (!f || f->offset & bpf_htons(0xfff8))
			return 0;
		next = f->next;
		l3 += sizeof(*f);
	}
	return next == IPPROTO_UDP ? l3 : 0;
}

/* Returns the source port of a tunnel. */
static __always_inline __be16 gtp_source_port(__be32 teid)
{
	__u32 hash = bpf_ntohl(teid) * GTP_FACTOR;

	return bpf_htons(GTP_FIRST_SOURCE | hash >> (32 - GTP_SOURCE_BITS));
}

/* Returns 1 if the packet belongs to a tunnel to a balanced address, after setting the
 * tunnel's source port. A negative number means that this failed. */
static __always_inline int gtp_set_source(ctx_t *ctx, __u32 l3)
{
	__be16 old, new, check;
	struct udphdr *udp;
	struct ip_addr to;
	struct gtp *gtp;
	__u32 at;

	at = gtp_udp(ctx, l3, &to);
	if (!at || !bpf_map_lookup_elem(&gtp_vips, &to))
		return 0;
	udp = ctx_header(ctx, at, sizeof(struct udphdr) + sizeof(struct gtp));
	if (!udp || udp->dest != bpf_htons(GTP_PORT))
		return 0;
	gtp = (struct gtp *)(udp + 1);
	if ((gtp->flags & GTP_VERSION_MASK) != GTP_VERSION ||
	    gtp->type < GTP_END_MARKER)
		return 0;
	new = gtp_source_port(gtp->teid);
	old = udp->source;
	check = udp->check;
	return gtp_write_source(ctx, at, check, old, new) ? 1 : -1;
}

#endif
