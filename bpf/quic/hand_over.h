/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * hand_over.h - hands a packet that opens a QUIC connection over to QUIC's program.
 *
 * The packet's state stays in the CPU's opening, so nothing is parsed, judged or
 * counted twice. While programs are being replaced, the other program may have separate
 * openings, so both compare a number.
 */
#ifndef LOXILB_HAND_OVER_H
#define LOXILB_HAND_OVER_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "service/opening.h"

/* Prepares a packet for the other program: QUIC. */
static __always_inline enum verdict
quic_prepare(ctx_t *ctx, const struct packet *p, struct opening *o)
{
	o->packet = *p;
	o->ticket = bpf_get_prandom_u32() | 1;
	ctx->cb[0] = o->ticket;
	return VERDICT_QUIC;
}

/* Calls the QUIC program. Returns if there is none. Inlined, since older kernels limit
 * the stack of functions with tail calls. */
static __always_inline enum verdict quic_hand_over(ctx_t *ctx, struct packet *p,
						   const __u32 at)
{
	bpf_tail_call(ctx, &tail_programs, at);
	return drop(p, DROP_CONNECTION_RACE);
}

/* Returns the opening that was handed over, or NULL. */
static __always_inline struct opening *quic_take_over(ctx_t *ctx)
{
	struct opening *o = opening_get();
	__u32 ticket = ctx->cb[0];

	if (!o || !o->ticket || o->ticket != ticket)
		return NULL;
	o->ticket = 0;
	return o;
}

#endif
