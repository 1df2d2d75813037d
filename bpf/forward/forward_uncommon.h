/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * forward_uncommon.h - forwards packets that leave in unusual ways: without a
 * link-layer header, to a local socket, through a tunnel, as the other IP version, or
 * by the kernel.
 */
#ifndef LOXILB_FORWARD_UNCOMMON_H
#define LOXILB_FORWARD_UNCOMMON_H

#include "helper/ftp.h"
#include "limit/attached.h"
#include "proxy/change.h"
#include "route/forward.h"
#include "tcp/mss.h"
#include "translate/encap.h"
#include "translate/family.h"
#include "translate/family_error.h"
#include "translate/nat.h"

/* Delivers a translated packet to a local socket. If a bridge has shown the packet to
 * netfilter on arrival (br_netfilter), netfilter does not look at it again, and a
 * rule that redirects the endpoint's port would be missed. In that case the packet
 * arrives once more, as it is now. */
static __always_inline enum verdict deliver_locally(ctx_t *ctx,
						    struct packet *p)
{
	__u32 ifindex = ctx_interface(ctx);
	__u32 *flags = bpf_map_lookup_elem(&links, &ifindex);

	if (!flags || !(*flags & LINK_BRIDGE))
		return VERDICT_PASS;
	trace_out(p, ifindex);
	p->action = bpf_redirect(ifindex, BPF_F_INGRESS);
	return VERDICT_REDIRECT;
}

/* Sends a translated packet to its next hop. */
static __always_inline enum verdict send_uncommon(ctx_t *ctx, struct packet *p,
						  const struct hop *w)
{
	if (w->key.kind == HOP_LOCAL)
		return deliver_locally(ctx, p);
	if (w->key.kind != HOP_LAYER3)
		return forward(ctx, p, w);
	/* the kernel removes the link-layer header */
	trace_out(p, w->key.ifindex);
	p->action = bpf_redirect(w->key.ifindex, 0);
	return VERDICT_REDIRECT;
}

/* Translates and forwards a packet of any kind. hop is the result of
 * next_hop_resolve(). Global (verifier: globals). */
__noinline enum verdict forward_uncommon(ctx_t *ctx, struct packet *p,
					 struct connection *c, enum verdict hop)
{
	enum verdict v = VERDICT_CONTINUE;
	const struct hop *w;

	if (!p || !c)
		return VERDICT_DROP;
	if (hop != VERDICT_CONTINUE && hop != VERDICT_REDIRECT)
		return hop;
	w = hop_of(c);
	if (!w)
		return VERDICT_DROP;
	if (unlikely(c->hop & HOP_ATTACHED) &&
	    attached_apply(ctx, p, c, hop == VERDICT_REDIRECT) == VERDICT_DROP)
		return VERDICT_DROP;
	if (unlikely(c->hop & HOP_CHANGES_STREAM)) {
		v = segment_change(ctx, p, c);
		if (v != VERDICT_CONTINUE)
			return v;
	}
	if (c->hop & HOP_FAMILY)
		v = !ONLY_PROXY && p->icmp_error ? family_error(ctx, p, c) :
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

/* Forwards a packet that may be a SYN, whose segment size a service may limit. */
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
