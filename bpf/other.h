/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * other.h - the ways on that are not the common one, for connections whose hop
 * is above HOP_PEER.
 */
#ifndef LOXILB_OTHER_H
#define LOXILB_OTHER_H

#include "forward.h"
#include "nat.h"

/* Out of an interface without a link-layer header, which the kernel takes off;
 * by the way that hop_ready() has asked the kernel for; or up. */
static __always_inline enum verdict
leave(struct packet *p, const struct connection *c, enum verdict hop)
{
	if ((c->hop & HOP_KINDS) == HOP_LOCAL)
		return VERDICT_PASS;
	if (hop != VERDICT_REDIRECT)
		p->action = bpf_redirect(c->ifindex, 0);
	return VERDICT_REDIRECT;
}

/* Translates and forwards; hop is what hop_ready() said of the way. Global: the
 * verifier looks at it once. */
__noinline enum verdict forward_other(ctx_t *ctx, struct packet *p,
				      struct connection *c, enum verdict hop)
{
	enum verdict v = VERDICT_CONTINUE;

	if (!p || !c)
		return VERDICT_DROP;
	if (p->later_fragment)
		v = translate_fragment(ctx, p, c);
	else if (!p->icmp_error)
		v = translate(ctx, p, c);
	if (v != VERDICT_CONTINUE)
		return v;
	return leave(p, c, hop);
}

#endif
