/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * protect.h - decides whether unknown clients may open connections.
 *
 *	                        room            no room
 *	SYN, known              opens           opens, up to half as many again
 *	SYN, not known          opens           is challenged
 *	... syn-protect=always  is challenged   is challenged
 *	... syn-protect=off     opens           half-open-full
 *	all else, known         opens           opens, up to half as many again
 *	all else, not known     opens           unknown-source
 *
 * "Room" means room for half-open connections (pressure.h). Clients that can be
 * challenged are also challenged while the service is short of source ports
 * (port_pressure.h). snat.h decides about other clients, since other pools may have
 * ports for them.
 */
#ifndef LOXILB_PROTECT_H
#define LOXILB_PROTECT_H

#include "limit/known.h"
#include "limit/port_pressure.h"
#include "limit/pressure.h"
#include "packet/packet.h"
#include "protocol/protocol.h"

/* Decides when there is no room, or when clients are always challenged. */
static __noinline enum verdict protect_service(struct packet *p,
					       const struct service *svc)
{
	if (source_is_known(p))
		return half_open_exceeds(svc->id, p->tuple.protocol,
					 HALF_OPEN_FULL_FOR_KNOWN) ?
			       drop(p, DROP_HALF_OPEN_FULL) :
			       VERDICT_CONTINUE;
	if (!(p->tcp_flags & TCP_SYN))
		return drop(p, DROP_UNKNOWN_SOURCE);
	if (svc->flags & SERVICE_SYN_OFF)
		return drop(p, DROP_HALF_OPEN_FULL);
	return VERDICT_CHALLENGE;
}

/* Reports whether the client can be challenged. */
static __always_inline bool can_challenge(const struct packet *p,
					  const struct service *svc)
{
	return p->tcp_flags & TCP_SYN && !(svc->flags & SERVICE_SYN_OFF);
}

/* Reports whether there is no room for the packet's connection, or clients are always
 * challenged. */
static __always_inline bool is_protected(const struct packet *p,
					 const struct service *svc)
{
	return unlikely(
		(svc->flags & SERVICE_SYN_ALWAYS && p->tcp_flags & TCP_SYN) ||
		half_open_is_full(svc->id, p->tuple.protocol) ||
		(can_challenge(p, svc) &&
		 port_pressure_is_on_service(svc->id, p->now)));
}

/* Reports whether the packet was dropped because there is no room for its connection. */
static __always_inline bool is_refused_for_room(const struct packet *p)
{
	return p->drop == DROP_HALF_OPEN_FULL || p->drop == DROP_UNKNOWN_SOURCE;
}

/* Returns CONTINUE if the packet may open a connection, CHALLENGE if its client must
 * prove first that it exists. */
static __always_inline enum verdict protect(struct packet *p,
					    const struct service *svc)
{
	if (!is_protected(p, svc))
		return VERDICT_CONTINUE;
	return protect_service(p, svc);
}

#endif
