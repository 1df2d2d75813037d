/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * parse.h - fills in struct packet from the bytes: Ethernet, IPv4, and IPv6 with its
 * extension headers. The protocol parses its own header (protocol.h).
 *
 * Each function checks its own bounds. PASS: the packet cannot be ours (no IP, another
 * protocol, a header that the kernel will refuse anyway). If it might be ours but must
 * not be forwarded, packet.fault has the reason. The stage that knows whether it is
 * ours acts on it; other packets with a fault are left to the kernel.
 */
#ifndef LOXILB_PARSE_H
#define LOXILB_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include "packet/address.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "protocol/protocol.h"

/* A chain of extension headers is walked in runs of a few headers each, so that the verifier
 * follows a run once (verifier: globals and 7). The runs end where the smallest headers reach the
 * largest offset. */
#define EXTENSION_RUN 16
#define EXTENSION_RUNS ((CTX_MAX_OFFSET + 1) / (8 * EXTENSION_RUN))

/* The layer 4 header starts at this offset at most, so that all of it is below
 * CTX_MAX_OFFSET. */
#define L4_MAX_OFFSET (CTX_MAX_OFFSET - 255)

#define IP_OFFSET_MASK bpf_htons(0x1fff)
#define IP_MORE_FRAGMENTS bpf_htons(0x2000)

#define FRAGMENT_MORE 1 /* in packet.fragment */

struct extension_header {
	__u8 next;
	__u8 length; /* in 8 octets, the first 8 not counted */
	__u8 type; /* routing: its type */
	__u8 segments_left;
	__be16 reserved[2];
};

struct fragment_header {
	__u8 next;
	__u8 reserved;
	__be16 offset; /* 13 bits offset, 2 reserved, 1 more-fragments */
	__be32 id;
};

/* l4_length: from the layer 4 header to the end of the IP packet. */
static __always_inline enum verdict parse_l4(ctx_t *ctx, struct packet *p,
					     __u32 l4_length)
{
	if (unlikely(p->ttl <= 1 && !p->fault))
		p->fault = DROP_TTL_EXPIRED;
	if (unlikely(p->later_fragment)) {
		packet_clear_ports(p);
		return VERDICT_UNCOMMON;
	}
	return protocol_parse(ctx, p, l4_length);
}

static __always_inline enum verdict parse_ipv4(ctx_t *ctx, struct packet *p,
					       const __u16 l3)
{
	struct iphdr *ip = ctx_header(ctx, l3, sizeof(*ip));
	__u32 have = ctx_length(ctx) - l3;
	__u32 header;

	if (!ip || ip->version != 4 || ip->ihl < 5)
		return VERDICT_PASS;
	header = ip->ihl * 4;
	p->length = bpf_ntohs(ip->tot_len);
	if (unlikely(!p->length && ctx_segment(ctx))) /* BIG TCP */
		p->length = have;
	if (unlikely(p->length > have || p->length < header))
		return VERDICT_PASS;
	if (unlikely(ip->frag_off & (IP_OFFSET_MASK | IP_MORE_FRAGMENTS))) {
		p->fault = DROP_FRAGMENT;
		p->later_fragment = !!(ip->frag_off & IP_OFFSET_MASK);
		p->fragment = (bpf_ntohs(ip->frag_off & IP_OFFSET_MASK) << 3) |
			      !!(ip->frag_off & IP_MORE_FRAGMENTS);
		p->fragment_id = ip->id;
	}
	p->l4 = l3 + header;
	p->ttl = ip->ttl;
	packet_set_protocol(p, ip->protocol);
	map_ipv4(&p->tuple.saddr, ip->saddr);
	map_ipv4(&p->tuple.daddr, ip->daddr);
	return parse_l4(ctx, p, p->length - header);
}

/* Reports whether a header of this type precedes another one that the parser reads.
 * The authentication header ends the chain: what it protects must not be translated,
 * and its receiver drops it unless both have a key. Mobility, HIP and Shim6 headers
 * have no next header that Linux reads. */
static __always_inline bool is_extension(__u8 type)
{
	return type == IPPROTO_HOPOPTS || type == IPPROTO_ROUTING ||
	       type == IPPROTO_DSTOPTS || type == IPPROTO_FRAGMENT;
}

/* Parses a fragment header. A fragment within a fragment is not parsed: only its
 * receiver can reassemble the outer one. */
static __always_inline enum verdict
parse_fragment_header(struct packet *p, const struct fragment_header *f)
{
	if (p->fragment)
		return VERDICT_PASS;
	p->fragment = bpf_ntohs(f->offset) & 0xfff9;
	p->fragment_id = f->id;
	p->later_fragment = !!(f->offset & bpf_htons(0xfff8));
	if (p->fragment && !p->fault)
		p->fault = DROP_FRAGMENT;
	p->tuple.protocol = f->next;
	p->l4 += sizeof(*f);
	return p->later_fragment ? VERDICT_CONTINUE : VERDICT_AGAIN;
}

/* Parses the header of type p->tuple.protocol at p->l4. AGAIN: it is an extension
 * header, and both members now describe the next one. CONTINUE: the chain ends here.
 * PASS: it cannot be parsed. */
static __always_inline enum verdict parse_extension(ctx_t *ctx,
						    struct packet *p)
{
	__u8 type = p->tuple.protocol;
	struct extension_header *h;
	__u32 off = p->l4;

	if (off > L4_MAX_OFFSET)
		return VERDICT_PASS;
	if (!is_extension(type))
		return VERDICT_CONTINUE;
	asm volatile("" : "+r"(off)); /* verifier: bounds */
	h = ctx_header(ctx, off, sizeof(*h));
	if (!h)
		return VERDICT_PASS;
	if (type == IPPROTO_FRAGMENT)
		return parse_fragment_header(p, (void *)h);
	if (type == IPPROTO_ROUTING && (!h->type || h->segments_left))
		p->fault = DROP_ROUTING_HEADER;
	p->tuple.protocol = h->next;
	p->l4 = off + (h->length + 1) * 8;
	return VERDICT_AGAIN;
}

/* Reads some headers of a chain, as parse_extension() reads one. Global (verifier: globals). */
__noinline enum verdict parse_extension_run(ctx_t *ctx, struct packet *p)
{
	enum verdict v = VERDICT_PASS;

	if (!p) /* verifier: null */
		return VERDICT_PASS;
	NO_UNROLL
	for (int i = 0; i < EXTENSION_RUN; i++) {
		v = parse_extension(ctx, p);
		if (v != VERDICT_AGAIN)
			break;
	}
	return v;
}

/* Follows the chain of extension headers from offset p->l4 to its end: CONTINUE, and
 * p->l4 and p->tuple.protocol describe the last header. PASS: the chain has no
 * readable end. All of p is set before. Global (verifier: globals), since hardly any
 * packet has a chain. */
__noinline enum verdict parse_extensions(ctx_t *ctx, struct packet *p)
{
	enum verdict v = VERDICT_PASS;

	if (!p) /* verifier: null */
		return VERDICT_PASS;
	NO_UNROLL
	for (int i = 0; i < EXTENSION_RUNS; i++) {
		v = parse_extension_run(ctx, p);
		if (v != VERDICT_AGAIN)
			break;
	}
	return v == VERDICT_CONTINUE ? v : VERDICT_PASS;
}

/* Follows the chain of headers. If it has no end, or ends beyond the packet, the packet
 * is left to the kernel, unless there are firewall rules (firewall.h), which it might
 * evade. */
static __always_inline enum verdict parse_chain(ctx_t *ctx, struct packet *p,
						const __u16 l3)
{
	packet_clear_ports(p); /* a global function takes no unset memory */
	if (parse_extensions(ctx, p) == VERDICT_CONTINUE &&
	    p->l4 - l3 <= p->length)
		return VERDICT_CONTINUE;
	p->pass = PASS_EXTENSION_CHAIN;
	return VERDICT_PASS;
}

static __always_inline enum verdict parse_ipv6(ctx_t *ctx, struct packet *p,
					       const __u16 l3)
{
	struct ipv6hdr *ip = ctx_header(ctx, l3, sizeof(*ip));
	__u32 have = ctx_length(ctx) - l3;
	enum verdict v;

	if (!ip || ip->version != 6)
		return VERDICT_PASS;
	p->length = bpf_ntohs(ip->payload_len) + sizeof(*ip);
	/* BIG TCP: a jumbogram (RFC 2675) */
	if (unlikely(!ip->payload_len && ctx_segment(ctx)))
		p->length = have;
	if (unlikely(p->length > have))
		return VERDICT_PASS;
	p->ipv6 = 1;
	p->l4 = l3 + sizeof(*ip);
	p->ttl = ip->hop_limit;
	packet_set_protocol(p, ip->nexthdr);
	__builtin_memcpy(&p->tuple.saddr, &ip->saddr, sizeof(struct ip_addr));
	__builtin_memcpy(&p->tuple.daddr, &ip->daddr, sizeof(struct ip_addr));
	if (unlikely(is_mapped_ipv4(&p->tuple.daddr))) {
		packet_clear_ports(p);
		return VERDICT_OTHER; /* its tuple would equal an IPv4 packet's */
	}
	if (unlikely(ip->nexthdr != IPPROTO_TCP &&
		     ip->nexthdr != IPPROTO_UDP)) {
		v = parse_chain(ctx, p, l3);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	return parse_l4(ctx, p, p->length - (p->l4 - l3));
}

/* Parses a packet whose IP header is at offset l3. p->l3 has the same value, but the
 * constant saves loads. */
static __always_inline enum verdict parse_ip(ctx_t *ctx, struct packet *p,
					     __u16 l3)
{
	switch (ctx_ethertype(ctx, l3)) {
	case bpf_htons(ETH_P_IP):
		return parse_ipv4(ctx, p, l3);
	case bpf_htons(ETH_P_IPV6):
		return parse_ipv6(ctx, p, l3);
	default:
		return VERDICT_PASS;
	}
}

/* Parses a packet that has arrived. */
static __always_inline enum verdict parse(ctx_t *ctx, struct packet *p,
					  __u16 l3)
{
	if (!ctx_is_for_us(ctx) &&
	    !ctx_take_priority_tag(ctx, &p->priority_tag))
		return VERDICT_PASS;
	return parse_ip(ctx, p, l3);
}

#endif
