/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * route.h - finds the endpoint that a QUIC packet's connection ID names.
 *
 * Only a packet without an entry needs it: the first one from a client's new address or
 * port. The endpoint may be drained, since it already has the connection. If it is
 * down, another endpoint ends the connection sooner. A connection ID without an active
 * configuration, or without an endpoint of the service, is ignored: the flow then
 * chooses the endpoint.
 */
#ifndef LOXILB_QUIC_ROUTE_H
#define LOXILB_QUIC_ROUTE_H

#include "maps.h"
#include "quic/connection_id.h"
#include "service/opening.h"
#include "service/select.h"
#include "table/rows.h"

/* Finds the endpoint of a server ID. */
static __always_inline bool quic_find_server(struct quic_scratch *s,
					     struct opening *o)
{
	const struct endpoint *ep;
	__u32 *id, endpoint;

	s->server.service = o->service.id;
	id = lazy_hash_find(&quic_servers, &s->server);
	if (!id)
		return false;
	endpoint = *id;
	ep = endpoint_find(endpoint);
	if (!ep || ep->service != o->service.id ||
	    ep->flags & (ENDPOINT_FAILED | ENDPOINT_REMOVED))
		return false;
	o->choice.endpoint = endpoint;
	o->choice.is_held = true;
	return true;
}

/* Chooses the endpoint that the connection ID names, if it names one. Global (verifier:
 * globals). */
__noinline int quic_choose(ctx_t *ctx, const struct packet *p,
			   struct opening *o)
{
	const struct quic_config *c;
	struct quic_scratch *s;
	__u32 zero = 0;

	s = bpf_map_lookup_elem(&quic_scratches, &zero);
	if (!p || !o || !s || !quic_read_id(ctx, p, s)) /* verifier: null */
		return false;
	s->config.service = o->service.id;
	c = lazy_hash_find(&quic_configs, &s->config);
	if (!c || s->length < c->length)
		return false;
	quic_decode(s, c);
	return quic_find_server(s, o);
}

#endif
