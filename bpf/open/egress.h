/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * egress.h - connections that are opened through this machine and leave with a source
 * local address.
 *
 * A packet opens such a connection if it has no connection and no service, and a
 * firewall rule requests translation; or if its source is an endpoint of a service with
 * SERVICE_EGRESS, and it leaves by the default route. The connection's "endpoint" is
 * then the packet's destination, and its source address and port are assigned as in
 * mode onearm. Its entry of answers finds the replies.
 */
#ifndef LOXILB_EGRESS_H
#define LOXILB_EGRESS_H

#include "conntrack/conntrack.h"
#include "conntrack/fragment.h"
#include "filter/rule_count.h"
#include "path/fib.h"
#include "protocol/protocol.h"
#include "service/opening.h"
#include "service/service.h"
#include "tcp/handshake.h"

/* Reports whether the packet leaves this machine, by any route or by a default route.
 * Compares next hops, so another route to the same router counts as well. */
static __noinline bool egress_leaves(ctx_t *ctx, const struct packet *p,
				     bool by_any_route)
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
	if (!fib_found(code) || by_any_route)
		return fib_found(code);
	route.ifindex = fib.ifindex;
	fib_gateway(&fib, &route.gateway);
	if (!same_addr(&route.gateway, &p->tuple.daddr) &&
	    bpf_map_lookup_elem(&default_routes, &route))
		return true;
	/* an on-link default route has no router */
	__builtin_memset(&route.gateway, 0, sizeof(route.gateway));
	return bpf_map_lookup_elem(&default_routes, &route);
}

/* Fills in what open.h needs of a service and of its endpoint. */
static __always_inline void egress_describe(const struct packet *p,
					    struct opening *o,
					    const struct egress_endpoint *by)
{
	__builtin_memset(&o->service, 0, sizeof(o->service));
	o->service.id = by->service;
	o->service.mode = MODE_ONEARM;
	o->service.source_count = by->source_count;
	o->choice.endpoint = by->endpoint;
	__builtin_memset(&o->outward, 0, sizeof(o->outward));
	o->outward.is = true;
	o->outward.is_given = true;
	o->outward.keeps_port = false;
	o->outward.peer.addr = p->tuple.daddr;
	o->outward.peer.port = p->tuple.dport;
	o->outward.peer.service = by->service;
	o->outward.peer.source = by->source;
}

/* Finds the endpoint that has sent the packet. */
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
	egress_describe(p, o, row);
	return true;
}

/* Applies the firewall rule that asked for another source, unless that source is of
 * the other IP version. */
static __noinline bool egress_find_rule(const struct packet *p,
					struct opening *o)
{
	struct egress_endpoint by = { .endpoint = o->source_of - 1 };
	struct endpoint *ep = endpoint_find(by.endpoint);

	if (!ep || is_mapped_ipv4(&ep->source) == p->ipv6)
		return false;
	by.service = ep->service;
	by.source = ep->source;
	egress_describe(p, o, &by);
	return true;
}

/* Reports whether a packet opens an outward connection, which belongs to the endpoint's
 * or the rule's service. */
static __noinline bool egress_find_service(ctx_t *ctx, const struct packet *p,
					   struct opening *o)
{
	if (!protocol_opens(p))
		return false;
	if (is_martian_source(p))
		return false;
	if (snat_rules && o->source_of &&
	    egress_leaves(ctx, p, !o->source_by_default) &&
	    egress_find_rule(p, o))
		return true;
	return egress_count && egress_find_endpoint(p, o) &&
	       egress_leaves(ctx, p, false);
}

/* Checks whether the connection may be opened. */
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
