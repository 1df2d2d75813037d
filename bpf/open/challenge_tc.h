/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * challenge_tc.h - sends challenges (challenge.h) from the tc hook: for SYNs that XDP
 * has not seen, or has passed.
 */
#ifndef LOXILB_CHALLENGE_TC_H
#define LOXILB_CHALLENGE_TC_H

#include "forward/answer.h"
#include "observe/trace_note.h"
#include "open/reopen.h"
#include "protect/challenge.h"
#include "protect/syn_flood.h"
#include "protocol/protocol.h"

/* Challenges the client of a SYN: REDIRECT. Global (verifier: globals). */
__noinline enum verdict challenge(ctx_t *ctx, struct packet *p)
{
	struct challenge_counts *n = challenge_counts_get();
	__u32 ack, ifindex;
	bool made;

	if (!p || !n)
		return VERDICT_DROP;
	if (p->fragment) /* later fragments cannot be answered */
		return drop(p, DROP_UNKNOWN_SOURCE);
	if (unlikely(ipsec_count) && ipsec_stops_answer(p, IPPROTO_TCP))
		return drop(p, DROP_IPSEC_POLICY);
	ack = challenge_acknowledgement(p);
	made = challenge_is_plain(p) ?
		       challenge_make_syn_ack(ctx, p, ack) :
		       tcp_answer(ctx, p, TCP_SYN | TCP_ACK, p->seq, ack);
	if (!made || (p->l3 && !challenge_macs(ctx)))
		return drop(p, DROP_NOT_LINEAR);
	count_challenge(n, p);
	trace_note_outcome(p, TRACE_CHALLENGE);
	ifindex = ctx_interface(ctx);
	trace_out(p, ifindex);
	p->action = bpf_redirect(ifindex, 0);
	return VERDICT_REDIRECT;
}

/* Challenges a client. Removes the remains of a closed connection with this tuple,
 * which the client's answer would otherwise match. */
static __noinline enum verdict challenge_client(ctx_t *ctx, struct packet *p)
{
	if (p->may_reopen)
		reopen_give_up(&p->tuple);
	return challenge(ctx, p);
}

/* In a flood, challenges the client of a SYN, or handles the answer to a challenge
 * (syn_flood.h). CONTINUE: the packet is neither. Global (verifier: globals). */
__noinline enum verdict syn_flood_answer(ctx_t *ctx, struct packet *p)
{
	if (!p) /* verifier: null */
		return VERDICT_DROP;
	if (p->tcp_flags & TCP_RST)
		return challenge_is_answered(p) ? drop(p, DROP_NONE) :
						  VERDICT_CONTINUE;
	return is_opening_syn(p) && would_be_challenged(p, ctx_mark(ctx)) ?
		       challenge(ctx, p) :
		       VERDICT_CONTINUE;
}

#endif
