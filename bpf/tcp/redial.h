/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * redial.h - decides about a SYN for a connection that looks alive.
 *
 * A client that lost its connection may connect again from the same port. If its
 * endpoint is up, the SYN goes there, and the endpoint answers it by a challenge ACK or
 * accepts it (RFC 9293 section 3.10.7.4). If the endpoint is down, has left the
 * service, or does not answer, the SYN opens a new connection.
 *
 * Anybody can forge a SYN, so a SYN alone ends no connection whose endpoint may
 * answer: the endpoint's own silence does (docs/adr/0067-tcp-state.md). Only a SYN that
 * is certain to reach the endpoint's TCP asks for an answer.
 */
#ifndef LOXILB_REDIAL_H
#define LOXILB_REDIAL_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "packet/checksum.h"
#include "packet/packet.h"
#include "packet/packet_sum.h"
#include "protocol/closing.h"
#include "protocol/tcp.h"
#include "service/service.h"
#include "table/rows.h"
#include "table/state.h"
#include "table/table.h"
#include "tcp/mss.h"

/* How long a lost endpoint must have been silent in a connection before a SYN ends
 * it. */
#define REDIAL_LOST_SILENCE (3 * hz)

/* How long a SYN waits for its answer, before the next one ends the connection.
 * Clients repeat a SYN after 1 s (RFC 6298), and Linux sends no second
 * challenge ACK for 0.5 s. */
#define REDIAL_WAIT (hz * 3 / 4)

/* How long a SYN that waits for its answer is remembered. */
#define REDIAL_MEMORY (130 * hz)

/* By the hash of the client's tuple: its upper half, and below it the jiffies when a
 * SYN was last forwarded for the endpoint to answer. Connections that share a word
 * overwrite each other. An array instead of a map, since a program may have only 64
 * maps. Written by the packet path. */
volatile __u64 redials[MAX_REDIALS] SEC(".data.runtime") = {};

/* A SYN that arrives with a lower TTL might expire before the endpoint. */
#define REDIAL_MIN_TTL 32

/* Reports whether an endpoint's TCP accepts a segment with an option of this kind. TCP
 * drops segments with unexpected signatures (RFC 2385, RFC 5925). */
static __always_inline bool syn_option_is_harmless(__u8 kind)
{
	const __u64 harmless = 1ULL << TCP_OPTION_MSS | 1ULL << 3 /* scale */ |
			       1ULL << 4 /* SACK */ | 1ULL << 8 /* times */ |
			       1ULL << 30 /* MPTCP */ | 1ULL << 34 /* TFO */;

	return kind < 64 && harmless >> kind & 1;
}

/* Reports whether an option's length is possible: its kind and its length take two
 * bytes. The comparison is not of the length itself, or the verifier would track more
 * lengths separately (verifier: loops). */
static __always_inline bool syn_option_has_length(__u32 size)
{
	size >>= 1;
	asm volatile("" : "+r"(size));
	return size;
}

/* Reports whether all options of a SYN are harmless, and end where the header does. Since
 * 6.7, Linux drops others when it looks for signatures. length: of the TCP header. */
static __noinline bool
syn_options_are_harmless(ctx_t *ctx, const struct packet *p, __u32 length)
{
	__u8 options[TCP_OPTIONS_LONGEST + 4] = {};
	__u32 end = length - sizeof(struct tcphdr), at = 0;

	if (!end)
		return true;
	asm volatile("" : "+r"(end)); /* verifier: bounds */
	if (end > TCP_OPTIONS_LONGEST || end < 4 ||
	    bpf_skb_load_bytes(ctx, p->l4 + sizeof(struct tcphdr), options,
			       end))
		return false;
	/* after them are zeros: TCP_OPTION_END */
	for (int i = 0; i < TCP_OPTIONS_LOOKED_AT; i++) {
		if (at >= TCP_OPTIONS_LONGEST || options[at] == TCP_OPTION_END)
			return at <= end;
		if (options[at] == TCP_OPTION_NOP) {
			at++;
			continue;
		}
		if (!syn_option_is_harmless(options[at]) ||
		    !syn_option_has_length(options[at + 1]))
			return false;
		at += options[at + 1];
	}
	return false;
}

/* Reports whether a SYN is certain to reach the endpoint's TCP: it is whole, without
 * data and IP options, with correct checksums. A forged SYN that the endpoint drops
 * silently would make the endpoint look dead. Global (verifier: globals). */
__noinline bool syn_is_plain(ctx_t *ctx, struct packet *p)
{
	__u32 header, length;

	if (!p) /* verifier: null */
		return false;
	header = p->l4 - p->l3;
	length = p->length - header;
	if (p->fragment || p->fault || p->ttl < REDIAL_MIN_TTL ||
	    p->seq_end != p->seq + 1 ||
	    header !=
		    (p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr)) ||
	    length < sizeof(struct tcphdr) ||
	    (!p->ipv6 && packet_sum(ctx, p->l3, header) != 0xffff) ||
	    !syn_options_are_harmless(ctx, p, length))
		return false;
	return ctx_checksum_is_partial(ctx, p->l4 + TCP_SUM_OFFSET) ||
	       sum_fold(pseudo_sum(&p->tuple.saddr, &p->tuple.daddr,
				   IPPROTO_TCP, length) +
			packet_sum(ctx, p->l4, length)) == 0xffff;
}

/* Reports whether a SYN may ask the connection's endpoint for an answer. Only such a SYN
 * must be plain. word: the state word of the client's entry. */
static __always_inline bool redial_may_ask(__u32 word)
{
	return word & CONN_ASSURED && !connection_is_closed(word);
}

static __always_inline bool redial_is_silent_for(const struct packet *p,
						 const struct connection *c,
						 __u32 time)
{
	return (__s32)(p->now - c->seen) >= (__s32)time;
}

/* Reports whether the endpoint has left an earlier SYN unanswered. Otherwise this SYN
 * may become the one to be answered, unless either side sent just now: then the
 * endpoint may be limiting its challenge ACKs. */
static __always_inline bool redial_is_unanswered(const struct packet *p,
						 const struct connection *c,
						 const struct connection *reply)
{
	const struct table_state *t = table_state_get();
	__u64 hash = table_hash(t, &p->tuple), found;
	__u64 i = hash % MAX_REDIALS;
	__u32 asked;

	found = redials[i];
	asked = found;
	if (!((found ^ hash) >> 32)) {
		if (p->now - asked < REDIAL_WAIT)
			return false;
		if (p->now - asked <= REDIAL_MEMORY &&
		    (__s32)(c->seen - asked) < 0 &&
		    (__s32)(reply->seen - asked) < 0)
			return true;
	}
	if (p->plain_syn && redial_is_silent_for(p, c, REDIAL_WAIT) &&
	    redial_is_silent_for(p, reply, REDIAL_WAIT))
		redials[i] = hash >> 32 << 32 | p->now;
	return false;
}

/* Forgets the expected answer to a SYN that was not forwarded. Global (verifier:
 * globals), so it returns a value. */
__noinline __maybe_unused int redial_forget(const struct packet *p)
{
	const struct table_state *t = table_state_get();
	__u64 hash, i;

	if (!p) /* verifier: null */
		return 0;
	hash = table_hash(t, &p->tuple);
	i = hash % MAX_REDIALS;
	if (!((redials[i] ^ hash) >> 32))
		redials[i] = 0;
	return 0;
}

/* Refuses a SYN of a connection with an endpoint that has left its service. */
static __always_inline enum verdict redial_refuse(struct packet *p,
						  __u32 service)
{
	service_count_refused(service, DROP_TUPLE_IN_USE);
	return drop(p, DROP_TUPLE_IN_USE);
}

/* Decides about a SYN of the client, other than the first, of a connection that the
 * endpoint has answered. reply: the entry of answers; NULL if answers are not seen,
 * and the client's own packets stand for them. CONTINUE: the SYN follows the
 * connection. MISS: it opens a new one. Global (verifier: globals). */
__noinline enum verdict redial(struct packet *p, const struct connection *c,
			       const struct connection *reply)
{
	const struct endpoint *ep;
	__u16 flags;

	if (!p || !c) /* verifier: null */
		return VERDICT_DROP;
	ep = endpoint_find(c->endpoint);
	flags = ep ? ep->flags & ENDPOINT_LOST : 0;
	if (flags && redial_is_silent_for(p, reply ?: c, REDIAL_LOST_SILENCE))
		return VERDICT_MISS;
	if (flags &
	    ENDPOINT_REMOVED) /* its address may belong to another machine by now */
		return redial_refuse(p, ep->service);
	if (!reply || !(state_read(reply) & CONN_ASSURED) ||
	    !redial_is_unanswered(p, c, reply))
		return VERDICT_CONTINUE;
	return VERDICT_MISS;
}

#endif
