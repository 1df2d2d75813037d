/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * forward_uncommon.h - forwards packets of connections whose hop is above
 * HOP_PEER: no link-layer header, a local socket, a tunnel, another IP version.
 */
#ifndef LOXILB_FORWARD_UNCOMMON_H
#define LOXILB_FORWARD_UNCOMMON_H

#include "encap.h"
#include "family.h"
#include "family_error.h"
#include "forward.h"
#include "nat.h"

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
	p->action = bpf_redirect(ifindex, BPF_F_INGRESS);
	return VERDICT_REDIRECT;
}

/* Sends a translated packet, by the kind of its next hop. hop is REDIRECT when
 * next_hop_prepare() has left the neighbour to the kernel. On an interface
 * without link-layer header the kernel takes the header off. */
static __always_inline enum verdict send_uncommon(ctx_t *ctx, struct packet *p,
						  struct connection *c,
						  enum verdict hop)
{
	__u8 kind = c->hop & HOP_KINDS;
	__u8 *mac;

	if (kind == HOP_LOCAL)
		return hand_up(ctx, p);
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

/* Translates and forwards a packet; hop is the verdict of next_hop_prepare().
 * Global: the verifier checks it once. */
__noinline enum verdict forward_uncommon(ctx_t *ctx, struct packet *p,
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
	return send_uncommon(ctx, p, c, hop);
}

#endif
