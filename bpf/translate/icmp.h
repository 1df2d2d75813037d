/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * icmp.h - translates ICMP errors about packets of a connection (RFC 792, RFC 4443, RFC
 * 5508). An error quotes a packet as it was after translation, and is addressed to that
 * packet's source. Both are translated back, and the error goes to the packet's real
 * sender.
 *
 * The quoted packet's tuple, reversed, is the key of the other direction's entry, and
 * that entry has exactly the translation that the quote needs.
 *
 * If the translation of that direction changes the source, the error gets the same
 * source: it comes from the endpoint's side, and the receiver knows only the VIP.
 */
#ifndef LOXILB_ICMP_H
#define LOXILB_ICMP_H

#include "conntrack/conntrack.h"
#include "conntrack/direct.h"
#include "conntrack/expiry.h"
#include "filter/foreign.h"
#include "gtp/port.h"
#include "packet/checksum.h"
#include "packet/icmp_types.h"
#include "parse/parse.h"
#include "proxy/quote.h"
#include "service/service.h"
#include "tcp/handshake.h"

#define ICMP_MIN_MTU 68 /* RFC 791 */
#define ICMP6_MIN_MTU 1280 /* RFC 8200 section 5 */

/* Reports whether the error reports an MTU that no path has. A router that predates
 * RFC 1191 reports 0. */
static __always_inline bool icmp_mtu_is_invalid(const struct packet *p,
						const struct icmp_header *icmp)
{
	__u32 mtu = bpf_ntohl(icmp->info);

	if (p->ipv6)
		return icmp->type == ICMPV6_PKT_TOOBIG && mtu < ICMP6_MIN_MTU;
	mtu &= 0xffff;
	return icmp->type == ICMP_DEST_UNREACH &&
	       icmp->code == ICMP_FRAG_NEEDED && mtu && mtu < ICMP_MIN_MTU;
}

/* The part of a packet that an error quotes. It is a copy: the verifier would follow
 * two paths at each use of a pointer into the packet. */
struct quote {
	struct packet
		p; /* its tuple is the tuple of replies to the quoted packet */
	union {
		struct iphdr ip;
		struct ipv6hdr ip6;
	} header;
	__be16 ports[2];
};

_Static_assert(sizeof(struct quote) <= sizeof(struct packet_scratch),
	       "there is room for it");

/* Sets where the quote begins, and its length, without the frame's padding. */
static __always_inline void quote_place(struct quote *q, const struct packet *p)
{
	q->p.l3 = p->l4 + sizeof(struct icmp_header);
	q->p.length = p->l3 + p->length - q->p.l3;
}

/* Reports whether the quote has all bytes before an offset. */
static __always_inline bool quote_reaches(const struct quote *q, __u32 end)
{
	return end <= q->p.l3 + q->p.length;
}

/* Returns this CPU's quote, not parsed yet. */
static __always_inline struct quote *quote_get(const struct packet *p)
{
	__u32 use = SCRATCH_QUOTED;
	struct quote *q = bpf_map_lookup_elem(&packet_scratches, &use);

	if (!q)
		return NULL;
	__builtin_memset(q, 0, sizeof(*q));
	q->p.ipv6 = p->ipv6;
	q->p.now = p->now;
	quote_place(q, p);
	return q;
}

/* Reads the quoted packet's IP header. */
static __always_inline bool quote_ip(ctx_t *ctx, struct quote *q)
{
	struct iphdr *ip = &q->header.ip;
	struct ipv6hdr *ip6 = &q->header.ip6;

	if (!q->p.ipv6) {
		if (bpf_skb_load_bytes(ctx, q->p.l3, ip, sizeof(*ip)) ||
		    ip->version != 4 || ip->ihl < 5 ||
		    ip->frag_off & IP_OFFSET_MASK)
			return false;
		q->p.l4 = q->p.l3 + ip->ihl * 4;
		q->p.tuple.protocol = ip->protocol;
		map_ipv4(&q->p.tuple.saddr, ip->daddr);
		map_ipv4(&q->p.tuple.daddr, ip->saddr);
		return true;
	}
	if (bpf_skb_load_bytes(ctx, q->p.l3, ip6, sizeof(*ip6)) ||
	    ip6->version != 6)
		return false;
	q->p.l4 = q->p.l3 + sizeof(*ip6);
	q->p.tuple.protocol = ip6->nexthdr;
	__builtin_memcpy(&q->p.tuple.saddr, &ip6->daddr,
			 sizeof(struct ip_addr));
	__builtin_memcpy(&q->p.tuple.daddr, &ip6->saddr,
			 sizeof(struct ip_addr));
	return parse_extensions(ctx, &q->p) == VERDICT_CONTINUE &&
	       !q->p.later_fragment;
}

/* Reads the identifier of a quoted echo, which stands for the port of the requesting
 * side. Returns false if the quote is an ICMP error. */
static __always_inline bool quote_echo(ctx_t *ctx, struct quote *q)
{
	struct echo_header echo;

	if (bpf_skb_load_bytes(ctx, q->p.l4, &echo, sizeof(echo)))
		return false;
	if (echo.type == (q->p.ipv6 ? ECHO6_REQUEST : ECHO_REQUEST)) {
		q->p.tuple.dport = echo.id;
		return true;
	}
	q->p.tuple.sport = echo.id;
	q->p.echo_reply = 1;
	return echo.type == (q->p.ipv6 ? ECHO6_REPLY : ECHO_REPLY);
}

static __always_inline bool quote_is_echo(const struct quote *q)
{
	return q->p.tuple.protocol == icmp_protocol(q->p.ipv6);
}

/* RFC 792 promises this many bytes after the quoted IP header. */
#define QUOTE_MIN 8

/* Reads the quoted packet's headers. Global (verifier: globals). */
__noinline bool quote_read(ctx_t *ctx, struct quote *q)
{
	if (!q || !quote_ip(ctx, q))
		return false;
	if (quote_is_echo(q))
		return quote_echo(ctx, q);
	if (!protocol_of(q->p.tuple.protocol).has_ports)
		return false;
	if (bpf_skb_load_bytes(ctx, q->p.l4, q->ports, sizeof(q->ports)) ||
	    ctx_length(ctx) < q->p.l4 + QUOTE_MIN)
		return false;
	q->p.tuple.sport = q->ports[1];
	q->p.tuple.dport = q->ports[0];
	return true;
}

/* Corrects the quoted packet's checksum, if it is part of the quote. Returns by how
 * much it changed. */
static __always_inline __u16 quote_fix_sum(ctx_t *ctx, const struct quote *q,
					   const struct connection *c)
{
	const struct protocol facts = protocol_of(q->p.tuple.protocol);
	__u32 at = q->p.l4 + facts.sum_offset;
	__u16 old, new;

	if (!facts.sum_offset || !quote_reaches(q, at + sizeof(old)) ||
	    bpf_skb_load_bytes(ctx, at, &old, sizeof(old)) ||
	    (facts.sum_is_optional && !old))
		return 0;
	new = sum_replace(old, facts.sum_has_addresses ?
				       c->tuple_sum :
				       connection_ports_sum(c));
	if (facts.sum_is_optional)
		new = sum_of_udp(new);
	if (bpf_skb_store_bytes(ctx, at, &new, sizeof(new), 0))
		return 0;
	return sum_change(old, new);
}

/* Restores the quoted packet as its sender sent it; c is the entry of replies to it.
 * delta: the change of the quote's sum. */
static __always_inline bool quote_restore(ctx_t *ctx, struct quote *q,
					  const struct connection *c,
					  __u16 *delta)
{
	__u16 sum = quote_fix_sum(ctx, q, c);
	__u32 length, at = q->p.l4, ports = sizeof(q->ports);

	q->ports[0] = c->dport;
	q->ports[1] = c->sport;
	if (quote_is_echo(q)) {
		at += __builtin_offsetof(struct echo_header, id);
		ports = sizeof(__be16);
		if (q->p.echo_reply)
			q->ports[0] = c->sport;
	}
	if (q->p.ipv6) {
		__builtin_memcpy(&q->header.ip6.saddr, &c->daddr,
				 sizeof(struct ip_addr));
		__builtin_memcpy(&q->header.ip6.daddr, &c->saddr,
				 sizeof(struct ip_addr));
		*delta = sum_add(sum, c->tuple_sum);
		length = sizeof(q->header.ip6);
	} else {
		q->header.ip.saddr = c->daddr.word[3];
		q->header.ip.daddr = c->saddr.word[3];
		/* the header's checksum compensates its addresses */
		q->header.ip.check =
			sum_replace(q->header.ip.check, c->address_sum);
		*delta = sum_add(sum, connection_ports_sum(c));
		length = sizeof(q->header.ip);
	}
	return !bpf_skb_store_bytes(ctx, at, q->ports, ports, 0) &&
	       !bpf_skb_store_bytes(ctx, q->p.l3, &q->header, length, 0);
}

/* Translates the error's own header: its source, its destination, its
 * checksum. */
static __always_inline bool
icmp_translate_header(ctx_t *ctx, struct packet *p,
		      const struct connection_key *key,
		      const struct connection *c, __u16 delta)
{
	const struct ip_addr *src =
		same_addr(&key->saddr, &c->saddr) ? &p->tuple.saddr : &c->saddr;
	__u32 addresses = bpf_csum_diff((void *)&p->tuple.daddr, 16,
					(void *)&c->daddr, 16, 0);
	__u32 at = p->l4 + __builtin_offsetof(struct icmp_header, checksum);
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__u16 sum;

	if (src != &p->tuple.saddr)
		addresses = bpf_csum_diff((void *)&p->tuple.saddr, 16,
					  (void *)&c->saddr, 16, addresses);
	addresses = sum_fold(addresses);
	if (bpf_skb_load_bytes(ctx, at, &sum, sizeof(sum)))
		return false;
	sum = sum_replace_all(sum, p->ipv6 ? delta + addresses : delta);
	if (bpf_skb_store_bytes(ctx, at, &sum, sizeof(sum), 0))
		return false;
	if (p->ipv6) {
		ip6 = ctx_header(ctx, p->l3, sizeof(*ip6));
		if (!ip6)
			return false;
		__builtin_memcpy(&ip6->saddr, src, sizeof(struct ip_addr));
		__builtin_memcpy(&ip6->daddr, &c->daddr,
				 sizeof(struct ip_addr));
		ip6->hop_limit--;
		/* checksums compensate all else; does nothing unless skb->csum is in
		 * use */
		ctx_sum_update(ctx, HOP_LIMIT_CHANGE);
		return true;
	}
	ip = ctx_header(ctx, p->l3, sizeof(*ip));
	if (!ip)
		return false;
	ip->saddr = src->word[3];
	ip->daddr = c->daddr.word[3];
	ip->ttl--;
	ip->check = sum_replace_all(ip->check, addresses + TTL_CHANGE);
	return true;
}

/* Counts an error that reports that a client's SYN could not be delivered to the
 * endpoint. It must quote the SYN's number; c is the entry of answers to it. */
static __noinline void icmp_count_unreachable(ctx_t *ctx, const struct quote *q,
					      const struct connection *c,
					      const struct icmp_header *icmp)
{
	const __u32 replied = CONN_REPLY_DIRECTION | CONN_REPLIED;
	__be32 seq;

	if (q->p.tuple.protocol != IPPROTO_TCP ||
	    (state_read(c) & replied) != CONN_REPLY_DIRECTION ||
	    icmp->type !=
		    (q->p.ipv6 ? ICMPV6_DEST_UNREACH : ICMP_DEST_UNREACH) ||
	    (!q->p.ipv6 && icmp->code == ICMP_FRAG_NEEDED) ||
	    bpf_skb_load_bytes(ctx, q->p.l4 + sizeof(q->ports), &seq,
			       sizeof(seq)) ||
	    bpf_ntohl(seq) + 1 != c->ack ||
	    handshake_is_outward(&q->p.tuple, c, true))
		return;
	handshake_count(c->endpoint, HANDSHAKE(unreachable));
}

/* Returns the entry of replies by which a quote is restored: in packets of a tunnel, the base
 * station's port has been replaced by one that stands for the tunnel. With that one, the error
 * would find no socket, and the station would never learn the path's MTU. */
static __noinline struct connection *quote_entry(const struct quote *q,
						 struct connection *c)
{
	struct opening *o = opening_get();
	struct connection *e;

	if (!gtp_port_is_of_tunnel(q->p.tuple.protocol, c->hop, c->dport) ||
	    !(c->flags & CONN_REPLY_DIRECTION) || !o)
		return c;
	e = &o->entries.entry;
	*e = *c;
	e->dport = bpf_htons(GTP_PORT);
	connection_set_sums(e, &q->p.tuple);
	return e;
}

/* Translates an ICMP error. Returns PASS if it is not an error, or not about a
 * connection; CONTINUE after translating it, with its next hop in *found. The packet is
 * not counted. */
static __noinline enum verdict icmp_translate(ctx_t *ctx, struct packet *p,
					      struct connection **found)
{
	struct quote *q = quote_get(p);
	struct icmp_header icmp;
	struct connection *c;
	__u16 delta;

	if (!q || bpf_skb_load_bytes(ctx, p->l4, &icmp, sizeof(icmp)) ||
	    p->fault == DROP_FRAGMENT || !icmp_is_error(p->ipv6, icmp.type) ||
	    !quote_read(ctx, q) || !quote_reaches(q, q->p.l4 + QUOTE_MIN) ||
	    !same_addr(&q->p.tuple.daddr, &p->tuple.daddr) ||
	    is_foreign_noinline(&q->p))
		return VERDICT_PASS;
	c = entry_or_direct_answer(&q->p);
	if (!c || connection_is_expired(c, q->p.tuple.protocol, p->now, 0))
		return VERDICT_PASS;
	if (p->fault)
		return drop(p, p->fault);
	if (is_martian_source(p))
		return drop(p, DROP_MARTIAN_SOURCE);
	if (icmp_mtu_is_invalid(p, &icmp))
		return drop(p, DROP_ICMP_MTU);
	c = quote_entry(q, c);
	icmp_count_unreachable(ctx, q, c, &icmp);
	if (unlikely(connection_has_proxy_header(c)) &&
	    !proxy_correct_error(ctx, p, c, q->p.l4))
		return drop(p, DROP_NOT_LINEAR);
	/* with HOP_FAMILY, forward_uncommon() translates it */
	if (!(c->hop & HOP_FAMILY) &&
	    (!quote_restore(ctx, q, c, &delta) ||
	     !icmp_translate_header(ctx, p, &q->p.tuple, c, delta)))
		return drop(p, DROP_NOT_LINEAR);
	p->tuple.protocol = q->p.tuple.protocol; /* the route depends on it */
	p->icmp_error = 1;
	*found = c;
	return VERDICT_CONTINUE;
}

#endif
