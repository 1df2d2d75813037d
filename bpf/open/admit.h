/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * admit.h - decides whether a packet may open a connection of its service.
 */
#ifndef LOXILB_ADMIT_H
#define LOXILB_ADMIT_H

#include "conntrack/fragment.h"
#include "limit/limit.h"
#include "open/quiet.h"
#include "protect/protect.h"
#include "protocol/protocol.h"
#include "service/service.h"

/* Refuses a packet as the service is configured. p->drop has the reason, also for a
 * packet that is left to the kernel. */
static __always_inline enum verdict service_refuse(struct packet *p,
						   const struct service *svc,
						   enum drop_reason why)
{
	p->drop = why;
	if (svc->flags & SERVICE_REFUSE_PASS)
		return VERDICT_PASS;
	if (svc->flags & SERVICE_REFUSE_DROP)
		return drop(p, why);
	return drop_and_answer(p, why, ANSWER_REFUSE);
}

/* Reports whether a segment from the middle of a connection may open it: where
 * packets go unchanged to the endpoint that their own hash chooses. The connection
 * table was lost, or was another machine's, and the connection continues at its
 * endpoint. If it was at another one, the endpoint answers with a RST. */
static __always_inline bool service_allows_midstream(const struct packet *p,
						     const struct service *svc)
{
	return svc->mode == MODE_DSR && svc->algorithm == ALGORITHM_HASH &&
	       (p->tcp_flags & (TCP_SYN | TCP_ACK | TCP_RST)) == TCP_ACK;
}

/* Checks that the packet can open a connection of the service. */
static __always_inline enum verdict admit_packet(struct packet *p,
						 const struct service *svc)
{
	enum verdict v;
	bool hashed;

	if (is_martian_source(p))
		return drop(p, DROP_MARTIAN_SOURCE);
	v = packet_check_fault(p);
	if (v != VERDICT_CONTINUE)
		return v;
	if (likely(protocol_opens(p)))
		return VERDICT_CONTINUE;
	/* A copy knows the endpoint; the hash may not. So segments wait for their copy for
	 * a moment before the hash decides. */
	hashed = service_allows_midstream(p, svc);
	if (unlikely(is_quiet(p->now, hashed)))
		return drop(p, DROP_NO_CONNECTION);
	return hashed ? VERDICT_CONTINUE :
			service_refuse(p, svc, DROP_NO_CONNECTION);
}

/* Checks that the service allows its source. */
static __always_inline enum verdict admit_source(struct packet *p,
						 const struct service *svc)
{
	enum drop_reason why;

	if (likely(!(svc->flags & (SERVICE_SOURCES | SERVICE_DENIES))))
		return VERDICT_CONTINUE;
	why = source_reason(p, svc);
	return why ? drop(p, why) : VERDICT_CONTINUE;
}

/* Checks the connection limits of the service and the client. */
static __always_inline enum verdict admit_by_limits(struct packet *p,
						    const struct service *svc)
{
	enum drop_reason why;

	if (likely(!(svc->flags & SERVICE_LIMITED)))
		return VERDICT_CONTINUE;
	why = limit_reason(p, svc->id);
	return why ? service_refuse(p, svc, why) : VERDICT_CONTINUE;
}

/* Checks whether the packet may open a connection of the service. CONTINUE: yes.
 * CHALLENGE: only if its client exists. */
static __always_inline enum verdict service_admit(struct packet *p,
						  const struct service *svc)
{
	enum verdict v = admit_packet(p, svc);

	if (v != VERDICT_CONTINUE)
		return v;
	v = admit_source(p, svc);
	if (v != VERDICT_CONTINUE)
		return v;
	/* a QUIC connection may belong to a drained endpoint (quic/route.h) */
	if (!svc->slot_count && svc->algorithm != ALGORITHM_QUIC)
		return service_refuse(p, svc, DROP_NO_ENDPOINT);
	v = protect(p, svc);
	if (v != VERDICT_CONTINUE)
		return v;
	return admit_by_limits(p, svc);
}

#endif
