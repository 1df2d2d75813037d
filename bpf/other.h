/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * other.h - the ways on that are not the common one, for connections whose hop
 * is above HOP_PEER.
 */
#ifndef LOXILB_OTHER_H
#define LOXILB_OTHER_H

#include "encap.h"
#include "family.h"
#include "family_error.h"
#include "forward.h"
#include "nat.h"

/* As forward() does it, by the kind of the next hop; an interface without a
 * link-layer header has the kernel take it off. By the way that hop_ready() has
 * asked the kernel for, if that is how the packet leaves. */
static __always_inline enum verdict
leave(ctx_t *ctx, struct packet *p, struct connection *c, enum verdict hop)
{
	__u8 kind = c->hop & HOP_KINDS;
	__u8 *mac;

	if (kind == HOP_LOCAL)
		return VERDICT_PASS;
	if (hop == VERDICT_REDIRECT)
		return hop;
	if (kind != HOP_LAYER3) {
		mac = ctx_header(ctx, 0, 14);
		if (!mac)
			return drop(p, DROP_NOT_LINEAR);
		macs_copy(mac, c->dmac);
	}
	p->action = hop_redirect(kind, c->ifindex);
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
	if (c->hop & HOP_FAMILY)
		v = p->icmp_error ? family_error(ctx, p, c) :
				    family_translate(ctx, p, c);
	else if (p->later_fragment)
		v = translate_fragment(ctx, p, c);
	else if (!p->icmp_error)
		v = translate(ctx, p, c, p->l3);
	if (v == VERDICT_CONTINUE && c->hop & HOP_TUNNELS)
		v = encap(ctx, p, c);
	if (v != VERDICT_CONTINUE)
		return v;
	return leave(ctx, p, c, hop);
}

#endif
