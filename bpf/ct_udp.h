/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ct_udp.h - the UDP state of a connection: replied to, or not yet.
 */
#ifndef LOXILB_CT_UDP_H
#define LOXILB_CT_UDP_H

#include "conntrack.h"
#include "established.h"

/* Notes the endpoint's first answer in both entries. */
static __noinline void udp_note_reply(struct packet *p, struct connection *c)
{
	connection_add_flags_both(c, connection_peer(c, p->tuple.protocol),
				  CONN_REPLIED);
}

static __always_inline enum verdict udp_update(struct packet *p,
					       struct connection *c)
{
	if (unlikely(udp_is_first_reply(c)))
		udp_note_reply(p, c);
	c->seen = p->now;
	return VERDICT_CONTINUE;
}

#endif
