/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * open_quic.h - opens connections of services with ALGORITHM_QUIC, in separate programs
 * (docs/adr/0098-quic.md).
 *
 * The other programs call them for a packet that opens a connection of these services,
 * after checking that it may (quic/hand_over.h). They are loaded with the first such
 * service, so other services do not pay for them.
 */
#ifndef LOXILB_OPEN_QUIC_H
#define LOXILB_OPEN_QUIC_H

#include "forward/finish.h"
#include "open/open.h"
#include "quic/hand_over.h"

#if ONLY_QUIC
#include "quic/route.h"

/* Chooses the endpoint by the connection ID, or by the flow. */
static __always_inline enum verdict
choose_for_quic(ctx_t *ctx, struct packet *p, struct opening *o)
{
	if (quic_choose(ctx, p, o))
		return VERDICT_CONTINUE;
	if (!o->service.slot_count)
		return service_refuse(p, &o->service, DROP_NO_ENDPOINT);
	o->choice.place = select_hash(p);
	return choose_at(p, o, 0);
}

/* Opens the connection that was handed over. Global (verifier: globals). */
__noinline enum verdict quic_open(ctx_t *ctx, struct packet *p)
{
	struct opening *o = opening_get();

	if (!p || !o) /* verifier: null */
		return VERDICT_DROP;
	return leave(ctx, p, o,
		     open_at_chosen(ctx, p, o, choose_for_quic(ctx, p, o)));
}

static __always_inline int handle_quic(ctx_t *ctx)
{
	struct opening *o = quic_take_over(ctx);
	struct packet p;
	enum verdict v;

	if (!o)
		return TC_SHOT;
	p = o->packet;
	v = quic_open(ctx, &p);
	if (unlikely(v == VERDICT_PASS))
		v = firewall_finish(ctx, &p, v);
	return finish_ingress(ctx, &p, v);
}
#else
static __always_inline int handle_quic(ctx_t *ctx)
{
	return TC_SHOT;
}
#endif

#endif
