/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * family.h - translates packets between a client and an endpoint of two IP
 * versions (NAT64, NAT46; RFC 7915).
 *
 * bpf_skb_change_proto() makes room and updates the kernel's metadata for the other
 * version: a GSO packet stays one, and a partial checksum stays partial. The IP header
 * is written again. Checksums are adjusted incrementally, as in nat.h. IPv4 addresses
 * are mapped in our maps; their 0xffff does not change a sum.
 *
 * Every write uses the helper that keeps skb->csum up to date: this path is
 * not built for speed.
 */
#ifndef LOXILB_FAMILY_H
#define LOXILB_FAMILY_H

#include "conntrack/conntrack.h"
#include "packet/checksum.h"
#include "packet/packet_sum.h"
#include "parse/parse.h"
#include "protocol/protocol.h"
#include "translate/mtu.h"
#include "translate/nat.h"

/* A packet of at most this size is smaller than what every IPv6 link takes, so
 * routers may fragment it (RFC 7915 section 5.1). */
#define FAMILY_FRAGMENTABLE 1260
#define IP_DONT_FRAGMENT bpf_htons(0x4000)
#define FAMILY_SUMS 52 /* of ICMP6_LARGEST bytes each: more than a packet has */

static __always_inline __u8 ipv6_traffic_class(const struct ipv6hdr *ip6)
{
	return ip6->priority << 4 | ip6->flow_lbl[0] >> 4;
}

/* Fills in an IPv6 header, but not the addresses, which the connection has.
 * length: of what follows the header. */
static __always_inline void family_ipv6(struct ipv6hdr *ip6,
					const struct iphdr *ip, __u32 length)
{
	__builtin_memset(ip6, 0, sizeof(*ip6));
	ip6->version = 6;
	ip6->priority = ip->tos >> 4;
	ip6->flow_lbl[0] = ip->tos << 4;
	ip6->payload_len = bpf_htons(length);
	ip6->nexthdr = family_protocol(ip->protocol);
	ip6->hop_limit = ip->ttl;
}

/* Fills in an IPv4 header, but not the addresses and the checksum. length: of the
 * whole packet; if it is too large, the field is 0, as in the kernel's packets that
 * are segmented later. */
static __always_inline void family_ipv4(struct iphdr *ip,
					const struct ipv6hdr *ip6,
					__u8 protocol, __u32 length)
{
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = 5;
	ip->tos = ipv6_traffic_class(ip6);
	ip->tot_len = length > 0xffff ? 0 : bpf_htons(length);
	ip->ttl = ip6->hop_limit;
	ip->protocol = family_protocol(protocol);
}

/* Converts a fragment's offset: in bytes, plus 1 iff more fragments follow. */
static __always_inline __be16 family_ipv4_offset(__u16 fragment)
{
	return bpf_htons(fragment >> 3) |
	       (fragment & FRAGMENT_MORE ? IP_MORE_FRAGMENTS : 0);
}

static __always_inline void family_fragment(struct fragment_header *f,
					    __u8 next, __u16 fragment, __u32 id)
{
	f->next = next;
	f->reserved = 0;
	f->offset = bpf_htons(fragment);
	f->id = id;
}

/* Returns the sum of the pseudo header, which ICMPv6 has and ICMP does not. */
static __noinline __u16 family_pseudo(const struct ip_addr *src,
				      const struct ip_addr *dst, __u32 length)
{
	return sum_fold(pseudo_sum(src, dst, IPPROTO_ICMPV6, length));
}

/* Converts the packet to the other IP version: replaces from bytes after the
 * link-layer header by to bytes. */
static __noinline bool family_resize(ctx_t *ctx, struct packet *p, __u32 from,
				     __u32 to)
{
	__be16 protocol = p->ipv6 ? bpf_htons(ETH_P_IP) : bpf_htons(ETH_P_IPV6);
	__s32 more = to - from;

	if (bpf_skb_change_proto(ctx, protocol, 0))
		return false;
	more += p->ipv6 ? FAMILY_GROWTH : -FAMILY_GROWTH;
	if (more && bpf_skb_adjust_room(ctx, more, BPF_ADJ_ROOM_MAC,
					BPF_F_ADJ_ROOM_FIXED_GSO))
		return false;
	return !p->l3 || !bpf_skb_store_bytes(ctx, p->l3 - sizeof(protocol),
					      &protocol, sizeof(protocol), 0);
}

struct family_walk {
	ctx_t *ctx;
	__u32 at;
	__u32 left;
	__u32 sum;
};

static long family_sum_part(__u32 i, struct family_walk *w)
{
	__u32 length = w->left < ICMP6_LARGEST ? w->left : ICMP6_LARGEST;

	if (!length)
		return 1;
	w->sum += packet_sum(w->ctx, w->at, length);
	w->at += length;
	w->left -= length;
	return 0;
}

/* Computes the checksum of a datagram without one, which IPv6 does not
 * allow. */
static __always_inline __u16 family_udp_sum(ctx_t *ctx, struct packet *p,
					    struct connection *c)
{
	struct family_walk w = { .ctx = ctx, .at = p->l4 };
	__be16 length = 0;

	if (bpf_skb_load_bytes(ctx,
			       p->l4 + __builtin_offsetof(struct udphdr, len),
			       &length, sizeof(length)))
		return 0;
	w.left = bpf_ntohs(length);
	bpf_loop(FAMILY_SUMS, family_sum_part, &w, 0);
	w.sum += length + bpf_htons(IPPROTO_UDP);
	w.sum = sum_fold(w.sum) +
		sum_fold(bpf_csum_diff(NULL, 0, (void *)&c->saddr, 32, 0));
	return ~sum_fold(w.sum);
}

/* Translates a header whose checksum includes a pseudo header, which only differs in
 * the addresses between both versions. */
static __always_inline enum verdict family_l4(ctx_t *ctx, struct packet *p,
					      struct connection *c)
{
	const struct protocol facts = protocol_of(p->tuple.protocol);
	__u32 at = p->l4 + facts.sum_offset;
	__be16 ports[2] = { c->sport, c->dport };
	bool partial = ctx_checksum_is_partial(ctx, at);
	__u16 old, sum;

	if (bpf_skb_load_bytes(ctx, at, &old, sizeof(old)) ||
	    bpf_skb_store_bytes(ctx, p->l4, ports, sizeof(ports),
				BPF_F_RECOMPUTE_CSUM))
		return drop(p, DROP_NOT_LINEAR);
	if (facts.sum_is_optional && !old) {
		if (p->fragment || ctx->gso_size)
			return drop(p, DROP_UDP_ZERO_CHECKSUM);
		sum = family_udp_sum(ctx, p, c);
	} else {
		sum = partial ? sum_replace_pseudo(old, c->address_sum) :
				sum_replace(old, c->tuple_sum);
	}
	if (facts.sum_is_optional)
		sum = sum_of_udp(sum);
	return bpf_skb_store_bytes(ctx, at, &sum, sizeof(sum),
				   BPF_F_RECOMPUTE_CSUM) ?
		       drop(p, DROP_NOT_LINEAR) :
		       VERDICT_CONTINUE;
}

/* Translates the header of a protocol with ports. A checksum without a pseudo header is
 * the same in both versions. */
static __always_inline enum verdict family_ports(ctx_t *ctx, struct packet *p,
						 struct connection *c)
{
	return protocol_of(p->tuple.protocol).sum_has_addresses ?
		       family_l4(ctx, p, c) :
		       protocol_translate(ctx, p, c);
}

/* Translates an echo: the type is another, and only ICMPv6 has a pseudo
 * header. */
static __noinline enum verdict family_echo(ctx_t *ctx, struct packet *p,
					   struct connection *c)
{
	__u32 length = p->length - (p->l4 - p->l3);
	struct echo_header old, new;
	__u32 sum;

	if (bpf_skb_load_bytes(ctx, p->l4, &old, sizeof(old)))
		return drop(p, DROP_NOT_LINEAR);
	new = old;
	if (p->ipv6) {
		new.type = p->echo_reply ? ECHO_REPLY : ECHO_REQUEST;
		sum = (__u16)~family_pseudo(&p->tuple.saddr, &p->tuple.daddr,
					    length);
	} else {
		new.type = p->echo_reply ? ECHO6_REPLY : ECHO6_REQUEST;
		sum = family_pseudo(&c->saddr, &c->daddr, length);
	}
	new.id = p->echo_reply ? c->dport : c->sport;
	sum = bpf_csum_diff((void *)&old, sizeof(old), (void *)&new,
			    sizeof(new), sum);
	new.check = sum_replace(old.check, sum_fold(sum));
	return bpf_skb_store_bytes(ctx, p->l4, &new, sizeof(new),
				   BPF_F_RECOMPUTE_CSUM) ?
		       drop(p, DROP_NOT_LINEAR) :
		       VERDICT_CONTINUE;
}

/* Writes an IPv6 header. IPv4 options are not translated (RFC 7915 section
 * 4.1). */
static __noinline enum verdict family_to_ipv6(ctx_t *ctx, struct packet *p,
					      struct connection *c)
{
	struct {
		struct ipv6hdr ip;
		struct fragment_header fragment;
	} h;
	__u32 more = p->fragment ? sizeof(h.fragment) : 0;
	__u32 from = p->l4 - p->l3, to = sizeof(h.ip) + more;
	struct iphdr ip;

	/* it would be a jumbogram */
	if (p->length - from + more > 0xffff)
		return drop(p, DROP_NOT_TRANSLATABLE);
	if (bpf_skb_load_bytes(ctx, p->l3, &ip, sizeof(ip)) ||
	    !family_resize(ctx, p, from, to))
		return drop(p, DROP_NOT_LINEAR);
	family_ipv6(&h.ip, &ip, p->length - from + more);
	h.ip.hop_limit--;
	__builtin_memcpy(&h.ip.saddr, &c->saddr, 32);
	if (more) {
		family_fragment(&h.fragment, h.ip.nexthdr, p->fragment,
				bpf_htonl(bpf_ntohs(p->fragment_id)));
		h.ip.nexthdr = IPPROTO_FRAGMENT;
		if (bpf_skb_store_bytes(ctx, p->l3 + sizeof(h.ip), &h.fragment,
					sizeof(h.fragment),
					BPF_F_RECOMPUTE_CSUM))
			return drop(p, DROP_NOT_LINEAR);
	}
	return bpf_skb_store_bytes(ctx, p->l3, &h.ip, sizeof(h.ip),
				   BPF_F_RECOMPUTE_CSUM) ?
		       drop(p, DROP_NOT_LINEAR) :
		       VERDICT_CONTINUE;
}

/* Writes an IPv4 header. IPv6 extension headers are not translated (section 5.1);
 * parsing has refused packets whose headers forbid that. A header after the fragment
 * header would leave a gap in the datagram. */
static __noinline enum verdict family_to_ipv4(ctx_t *ctx, struct packet *p,
					      struct connection *c)
{
	__u32 from = p->l4 - p->l3;
	struct ipv6hdr ip6;
	struct iphdr ip;

	if (p->fragment && from != sizeof(ip6) + sizeof(struct fragment_header))
		return drop(p, DROP_NOT_TRANSLATABLE);
	if (bpf_skb_load_bytes(ctx, p->l3, &ip6, sizeof(ip6)))
		return drop(p, DROP_NOT_LINEAR);
	family_ipv4(&ip, &ip6, p->tuple.protocol,
		    p->length - from + sizeof(ip));
	if (p->fragment) {
		ip.id = bpf_htons(bpf_ntohl(p->fragment_id));
		ip.frag_off = family_ipv4_offset(p->fragment);
	} else if (segment_length(ctx, p) - from + sizeof(ip) <=
		   FAMILY_FRAGMENTABLE) {
		ip.id = bpf_get_prandom_u32();
	} else {
		ip.frag_off = IP_DONT_FRAGMENT;
	}
	ip.ttl--;
	ip.saddr = c->saddr.word[3];
	ip.daddr = c->daddr.word[3];
	ip.check = ipv4_sum(&ip);
	if (!family_resize(ctx, p, from, sizeof(ip)) ||
	    bpf_skb_store_bytes(ctx, p->l3, &ip, sizeof(ip),
				BPF_F_RECOMPUTE_CSUM))
		return drop(p, DROP_NOT_LINEAR);
	return VERDICT_CONTINUE;
}

/* Checks the MTU again for a fragment to IPv6: it gets one more header than
 * next_hop_resolve() considered. */
static __always_inline enum verdict family_fits(struct packet *p)
{
	const __u32 more = sizeof(struct fragment_header);

	if (p->ipv6 || !p->fragment || p->length + more <= p->mtu)
		return VERDICT_CONTINUE;
	if (p->later_fragment)
		return drop(p, DROP_TOO_BIG);
	return drop_and_answer(p, DROP_TOO_BIG,
			       ANSWER_TOO_BIG | (p->mtu - more)
							<< ANSWER_MTU_SHIFT);
}

/* Translates a packet of a connection. Global (verifier: globals). */
__noinline enum verdict family_translate(ctx_t *ctx, struct packet *p,
					 struct connection *c)
{
	enum verdict v;

	if (!p || !c)
		return VERDICT_DROP;
	v = family_fits(p);
	if (v != VERDICT_CONTINUE)
		return v;
	if (protocol_of(p->tuple.protocol).has_ports) {
		if (!p->later_fragment)
			v = family_ports(ctx, p, c);
	} else {
		/* ICMPv6's checksum includes the length of the whole datagram, which
		 * a fragment does not have */
		v = p->fragment ? drop(p, DROP_NOT_TRANSLATABLE) :
				  family_echo(ctx, p, c);
	}
	if (v != VERDICT_CONTINUE)
		return v;
	return p->ipv6 ? family_to_ipv4(ctx, p, c) : family_to_ipv6(ctx, p, c);
}

#endif
