/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * forward_uncommon.h - forwards packets that do not leave as most do: without a
 * link-layer header, to a local socket, by a tunnel, as another IP version, or by
 * a way that is left to the kernel.
 */
#ifndef LOXILB_FORWARD_UNCOMMON_H
#define LOXILB_FORWARD_UNCOMMON_H

#include "limit/attached.h"
#include "protocol/mss.h"
#include "route/forward.h"
#include "translate/encap.h"
#include "translate/family.h"
#include "translate/family_error.h"
#include "translate/nat.h"

/* Hands a translated packet up to a socket. A bridge may have shown the packet to
 * netfilter as it came (br_netfilter), and then netfilter does not look at it
 * again, so a rule that leads the endpoint's port elsewhere would not be seen.
 * There the packet arrives once more, as it is now. */
static __always_inline enum verdict hand_up(ctx_t *ctx, struct packet *p)
{
	__u32 ifindex = ctx_interface(ctx);
	__u32 *flags = bpf_map_lookup_elem(&links, &ifindex);

	if (!flags || !(*flags & LINK_BRIDGE))
		return VERDICT_PASS;
	trace_out(p, ifindex);
	p->action = bpf_redirect(ifindex, BPF_F_INGRESS);
	return VERDICT_REDIRECT;
}

/* Sends a translated packet by its way. */
static __always_inline enum verdict send_uncommon(ctx_t *ctx, struct packet *p,
						  const struct way *w)
{
	if (w->key.kind == HOP_LOCAL)
		return hand_up(ctx, p);
	if (w->key.kind != HOP_LAYER3)
		return forward(ctx, p, w);
	/* the kernel takes the link-layer header off */
	trace_out(p, w->key.ifindex);
	p->action = bpf_redirect(w->key.ifindex, 0);
	return VERDICT_REDIRECT;
}

/* Translates and forwards a packet of any kind. hop is what next_hop_prepare()
 * said of it. Global (verifier: globals). */
__noinline enum verdict forward_uncommon(ctx_t *ctx, struct packet *p,
					 struct connection *c, enum verdict hop)
{
	enum verdict v = VERDICT_CONTINUE;
	const struct way *w;

	if (!p || !c)
		return VERDICT_DROP;
	if (hop != VERDICT_CONTINUE && hop != VERDICT_REDIRECT)
		return hop;
	w = way_of(c);
	if (!w)
		return VERDICT_DROP;
	if (unlikely(c->hop & HOP_ATTACHED) &&
	    attached_apply(ctx, p, c, hop == VERDICT_REDIRECT) == VERDICT_DROP)
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
	return hop == VERDICT_CONTINUE ? send_uncommon(ctx, p, w) : hop;
}

/* Does the same for a packet that may be a SYN, whose segment size a service may
 * limit. */
static __always_inline enum verdict forward_first(ctx_t *ctx, struct packet *p,
						  struct connection *c,
						  enum verdict hop)
{
	if (hop != VERDICT_CONTINUE && hop != VERDICT_REDIRECT)
		return hop;
	if (mss_applies(p) && mss_clamp(ctx, p, c) != VERDICT_CONTINUE)
		return VERDICT_DROP;
	return forward_uncommon(ctx, p, c, hop);
}

#endif
