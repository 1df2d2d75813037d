/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * protect.h - decides whether a client that nobody knows may open a connection.
 *
 *	                        room            no room
 *	SYN, known              opens           opens, up to half as many again
 *	SYN, not known          opens           is challenged
 *	... syn-protect=always  is challenged   is challenged
 *	... syn-protect=off     opens           half-open-full
 *	all else, known         opens           opens, up to half as many again
 *	all else, not known     opens           unknown-source
 *
 * Room is for half-open connections (pressure.h).
 */
#ifndef LOXILB_PROTECT_H
#define LOXILB_PROTECT_H

#include "challenge.h"
#include "opening.h"
#include "pressure.h"
#include "reopen.h"

/* Challenges a client. What is left of a closed connection of this tuple goes:
 * the client's answer would be taken for one of it. */
static __always_inline enum verdict
protect_challenge(ctx_t *ctx, struct packet *p, struct opening *o)
{
	if (p->may_reopen) {
		o->client_key = p->tuple;
		reopen_give_up(p, o);
	}
	return challenge(ctx, p);
}

/* Decides where there is no room, or where clients are always challenged. */
static __noinline enum verdict protect_service(ctx_t *ctx, struct packet *p,
					       struct opening *o)
{
	if (source_is_known(p))
		return half_open_exceeds(o->service.id, p->tuple.protocol,
					 HALF_OPEN_FULL_FOR_KNOWN) ?
			       drop(p, DROP_HALF_OPEN_FULL) :
			       VERDICT_CONTINUE;
	if (!(p->tcp_flags & TCP_SYN))
		return drop(p, DROP_UNKNOWN_SOURCE);
	if (o->service.flags & SERVICE_SYN_OFF)
		return drop(p, DROP_HALF_OPEN_FULL);
	return protect_challenge(ctx, p, o);
}

/* Returns CONTINUE if the packet may open a connection. */
static __always_inline enum verdict protect(ctx_t *ctx, struct packet *p,
					    struct opening *o)
{
	if (likely(!(o->service.flags & SERVICE_SYN_ALWAYS &&
		     p->tcp_flags & TCP_SYN) &&
		   !half_open_is_full(o->service.id, p->tuple.protocol)))
		return VERDICT_CONTINUE;
	return protect_service(ctx, p, o);
}

#endif
