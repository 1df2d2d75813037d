/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * finish.h - turns the verdict of the stages into tc's return code, and counts drops.
 */
#ifndef LOXILB_FINISH_H
#define LOXILB_FINISH_H

#include "forward/answer.h"
#include "observe/stats.h"
#include "observe/trace.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "route/bulk.h"

/* Return codes. NEXT leaves the packet to other programs at the hook, and then
 * to the kernel. The numbers are the same for tcx and clsact. */
#define TC_NEXT (-1)
#define TC_SHOT 2

/* Queues a copy of a long segment at a veth, and drops the original: no helper releases
 * the original from the socket that sent it. */
static __noinline int bulk_send(ctx_t *ctx, __u32 ifindex)
{
	if (bpf_clone_redirect(ctx, ifindex, 0) < 0)
		return bpf_redirect(ifindex, 0);
	return TC_SHOT;
}

/* Returns tc's return code for a verdict, and counts drops. */
static __always_inline int finish_verdict(ctx_t *ctx, struct packet *p,
					  enum verdict v)
{
	switch (v) {
	case VERDICT_REDIRECT:
		if (unlikely(p->action & BULK_ACTION))
			return bulk_send(ctx, p->action & ~BULK_ACTION);
		return p->action;
	case VERDICT_DROP:
		count_drop(p->drop, p->length);
		return TC_SHOT;
	default:
		if (unlikely(p->pass))
			count_pass(p->pass);
		if (unlikely(p->priority_tag))
			ctx_put_priority_tag(ctx, p->priority_tag);
		return TC_NEXT;
	}
}

/* Sends a packet's trace to its tracers. */
static __always_inline void trace_end(ctx_t *ctx, const struct packet *p,
				      enum verdict v)
{
	if (!TRACING || likely(!p->traced))
		return;
	if (v == VERDICT_REDIRECT)
		trace_leaving(ctx, TRACE_FORWARD, p->drop, !p->l3);
	else if (v == VERDICT_DROP)
		trace_leaving(ctx, TRACE_DROP, p->drop, !p->l3);
	else
		trace_leaving(ctx, TRACE_PASS, p->pass << TRACE_PASS_SHIFT,
			      !p->l3);
}

static __always_inline int finish(ctx_t *ctx, struct packet *p, enum verdict v)
{
	int action = finish_verdict(ctx, p, v);

	trace_end(ctx, p, v);
	return action;
}

/* Like finish(), but first answers the sender of the packet if the verdict is ANSWER. */
static __always_inline int finish_ingress(ctx_t *ctx, struct packet *p,
					  enum verdict v)
{
	if (unlikely(v == VERDICT_ANSWER)) {
		trace_note_outcome(p, TRACE_ANSWER);
		v = answer(ctx, p);
		if (v == VERDICT_REDIRECT)
			count_drop(p->drop, p->length);
	}
	return finish(ctx, p, v);
}

#endif
