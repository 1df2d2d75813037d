/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * answer.h - answers the sender of a dropped packet.
 *
 * The packet itself is rewritten into the answer: a RST (RFC 9293 section 3.10.7.1), or
 * an ICMP error that quotes it (RFC 1812, RFC 4443). The answer is routed to the sender
 * like any packet. The number of ICMP errors is limited, since one costs its receiver
 * more than the packet cost its sender. So is the number of RSTs to segments without a
 * connection: a forger of sources could otherwise direct any number of them at a
 * victim. Answers are never larger than the segment.
 *
 * This path is slow, so its functions are not inlined, and each has its own stack
 * frame.
 */
#ifndef LOXILB_ANSWER_H
#define LOXILB_ANSWER_H

#include "gtp/port.h"
#include "packet/answer_ip.h"
#include "packet/checksum.h"
#include "packet/packet_sum.h"
#include "path/fib.h"
#include "protocol/protocol.h"
#include "route/forward.h"
#include "route/nexthop.h"
#include "rules/ipsec.h"
#include "sctp/proof.h"
#include "table/bucket.h"
#include "translate/icmp.h"

#define ICMP_LARGEST 576 /* RFC 1812 section 4.3.2.3 */

#ifndef BPF_FIB_LOOKUP_SRC
#define BPF_FIB_LOOKUP_SRC (1U << 4) /* 6.7 */
#endif

/* Reports whether another answer of this kind may be sent. Each kind has a token
 * bucket per CPU. */
static __always_inline bool answer_is_within(__u32 kind, __u32 rate, __u32 now)
{
	struct token_bucket *b = bpf_map_lookup_elem(&answer_buckets, &kind);

	return b && bucket_take(b, rate, rate, now);
}

static __noinline bool answer_allowed(const struct packet *p, bool reset)
{
	if (!reset)
		return answer_is_within(LIMIT_ICMP_ERRORS, icmp_rate, p->now);
	if (ONLY_SCTP && p->drop == DROP_UNPROVEN_ADDRESS)
		return answer_is_within(LIMIT_RESETS, reset_rate, p->now);
	return p->drop != DROP_NO_CONNECTION ||
	       answer_is_within(LIMIT_RESETS, reset_rate, p->now);
}

/* Fills in type, code and the rest of the ICMP header. */
static __always_inline void icmp_fill(const struct packet *p,
				      struct icmp_header *icmp)
{
	__u32 mtu = (__u32)p->action >> ANSWER_MTU_SHIFT;

	switch (p->action & ((1 << ANSWER_MTU_SHIFT) - 1)) {
	case ANSWER_TIME_EXCEEDED:
		icmp->type = p->ipv6 ? ICMPV6_TIME_EXCEED : ICMP_TIME_EXCEEDED;
		break;
	case ANSWER_TOO_BIG:
		icmp->type = p->ipv6 ? ICMPV6_PKT_TOOBIG : ICMP_DEST_UNREACH;
		icmp->code = p->ipv6 ? 0 : ICMP_FRAG_NEEDED;
		icmp->info = bpf_htonl(mtu);
		break;
	default:
		if (!protocol_of(p->tuple.protocol).has_ports) {
			icmp->type = p->ipv6 ? ICMPV6_DEST_UNREACH :
					       ICMP_DEST_UNREACH;
			icmp->code = p->ipv6 ? ICMPV6_ADDR_UNREACH :
					       ICMP_HOST_UNREACH;
			break;
		}
		icmp->type = p->ipv6 ? ICMPV6_DEST_UNREACH : ICMP_DEST_UNREACH;
		icmp->code = p->ipv6 ? ICMPV6_PORT_UNREACH : ICMP_PORT_UNREACH;
	}
}

/* Rewrites a packet into the ICMP error about it. If its checksum is left to the
 * device, the device writes it later, into the quote. Then the bytes from the layer 4
 * header on add up to the complement of the field's present value. Global (verifier:
 * globals). */
__noinline int answer_icmp(ctx_t *ctx, struct packet *p,
			   const struct ip_addr *src)
{
	__u32 head, limit, quote, field, length, sum;
	struct icmp_header icmp = {};
	__u8 protocol;
	__u16 open;

	if (!p || !src) /* verifier: null */
		return false;
	head = sizeof(struct icmp_header) +
	       (p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	limit = (p->ipv6 ? ICMP6_LARGEST : ICMP_LARGEST) - head;
	quote = p->length < limit ? p->length : limit;
	field = p->l4 + protocol_of(p->tuple.protocol).sum_offset;
	length = sizeof(struct icmp_header) + quote;
	protocol = icmp_protocol(p->ipv6);
	icmp_fill(p, &icmp);
	if (protocol_of(p->tuple.protocol).has_ports &&
	    protocol_of(p->tuple.protocol).sum_offset &&
	    ctx_checksum_is_partial(ctx, field)) {
		if (bpf_skb_load_bytes(ctx, field, &open, sizeof(open)))
			return false;
		sum = packet_sum(ctx, p->l3, p->l4 - p->l3) + (__u16)~open;
	} else {
		sum = packet_sum(ctx, p->l3, quote);
	}
	if (p->ipv6)
		sum = pseudo_sum(src, &p->tuple.saddr, protocol, length) +
		      sum_fold(sum);
	sum = sum_fold(sum);
	sum = bpf_csum_diff(NULL, 0, (void *)&icmp, sizeof(icmp), sum);
	icmp.checksum = ~sum_fold(sum);
	/* also turns segments that travel as one (GSO) into one packet */
	if ((ctx_length(ctx) > p->l3 + quote || ctx_segment(ctx)) &&
	    ctx_resize(ctx, p->l3 + quote))
		return false;
	if (bpf_skb_adjust_room(ctx, head, BPF_ADJ_ROOM_MAC, 0))
		return false;
	return !bpf_skb_store_bytes(ctx, p->l3 + head - sizeof(icmp), &icmp,
				    sizeof(icmp), BPF_F_RECOMPUTE_CSUM) &&
	       answer_ip(ctx, p, src, protocol, length);
}

/* Restores the port of a base station in a packet of a tunnel, as quote_entry() does. */
static __noinline void answer_restore_port(ctx_t *ctx, const struct packet *p)
{
	const struct connection *c;
	__be16 check;

	if (ONLY_SCTP || p->tuple.dport != bpf_htons(GTP_PORT))
		return;
	c = entry_find(&p->tuple);
	if (c &&
	    gtp_port_is_of_tunnel(p->tuple.protocol, c->hop, p->tuple.sport) &&
	    !bpf_skb_load_bytes(ctx, p->l4 + UDP_SUM_OFFSET, &check,
				sizeof(check)))
		gtp_write_source(ctx, p->l4, check, p->tuple.sport,
				 bpf_htons(GTP_PORT));
}

/* Finds the address that an answer is routed to: the packet's source, or the
 * endpoint's own address if an endpoint that answers clients directly has sent the
 * VIP as its source. */
static __noinline void answer_target(const struct packet *p, struct ip_addr *to)
{
	const struct ip_addr *endpoint;
	struct connection *c;

	if (!to)
		return;
	*to = p->tuple.saddr;
	c = direct_find(&p->tuple, p->now);
	endpoint = c && !(c->hop & HOP_TUNNELS) ? next_hop_target(c) : NULL;
	if (endpoint)
		*to = *endpoint;
}

/* Looks up the route to the sender. src becomes the machine's address towards the
 * sender if the kernel returns one; otherwise it does not change. */
static __noinline int answer_route(ctx_t *ctx, struct packet *p,
				   struct bpf_fib_lookup *fib,
				   struct ip_addr *src)
{
	__u32 flags = BPF_FIB_LOOKUP_SRC;
	struct ip_addr target;
	int code;

	if (!fib || !src)
		return -EINVAL;
	answer_target(p, &target);
	for (int i = 0; i < 2; i++, flags = 0) {
		__builtin_memset(fib, 0, sizeof(*fib));
		fib->l4_protocol = p->tuple.protocol;
		fib_addresses(fib, p->ipv6, &p->tuple.daddr, &target);
		code = bpf_fib_lookup(ctx, fib, sizeof(*fib), flags);
		if (code >= 0)
			break;
	}
	if (!flags || !fib_found(code))
		return code;
	if (p->ipv6)
		__builtin_memcpy(src, fib->ipv6_src, 16);
	else
		src->word[3] = fib->ipv4_src;
	return code;
}

/* Sends the answer as a packet of a connection is sent, by next_hop_resolve() and
 * forward(). */
static __always_inline enum verdict
answer_send(ctx_t *ctx, struct packet *p, struct bpf_fib_lookup *fib, int code)
{
	__u8 kind = link_hop_kind(p, fib->ifindex);
	struct ip_addr gateway;
	void *frame;

	if (kind != HOP_LAYER3 &&
	    (code == BPF_FIB_LKUP_RET_NO_NEIGH || !p->l3)) {
		fib_gateway(fib, &gateway);
		return send_by_kernel(ctx, p, fib->ifindex, &gateway);
	}
	if (kind != HOP_LAYER3) {
		frame = ctx_header(ctx, 0, ETH_HLEN);
		if (!frame)
			return VERDICT_DROP;
		macs_write_pair(frame, fib->dmac, fib->smac);
	}
	trace_out(p, fib->ifindex);
	p->action = hop_redirect(kind, fib->ifindex);
	return VERDICT_REDIRECT;
}

/* Reports whether an IPsec policy forbids the answer. */
static __noinline bool answer_is_forbidden(const struct packet *p,
					   const struct ip_addr *src,
					   bool reset)
{
	__u8 protocol = reset ? p->tuple.protocol : icmp_protocol(p->ipv6);

	return ipsec_find_action(src, &p->tuple.saddr,
				 ipsec_ports(p->tuple.dport, p->tuple.sport),
				 protocol, IPSEC_OUT) == RULE_DROP;
}

/* Answers the sender: REDIRECT. DROP: no answer is possible. Global (verifier: globals). */
__noinline enum verdict answer(ctx_t *ctx, struct packet *p)
{
	struct bpf_fib_lookup fib;
	struct ip_addr src;
	bool made, refuse, reset;
	int code;

	if (!p)
		return VERDICT_DROP;
	refuse = p->action == ANSWER_REFUSE;
	reset = refuse && protocol_of(p->tuple.protocol).has_reset;
	src = p->tuple.daddr;
	if ((reset && protocol_is_reset(p)) || !answer_allowed(p, reset))
		return VERDICT_DROP;
	code = answer_route(ctx, p, &fib, &src);
	if (!fib_found(code))
		return VERDICT_DROP;
	if (refuse)
		src = p->tuple.daddr;
	if (unlikely(ipsec_count) && answer_is_forbidden(p, &src, reset))
		return drop(p, DROP_IPSEC_POLICY);
	if (!reset)
		answer_restore_port(ctx, p);
	if (ONLY_SCTP && p->drop == DROP_UNPROVEN_ADDRESS)
		made = sctp_challenge(ctx, p);
	else
		made = reset ? protocol_reset(ctx, p) :
			       answer_icmp(ctx, p, &src);
	if (!made)
		return VERDICT_DROP;
	return answer_send(ctx, p, &fib, code);
}

#endif
