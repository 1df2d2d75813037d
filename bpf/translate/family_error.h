/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * family_error.h - translates ICMP errors between a client and an endpoint of two IP
 * versions (RFC 7915 sections 4.2 to 4.5 and 5.2 to 5.5): type and code change, and the
 * quoted packet is restored as its sender sent it, in the sender's version.
 *
 * All bytes from the IP header up to the quoted ports are rewritten in one piece, and
 * the checksum changes by the difference of old and new bytes.
 */
#ifndef LOXILB_FAMILY_ERROR_H
#define LOXILB_FAMILY_ERROR_H

#include "protocol/protocol.h"
#include "translate/family.h"
#include "translate/icmp.h"

#define ICMP_PROTOCOL_UNREACH 2
#define ICMP_ADMIN_NET 9
#define ICMP_ADMIN_HOST 10
#define ICMP_ADMIN 13
#define ICMP_PRECEDENCE 14
#define ICMP_PRECEDENCE_CUTOFF 15
#define ICMPV6_ADMIN 1
#define ICMPV6_NEXT_HEADER 1 /* of a parameter problem */
#define NO_COUNTERPART 0xff

/* Returns the MTU for an error without one, from a router that predates RFC
 * 1191: the next plateau (section 7 there) below the length of the packet. */
static __always_inline __u32 mtu_plateau(__u32 length)
{
	const __u32 plateaus[] = { 32000, 17914, 8166, 4352, 2002, 1492 };

	for (int i = 0; i < 6; i++) {
		if (plateaus[i] < length)
			return plateaus[i];
	}
	return ICMP6_MIN_MTU;
}

/* Returns the offset in an IPv6 header of the field at this offset of an IPv4 header. */
static __always_inline __u32 pointer_to_ipv6(__u32 at)
{
	if (at < 2)
		return at;
	if (at < 4)
		return 4; /* length */
	if (at == 8)
		return 7; /* hop limit */
	if (at == 9)
		return 6; /* next header */
	if (at >= 12 && at < 20)
		return at < 16 ? 8 : 24; /* addresses */
	return NO_COUNTERPART;
}

/* Translates from IPv6 to IPv4. */
static __always_inline __u32 pointer_to_ipv4(__u32 at)
{
	if (at < 2)
		return at;
	if (at == 4 || at == 5)
		return 2;
	if (at == 6)
		return 9;
	if (at == 7)
		return 8;
	if (at >= 8 && at < 40)
		return at < 24 ? 12 : 16;
	return NO_COUNTERPART;
}

/* Fills in the header of the other version; to is zero on entry. Returns false if the
 * other version has no such error. */
static __noinline bool error_unreach_ipv6(const struct icmp_header *from,
					  struct icmp_header *to, __u32 length)
{
	__u32 mtu = bpf_ntohl(from->info) & 0xffff;

	to->type = ICMPV6_DEST_UNREACH;
	switch (from->code) {
	case ICMP_FRAG_NEEDED:
		to->type = ICMPV6_PKT_TOOBIG;
		mtu = (mtu ? mtu : mtu_plateau(length)) + FAMILY_GROWTH;
		to->info = bpf_htonl(mtu < ICMP6_MIN_MTU ? ICMP6_MIN_MTU : mtu);
		return true;
	case ICMP_PROTOCOL_UNREACH:
		to->type = ICMPV6_PARAMPROB;
		to->code = ICMPV6_NEXT_HEADER;
		to->info = bpf_htonl(6);
		return true;
	case ICMP_PORT_UNREACH:
		to->code = ICMPV6_PORT_UNREACH;
		return true;
	case ICMP_ADMIN_NET:
	case ICMP_ADMIN_HOST:
	case ICMP_ADMIN:
	case ICMP_PRECEDENCE_CUTOFF:
		to->code = ICMPV6_ADMIN;
		return true;
	}
	return from->code < ICMP_PRECEDENCE; /* other codes: no route */
}

static __always_inline bool error_to_ipv6(const struct icmp_header *from,
					  struct icmp_header *to, __u32 length)
{
	__u32 at;

	if (from->type == ICMP_DEST_UNREACH)
		return error_unreach_ipv6(from, to, length);
	if (from->type == ICMP_TIME_EXCEEDED) {
		to->type = ICMPV6_TIME_EXCEED;
		to->code = from->code;
		return true;
	}
	at = pointer_to_ipv6(bpf_ntohl(from->info) >> 24);
	to->type = ICMPV6_PARAMPROB;
	to->info = bpf_htonl(at);
	return at != NO_COUNTERPART && (!from->code || from->code == 2);
}

static __always_inline bool error_to_ipv4(const struct icmp_header *from,
					  struct icmp_header *to)
{
	__u32 info = bpf_ntohl(from->info);

	to->type = ICMP_DEST_UNREACH;
	to->code = ICMP_HOST_UNREACH;
	switch (from->type) {
	case ICMPV6_PKT_TOOBIG:
		to->code = ICMP_FRAG_NEEDED;
		info -= FAMILY_GROWTH;
		to->info = bpf_htonl(info < 0xffff ? info : 0xffff);
		return true;
	case ICMPV6_TIME_EXCEED:
		to->type = ICMP_TIME_EXCEEDED;
		to->code = from->code;
		return true;
	case ICMPV6_PARAMPROB:
		if (from->code == ICMPV6_NEXT_HEADER) {
			to->code = ICMP_PROTOCOL_UNREACH;
			return true;
		}
		info = pointer_to_ipv4(info);
		to->type = ICMP_PARAMETERPROB;
		to->code = 0;
		to->info = bpf_htonl(info << 24);
		return info != NO_COUNTERPART && !from->code;
	}
	if (from->code == ICMPV6_ADMIN)
		to->code = ICMP_ADMIN_HOST;
	else if (from->code == ICMPV6_PORT_UNREACH)
		to->code = ICMP_PORT_UNREACH;
	return from->code <= ICMPV6_PORT_UNREACH;
}

/* The headers to be written, in the memory that packet_sum() uses too. */
struct error_ipv6 {
	struct ipv6hdr ip;
	struct icmp_header icmp;
	struct ipv6hdr quoted;
	struct fragment_header fragment; /* iff the quoted packet was one */
	struct iphdr received; /* the error's own header; not written */
};

struct error_ipv4 {
	struct iphdr ip;
	struct icmp_header icmp;
	struct iphdr quoted;
	struct ipv6hdr received; /* as above */
};

#define ERROR_IPV6 __builtin_offsetof(struct error_ipv6, fragment)
#define ERROR_IPV4 __builtin_offsetof(struct error_ipv4, received)

struct error {
	struct quote quote;
	struct icmp_header icmp; /* of the other version */
	__u32 sum; /* sum of all bytes that will be replaced */
};

static __always_inline void *error_headers(void)
{
	__u32 use = SCRATCH_QUOTE;

	return bpf_map_lookup_elem(&packet_scratches, &use);
}

/* Restores a quoted echo as its sender sent it. Returns the change of the quote's sum.
 */
static __noinline __u16 error_echo(ctx_t *ctx, const struct quote *q,
				   const struct connection *c)
{
	struct echo_header old, new;
	__u32 length, sum;

	if (bpf_skb_load_bytes(ctx, q->p.l4, &old, sizeof(old)))
		return 0;
	new = old;
	new.id = q->p.echo_reply ? c->sport : c->dport;
	if (q->p.ipv6) {
		new.type = q->p.echo_reply ? ECHO_REPLY : ECHO_REQUEST;
		length = bpf_ntohs(q->header.ip6.payload_len);
		sum = (__u16)~family_pseudo(&q->p.tuple.saddr,
					    &q->p.tuple.daddr, length);
	} else {
		new.type = q->p.echo_reply ? ECHO6_REPLY : ECHO6_REQUEST;
		length = bpf_ntohs(q->header.ip.tot_len) - q->header.ip.ihl * 4;
		sum = family_pseudo(&c->saddr, &c->daddr, length);
	}
	sum = bpf_csum_diff((void *)&old, sizeof(old), (void *)&new,
			    sizeof(new), sum);
	new.check = sum_replace(old.check, sum_fold(sum));
	if (bpf_skb_store_bytes(ctx, q->p.l4, &new, sizeof(new),
				BPF_F_RECOMPUTE_CSUM))
		return 0;
	return sum_fold(bpf_csum_diff((void *)&old, sizeof(old), (void *)&new,
				      sizeof(new), 0));
}

/* Restores a quoted TCP or UDP packet. */
static __noinline __u16 error_ports(ctx_t *ctx, const struct quote *q,
				    const struct connection *c)
{
	__be16 ports[2] = { c->dport, c->sport };
	__u32 sum = quote_fix_sum(ctx, q, c);

	/* for the store, which does not change skb->csum */
	ctx_sum_update(ctx, sum);
	sum += connection_ports_sum(c);
	bpf_skb_store_bytes(ctx, q->p.l4, ports, sizeof(ports),
			    BPF_F_RECOMPUTE_CSUM);
	return sum_fold(sum);
}

/* Restores the quoted packet as its sender sent it, and sums up the bytes that will be
 * replaced. */
static __noinline bool error_restore_quote(ctx_t *ctx, struct packet *p,
					   struct connection *c,
					   struct error *e)
{
	__u32 length = e->quote.p.l4 - p->l4;

	if (length > ICMP6_LARGEST)
		return false;
	e->sum = packet_sum(ctx, p->l4, length);
	e->sum += (__u16) ~(quote_is_echo(&e->quote) ?
				    error_echo(ctx, &e->quote, c) :
				    error_ports(ctx, &e->quote, c));
	if (p->ipv6)
		e->sum += family_pseudo(&p->tuple.saddr, &p->tuple.daddr,
					p->length - (p->l4 - p->l3));
	return true;
}

/* Writes the checksum of the new headers; headers is their sum. */
static __always_inline void error_sum(struct icmp_header *icmp,
				      const struct error *e, __u32 headers)
{
	icmp->checksum = sum_fold(e->sum + (__u16)~sum_fold(headers));
}

static __noinline bool error_write_ipv6(ctx_t *ctx, struct packet *p,
					struct connection *c, struct error *e)
{
	__u32 from = e->quote.p.l4 - p->l3, more = 0, length;
	const struct iphdr *quoted = &e->quote.header.ip;
	struct error_ipv6 *h = error_headers();

	if (!h ||
	    bpf_skb_load_bytes(ctx, p->l3, &h->received, sizeof(h->received)))
		return false;
	__builtin_memset(&h->fragment, 0, sizeof(h->fragment));
	if (quoted->frag_off & IP_MORE_FRAGMENTS) {
		more = sizeof(h->fragment);
		family_fragment(&h->fragment, quoted->protocol, FRAGMENT_MORE,
				bpf_htonl(bpf_ntohs(quoted->id)));
	}
	length = p->length - from + ERROR_IPV6 + more - sizeof(h->ip);
	family_ipv6(&h->ip, &h->received, length);
	h->ip.hop_limit--;
	__builtin_memcpy(&h->ip.saddr, &c->saddr, 32);
	h->icmp = e->icmp;
	family_ipv6(&h->quoted, quoted,
		    bpf_ntohs(quoted->tot_len) - quoted->ihl * 4 + more);
	if (more)
		h->quoted.nexthdr = IPPROTO_FRAGMENT;
	__builtin_memcpy(&h->quoted.saddr, &c->daddr, 16);
	__builtin_memcpy(&h->quoted.daddr, &c->saddr, 16);
	e->sum += (__u16)~family_pseudo(&c->saddr, &c->daddr, length);
	error_sum(&h->icmp, e,
		  bpf_csum_diff(NULL, 0, (void *)&h->icmp,
				sizeof(h->icmp) + sizeof(h->quoted) +
					sizeof(h->fragment),
				0));
	return family_resize(ctx, p, from, ERROR_IPV6 + more) &&
	       !bpf_skb_store_bytes(ctx, p->l3, h, ERROR_IPV6,
				    BPF_F_RECOMPUTE_CSUM) &&
	       (!more || !bpf_skb_store_bytes(ctx, p->l3 + ERROR_IPV6,
					      &h->fragment, sizeof(h->fragment),
					      BPF_F_RECOMPUTE_CSUM));
}

static __noinline bool error_write_ipv4(ctx_t *ctx, struct packet *p,
					struct connection *c, struct error *e)
{
	const struct ipv6hdr *quoted = &e->quote.header.ip6;
	__u32 from = e->quote.p.l4 - p->l3, length;
	struct error_ipv4 *h = error_headers();

	if (!h ||
	    bpf_skb_load_bytes(ctx, p->l3, &h->received, sizeof(h->received)))
		return false;
	family_ipv4(&h->ip, &h->received, IPPROTO_ICMPV6,
		    p->length - from + ERROR_IPV4);
	h->ip.ttl--;
	h->ip.id = bpf_get_prandom_u32();
	h->ip.saddr = c->saddr.word[3];
	h->ip.daddr = c->daddr.word[3];
	h->ip.check = ipv4_sum(&h->ip);
	h->icmp = e->icmp;
	length = bpf_ntohs(quoted->payload_len) + sizeof(*quoted) -
		 (e->quote.p.l4 - e->quote.p.l3) + sizeof(h->quoted);
	family_ipv4(&h->quoted, quoted, e->quote.p.tuple.protocol, length);
	if (e->quote.p.fragment) {
		h->quoted.id = bpf_htons(bpf_ntohl(e->quote.p.fragment_id));
		h->quoted.frag_off = family_ipv4_offset(e->quote.p.fragment);
	} else if (length > FAMILY_FRAGMENTABLE) {
		h->quoted.frag_off = IP_DONT_FRAGMENT;
	}
	h->quoted.saddr = c->daddr.word[3];
	h->quoted.daddr = c->saddr.word[3];
	h->quoted.check = ipv4_sum(&h->quoted);
	error_sum(&h->icmp, e,
		  bpf_csum_diff(NULL, 0, (void *)&h->icmp,
				sizeof(h->icmp) + sizeof(h->quoted), 0));
	return family_resize(ctx, p, from, ERROR_IPV4) &&
	       !bpf_skb_store_bytes(ctx, p->l3, h, ERROR_IPV4,
				    BPF_F_RECOMPUTE_CSUM);
}

/* Translates an ICMP error about a packet of a connection; c is the entry of
 * replies to that packet. The error seems to come from the packet's
 * destination, since its real source has no address in the other version.
 * Global (verifier: globals). */
__noinline enum verdict family_error(ctx_t *ctx, struct packet *p,
				     struct connection *c)
{
	struct error e = {};
	struct icmp_header icmp;
	bool known;

	if (!p || !c)
		return VERDICT_DROP;
	e.quote.p.ipv6 = p->ipv6;
	quote_place(&e.quote, p);
	if (bpf_skb_load_bytes(ctx, p->l4, &icmp, sizeof(icmp)) ||
	    !quote_read(ctx, &e.quote))
		return drop(p, DROP_NOT_LINEAR);
	known = p->ipv6 ? error_to_ipv4(&icmp, &e.icmp) :
			  error_to_ipv6(&icmp, &e.icmp,
					bpf_ntohs(e.quote.header.ip.tot_len));
	if (!known)
		return drop(p, DROP_NOT_TRANSLATABLE);
	if (!error_restore_quote(ctx, p, c, &e) ||
	    !(p->ipv6 ? error_write_ipv4(ctx, p, c, &e) :
			error_write_ipv6(ctx, p, c, &e)))
		return drop(p, DROP_NOT_LINEAR);
	return VERDICT_CONTINUE;
}

#endif
