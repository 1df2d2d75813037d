/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * xdp_syn.h - handles the SYN of a new connection in XDP, and in a flood any SYN
 * (syn_flood.h): it saves tc.bpf.c most packets of a flood.
 *
 *	source that a reply cannot reach, or that a list denies		drop
 *	no room for it (protect.h)					drop
 *	client must be challenged					challenge
 *	beyond a limit of open connections, refused silently		drop
 *	all else							pass
 *
 * These are the first decisions of connection_open(), in its order and by the same
 * functions. They change nothing: tc.bpf.c repeats them for a SYN that passes.
 */
#ifndef LOXILB_XDP_SYN_H
#define LOXILB_XDP_SYN_H

#include "forward/xdp_send.h"
#include "limit/limit.h"
#include "observe/stats.h"
#include "observe/trace_note.h"
#include "protect/challenge.h"
#include "protect/protect.h"
#include "protect/syn_flood.h"
#include "service/service.h"

/* Returns the verdict of tc.bpf.c on the SYN's source. */
static __always_inline enum verdict syn_check_source(struct packet *p,
						     const struct service *svc)
{
	enum drop_reason why = source_refusal(p, svc);

	return why ? drop(p, why) : VERDICT_CONTINUE;
}

/* Returns the verdict of tc.bpf.c on the limits of connections. */
static __always_inline enum verdict syn_check_limits(struct packet *p,
						     const struct service *svc)
{
	const __u16 silent = SERVICE_LIMITED | SERVICE_REFUSE_DROP;

	if ((svc->flags & (silent | SERVICE_REFUSE_PASS)) == silent &&
	    limit_is_full(p, svc->id))
		return drop(p, DROP_CONNECTION_LIMIT);
	return VERDICT_CONTINUE;
}

/* Decides, and sets the id of the service. CONTINUE: left to tc.bpf.c. XDP has no
 * marks, and checks no firewall rule and no IPsec policy. */
static __noinline enum verdict syn_decide(struct packet *p, __u32 *service)
{
	struct service svc;
	enum verdict v;

	if (marked_services || rule_count || ipsec_count ||
	    !service_copy(p, 0, &svc))
		return VERDICT_CONTINUE;
	*service = svc.id;
	v = syn_check_source(p, &svc);
	if (v != VERDICT_CONTINUE || !svc.slot_count)
		return v;
	v = protect(p, &svc);
	return v == VERDICT_CONTINUE ? syn_check_limits(p, &svc) : v;
}

/* Challenges the client of a SYN, if XDP can send frames by the interface. */
static __noinline int syn_challenge(ctx_t *ctx, struct packet *p)
{
	struct challenge_counts *n = challenge_counts_get();

	if (!n || !challenge_is_plain(p) || may_be_partial(ctx, p) ||
	    !xdp_send_to(ctx->ingress_ifindex))
		return XDP_PASS;
	if (!challenge_make_syn_ack(ctx, p, challenge_acknowledgement(p)) ||
	    !challenge_macs(ctx))
		return XDP_ABORTED; /* never happens: all headers were read before */
	count_challenge(n, p);
	trace_note_outcome(p, TRACE_CHALLENGE);
	trace_out(p, ctx->ingress_ifindex);
	return XDP_REDIRECT;
}

/* Handles a SYN without a connection. Global (verifier: globals). */
__noinline int handle_syn(ctx_t *ctx, struct packet *p)
{
	__u32 service = 0;

	if (!p)
		return XDP_PASS;
	switch (syn_decide(p, &service)) {
	case VERDICT_CHALLENGE:
		return syn_challenge(ctx, p);
	case VERDICT_DROP:
		/* tc.bpf.c frees expired connections first (reclaim.h) */
		if (unlikely(sweep_is_late(p->now)) &&
		    (is_refused_for_room(p) ||
		     p->drop == DROP_CONNECTION_LIMIT))
			return XDP_PASS;
		service_count_refused(service, p->drop);
		count_drop(p->drop, p->length);
		return XDP_DROP;
	default:
		return XDP_PASS;
	}
}

/* Challenges the client of a SYN of a flood (syn_flood.h). PASS: not a flood, or left
 * to tc.bpf.c. Global (verifier: globals). */
__noinline int syn_flood_challenge(ctx_t *ctx, struct packet *p)
{
	if (!p || marked_services || !would_be_challenged(p, 0))
		return XDP_PASS;
	return syn_challenge(ctx, p);
}

#endif
