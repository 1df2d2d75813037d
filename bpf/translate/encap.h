/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * encap.h - adds the outer header of a packet to an endpoint behind routers that
 * answers clients directly. The outer header has the endpoint's IP version, the inner
 * one either. It is IP alone (RFC 2003, RFC 2473, RFC 4213) or with UDP (GUE variant 1,
 * without a GUE header).
 *
 * Receivers and routers spread packets by the outer headers, so these differ between
 * connections: in the UDP source port, in the flow label, and without UDP in the source
 * address, from an unassigned prefix.
 */
#ifndef LOXILB_ENCAP_H
#define LOXILB_ENCAP_H

#include <linux/in.h>
#include "packet/outer.h"
#include "service/select.h"

/* Adds the outer header in front of the packet's own. */
static __noinline enum verdict encap(ctx_t *ctx, struct packet *p,
				     const struct connection *c)
{
	struct inner in = { .hash = select_hash(p),
			    .length = p->length,
			    .gue = !!(c->hop & HOP_TUNNEL_GUE) };
	__u32 id = c->endpoint;
	struct endpoint *ep = endpoint_find(id);
	__u8 *ip = ctx_header(ctx, p->l3, sizeof(struct iphdr));
	bool made;

	if (!ep || !ip)
		return drop(p, DROP_NOT_LINEAR);
	if (p->ipv6) {
		in.tos = ip[0] << 4 | ip[1] >> 4;
		in.dont_fragment = 1;
	} else {
		in.tos = ip[1];
		in.dont_fragment = ip[6] & 0x40;
	}
	if (in.gue) {
		if (addr_is_unspecified(&ep->source))
			return drop(p, DROP_NO_ROUTE);
		in.protocol = IPPROTO_UDP;
	} else {
		in.protocol = p->ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	}
	made = is_mapped_ipv4(&ep->addr) ?
		       encap_ipv4(ctx, p, &ep->source, &ep->addr, &in) :
		       encap_ipv6(ctx, p, &ep->source, &ep->addr, &in);
	return made ? VERDICT_CONTINUE : drop(p, DROP_NOT_LINEAR);
}

#endif
