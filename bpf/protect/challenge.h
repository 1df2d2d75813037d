/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * challenge.h - checks that the client of a SYN exists, without keeping state.
 *
 * The SYN is returned as a SYN+ACK that acknowledges a number which the client has not
 * sent. A real client answers with a RST of exactly that number (RFC 9293 section
 * 3.10.7.3), and sends its SYN again: Linux at once, others when their timer expires.
 * The number is a keyed hash of addresses, ports and the time, so only a receiver of
 * the SYN+ACK can send such a RST. The RST makes the client known (known.h), and its
 * next SYN goes to an endpoint.
 *
 * The SYN+ACK has the SYN's length and leaves by the interface at which the SYN
 * arrived, to the MAC address that it came from: no route is looked up. It is sent by
 * XDP (xdp_syn.h) or at the tc hook (challenge_tc.h).
 */
#ifndef LOXILB_CHALLENGE_H
#define LOXILB_CHALLENGE_H

#include "limit/known.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/ethernet.h"
#include "packet/siphash.h"
#include "protocol/protocol.h"

/* A number is valid for 16,384 jiffies, up to less than twice as long: 16 to 330 s,
 * by CONFIG_HZ. After that, a number seen on a wire is worthless. */
#define CHALLENGE_PERIOD_SHIFT 14

#define CHALLENGE_TTL 64

/* The TCP header's words at offset 12: its length, and its flags. */
#define TCP_WORD_LENGTH bpf_htons(0xf000)
#define TCP_WORD_SYN_ACK bpf_htons(TCP_SYN | TCP_ACK)

static __always_inline struct challenge_counts *challenge_counts_get(void)
{
	__u32 zero = 0;

	if (ONLY_SCTP) /* one map less: a program can use 64 */
		return NULL;
	return bpf_map_lookup_elem(&challenges, &zero);
}

/* Returns the number for a packet's client in a period. Global (verifier: globals). */
__noinline __maybe_unused __u32 challenge_number(const struct packet *p,
						 __u32 period)
{
	const struct secret_keys *secret = secrets_get();
	const struct connection_key *t;
	struct siphash s;

	if (!p) /* verifier: null */
		return 0;
	t = &p->tuple;
	siphash_begin(&s, &secret->challenge);
	if (p->ipv6) {
		siphash_word(&s, ip_addr_high(&t->saddr));
		siphash_word(&s, ip_addr_low(&t->saddr));
		siphash_word(&s, ip_addr_high(&t->daddr));
		siphash_word(&s, ip_addr_low(&t->daddr));
	} else {
		siphash_word(&s,
			     t->saddr.word[3] | (__u64)t->daddr.word[3] << 32);
	}
	siphash_word(&s,
		     t->sport | (__u32)t->dport << 16 | (__u64)period << 32);
	return siphash_end(&s, p->ipv6 ? 40 : 16);
}

/* Reports whether this is the RST with which a client answers its challenge. The top
 * bit is ignored (challenge_acknowledgement()). */
static __noinline bool challenge_is_answered(struct packet *p)
{
	__u32 period = p->now >> CHALLENGE_PERIOD_SHIFT;
	struct challenge_counts *n;

	if (((challenge_number(p, period) ^ p->seq) << 1) &&
	    ((challenge_number(p, period - 1) ^ p->seq) << 1))
		return false;
	source_mark_known(p);
	n = challenge_counts_get();
	if (n)
		n->answered++;
	return true;
}

/* Handles the answer to a challenge, and reports whether it was one. */
static __always_inline bool challenge_takes_answer(struct packet *p,
						   const struct service *svc)
{
	return !ONLY_SCTP && unlikely(p->tcp_flags & TCP_RST) && !p->fault &&
	       !(svc->flags & SERVICE_SYN_OFF) && challenge_is_answered(p);
}

/* Returns the acknowledgement of the SYN+ACK: the number, adjusted so that the client
 * cannot have sent it. */
static __always_inline __u32 challenge_acknowledgement(const struct packet *p)
{
	__u32 number = challenge_number(p, p->now >> CHALLENGE_PERIOD_SHIFT);

	return number - p->seq <= p->seq_end - p->seq ? number ^ 1U << 31 :
							number;
}

/* Reverses the TCP header. Sequence number and window stay: the client checks the
 * acknowledgement first, so any value will do. */
static __always_inline bool challenge_tcp(ctx_t *ctx, struct packet *p,
					  __be32 ack)
{
	enum ctx_checksum state = ctx_checksum_state(ctx);
	struct tcphdr *tcp = ctx_header(ctx, p->l4, sizeof(*tcp));
	__u16 *word, flags, delta;

	if (!tcp)
		return false;
	word = (__u16 *)tcp + 6;
	flags = (*word & TCP_WORD_LENGTH) | TCP_WORD_SYN_ACK;
	delta = sum_fold64((__u64)ack + (__u32)~tcp->ack_seq + flags +
			   (__u16) ~*word);
	tcp->source = p->tuple.dport;
	tcp->dest = p->tuple.sport;
	tcp->ack_seq = ack;
	*word = flags;
	if (unlikely(state == CTX_CHECKSUM_UNKNOWN))
		return !ctx_sum_replace(ctx, p->l4 + TCP_SUM_OFFSET, 0, delta,
					0);
	if (state != CTX_CHECKSUM_PARTIAL)
		tcp->check = sum_replace(tcp->check, delta);
	return true;
}

/* Reverses the IP header. Its options or extension headers stay. */
static __always_inline bool challenge_ip(ctx_t *ctx, struct packet *p)
{
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__u16 old, new;

	if (p->ipv6) {
		ip6 = ctx_header(ctx, p->l3, sizeof(*ip6));
		if (!ip6)
			return false;
		/* no checksum compensates the hop limit in skb->csum */
		if (ctx_checksum_state(ctx) >= CTX_CHECKSUM_COMPLETE)
			ctx_sum_update(ctx,
				       sum_change(bpf_htons(p->ttl),
						  bpf_htons(CHALLENGE_TTL)));
		ip6->hop_limit = CHALLENGE_TTL;
		__builtin_memcpy(&ip6->saddr, &p->tuple.daddr, 16);
		__builtin_memcpy(&ip6->daddr, &p->tuple.saddr, 16);
		return true;
	}
	ip = ctx_header(ctx, p->l3, sizeof(*ip));
	if (!ip)
		return false;
	old = bpf_htons(p->ttl << 8);
	new = bpf_htons(CHALLENGE_TTL << 8);
	ip->ttl = CHALLENGE_TTL;
	ip->check = sum_replace(ip->check, sum_change(old, new));
	ip->saddr = p->tuple.daddr.word[3];
	ip->daddr = p->tuple.saddr.word[3];
	return true;
}

/* Exchanges the two MAC addresses. */
static __always_inline bool challenge_macs(ctx_t *ctx)
{
	void *frame = ctx_header(ctx, 0, ETH_HLEN);

	if (!frame)
		return false;
	macs_exchange(frame);
	return true;
}

/* Reports whether the SYN may be reflected to its source, which may be forged. */
static __always_inline bool challenge_is_plain(const struct packet *p)
{
	return p->seq_end - p->seq == 1;
}

/* Turns a plain SYN into the SYN+ACK, except for the MAC addresses. */
static __always_inline bool challenge_make_syn_ack(ctx_t *ctx, struct packet *p,
						   __u32 ack)
{
	return challenge_tcp(ctx, p, bpf_htonl(ack)) && challenge_ip(ctx, p);
}

#endif
