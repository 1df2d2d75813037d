/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mss.h - lowers the maximum segment size of a TCP connection (RFC 9293 section 3.7.1)
 * where the service limits it.
 *
 * Only SYNs with the option are changed, in both directions. Without the option the
 * size is 536, which fits.
 */
#ifndef LOXILB_MSS_H
#define LOXILB_MSS_H

#include "conntrack/conntrack.h"
#include "packet/checksum.h"
#include "protocol/protocol.h"

#define TCP_OPTION_END 0
#define TCP_OPTION_NOP 1
#define TCP_OPTION_MSS 2
#define TCP_OPTIONS_LONGEST 40
#define TCP_OPTIONS_LOOKED_AT 16 /* the option is nearly always the first one */

/* How many services limit the segment size. SYNs pay nothing while it is 0. Written
 * by user. */
volatile __u32 mss_services SEC(".data.runtime") = 0;

static __always_inline __u32 mss_limit(const struct connection *c)
{
	__u32 id = c->endpoint, service, *limit;
	struct endpoint *ep = endpoint_find(id);

	if (!ep)
		return 0;
	service = ep->service;
	limit = bpf_map_lookup_elem(&mss_limits, &service);
	return limit ? *limit : 0;
}

/* Returns the option's offset from the TCP header, or 0 if there is none. Global
 * (verifier: globals). */
__noinline __maybe_unused __u32 mss_find(ctx_t *ctx, const struct packet *p)
{
	__u8 options[TCP_OPTIONS_LONGEST + 4] = {};
	__u32 end, at = 0;
	__u8 offset;

	if (!p /* verifier: null */ ||
	    bpf_skb_load_bytes(ctx, p->l4 + 12, &offset, 1))
		return 0;
	end = (offset >> 4) * 4 - sizeof(struct tcphdr);
	if (end > TCP_OPTIONS_LONGEST)
		return 0;
	asm volatile("" : "+r"(end)); /* verifier: bounds */
	if (end < 4 || bpf_skb_load_bytes(ctx, p->l4 + sizeof(struct tcphdr),
					  options, end))
		return 0;
	for (int i = 0; i < TCP_OPTIONS_LOOKED_AT; i++) {
		if (at >= TCP_OPTIONS_LONGEST || at + 4 > end)
			return 0;
		if (options[at] == TCP_OPTION_MSS)
			return options[at + 1] == 4 ?
				       sizeof(struct tcphdr) + at :
				       0;
		if (options[at] == TCP_OPTION_END)
			return 0;
		at += options[at] == TCP_OPTION_NOP ? 1 : options[at + 1];
	}
	return 0;
}

static __always_inline bool mss_applies(const struct packet *p)
{
	return !ONLY_SCTP && mss_services && (p->tcp_flags & TCP_SYN);
}

/* Lowers the option. The helper handles every state of the checksum field, on every
 * kernel. */
static __noinline enum verdict mss_clamp(ctx_t *ctx, struct packet *p,
					 const struct connection *c)
{
	__u32 limit, at;
	__be16 old, new;
	__u8 *option;
	__u16 delta;

	if (!c)
		return VERDICT_CONTINUE;
	limit = mss_limit(c);
	at = limit ? mss_find(ctx, p) : 0;
	if (!at)
		return VERDICT_CONTINUE;
	option = ctx_header(ctx, p->l4 + at + 2, 2);
	if (!option)
		return VERDICT_CONTINUE;
	__builtin_memcpy(&old, option, 2);
	if (bpf_ntohs(old) <= limit)
		return VERDICT_CONTINUE;
	new = bpf_htons(limit);
	__builtin_memcpy(option, &new, 2);
	delta = sum_change(old, new);
	if (at & 1) /* the option spans two words of the sum */
		delta = __builtin_bswap16(delta);
	if (ctx_sum_replace(ctx, p->l4 + TCP_SUM_OFFSET, 0, delta, 0))
		return drop(p, DROP_NOT_LINEAR);
	return VERDICT_CONTINUE;
}

#endif
