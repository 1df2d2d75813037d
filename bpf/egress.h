/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * egress.h - connections that endpoints open themselves: they leave with an
 * address of their service as the source.
 *
 * A packet opens such a connection if it belongs to no connection and no
 * service, comes from an endpoint of a service with SERVICE_EGRESS, and leaves
 * by the default route. The connection's "endpoint" is then the packet's
 * destination, and its source address and port are given out as in mode
 * onearm. Replies are found by the entry that this makes.
 */
#ifndef LOXILB_EGRESS_H
#define LOXILB_EGRESS_H

#include "conntrack.h"
#include "fib.h"
#include "fragment.h"
#include "handshake.h"
#include "opening.h"
#include "parse.h"
#include "service.h"

/* Does the packet leave by a default route? Next hops are compared, so another
 * route to the same router counts as well. */
static __noinline bool egress_uses_default_route(ctx_t *ctx,
						 const struct packet *p)
{
	struct default_route route = {};
	struct bpf_fib_lookup fib = {
		.l4_protocol = p->tuple.protocol,
		.sport = p->tuple.sport,
		.dport = p->tuple.dport,
	};
	long code;

	fib_addresses(&fib, p->ipv6, &p->tuple.saddr, &p->tuple.daddr);
	code = bpf_fib_lookup(ctx, &fib, sizeof(fib), 0);
	if (!fib_found(code))
		return false;
	route.ifindex = fib.ifindex;
	fib_gateway(&fib, &route.gateway);
	if (!same_addr(&route.gateway, &p->tuple.daddr) &&
	    bpf_map_lookup_elem(&default_routes, &route))
		return true;
	/* a default route through an interface alone has no router */
	__builtin_memset(&route.gateway, 0, sizeof(route.gateway));
	return bpf_map_lookup_elem(&default_routes, &route);
}

/* Finds the endpoint that has sent the packet. Then o says of it what open.h has
 * to know of a service and of its endpoint. */
static __noinline bool egress_find_endpoint(const struct packet *p,
					    struct opening *o)
{
	struct egress_key key = {
		.addr = p->tuple.saddr,
		.protocol = p->tuple.protocol,
	};
	struct egress_endpoint *row;

	row = lazy_hash_find(&egress_endpoints, &key);
	if (!row)
		return false;
	__builtin_memset(&o->service, 0, sizeof(o->service));
	o->service.id = row->service;
	o->service.mode = MODE_ONEARM;
	o->service.source_count = row->source_count;
	o->choice.endpoint = row->endpoint;
	__builtin_memset(&o->outward, 0, sizeof(o->outward));
	o->outward.is = true;
	o->outward.peer.addr = p->tuple.daddr;
	o->outward.peer.port = p->tuple.dport;
	o->outward.peer.service = row->service;
	o->outward.peer.source = row->source;
	return true;
}

/* Is it a packet with which an endpoint opens a connection of its own? Then that
 * connection is of the endpoint's service. */
static __noinline bool egress_find_service(ctx_t *ctx, const struct packet *p,
					   struct opening *o)
{
	if (p->tuple.protocol == IPPROTO_TCP && !is_opening_syn(p))
		return false;
	return egress_find_endpoint(p, o) && !is_martian_source(p) &&
	       egress_uses_default_route(ctx, p);
}

/* May it be opened? */
static __noinline enum verdict egress_admit(struct packet *p,
					    const struct service *svc)
{
	enum verdict v = packet_check_fault(p);

	if (v != VERDICT_CONTINUE)
		return v;
	if (half_open_exceeds(svc->id, p->tuple.protocol,
			      HALF_OPEN_FULL_FOR_KNOWN))
		return drop(p, DROP_HALF_OPEN_FULL);
	return VERDICT_CONTINUE;
}

#endif
