/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * forward.h - sends packets to their next hop.
 */
#ifndef LOXILB_FORWARD_H
#define LOXILB_FORWARD_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "observe/trace_note.h"
#include "packet/ctx.h"
#include "packet/ethernet.h"
#include "packet/packet.h"
#include "path/fib.h"
#include "path/hop.h"
#include "route/bulk.h"

/* Returns how packets are sent by an interface with these flags. */
static __always_inline __u8 hop_kind_of(__u32 flags)
{
	if (flags & LINK_LAYER3)
		return HOP_LAYER3;
	return redirect_peer && (flags & LINK_PEER) ? HOP_PEER : HOP_REDIRECT;
}

/* Returns how packets are sent by an interface. */
static __always_inline __u8 link_hop_kind(const struct packet *p, __u32 ifindex)
{
	__u32 *flags = bpf_map_lookup_elem(&links, &ifindex);

	return flags ? hop_kind_of(*flags) : HOP_REDIRECT;
}

/* Returns the program's return code for a packet that leaves by an
 * interface. */
static __always_inline int hop_redirect(__u8 kind, __u32 ifindex)
{
	return kind == HOP_PEER ? bpf_redirect_peer(ifindex, 0) :
				  bpf_redirect(ifindex, 0);
}

/* Sends a packet as an Ethernet frame. It may be translated before or after: it
 * leaves in finish_verdict(), or when the program returns. */
static __always_inline enum verdict forward(ctx_t *ctx, struct packet *p,
					    const struct hop *w)
{
	__u8 *mac = ctx_header(ctx, 0, ETH_HLEN);

	if (!mac)
		return drop(p, DROP_NOT_LINEAR);
	macs_write(mac, w);
	trace_out(p, w->key.ifindex);
	if (unlikely(bulk_concerns(p)) && w->key.kind == HOP_PEER)
		p->action = bulk_redirect(ctx, p, w);
	else
		p->action = hop_redirect(w->key.kind, w->key.ifindex);
	return VERDICT_REDIRECT;
}

/* Sends a packet through the kernel's neighbour queue, which adds the MAC
 * addresses. */
static __noinline enum verdict redirect_neigh(struct packet *p, __u32 ifindex,
					      const struct ip_addr *gateway)
{
	struct bpf_redir_neigh nh = {};

	if (is_mapped_ipv4(gateway)) {
		nh.nh_family = AF_INET;
		nh.ipv4_nh = gateway->word[3];
	} else {
		nh.nh_family = AF_INET6;
		__builtin_memcpy(nh.ipv6_nh, gateway, 16);
	}
	trace_out(p, ifindex);
	p->action = bpf_redirect_neigh(ifindex, &nh, sizeof(nh), 0);
	return VERDICT_REDIRECT;
}

/* Sends a packet through the kernel's neighbour queue. redirect_neigh() silently drops a packet
 * without a link-layer header, so such a packet first gets an empty Ethernet header. */
static __always_inline enum verdict
send_by_kernel(ctx_t *ctx, struct packet *p, __u32 ifindex,
	       const struct ip_addr *gateway)
{
	if (!p->l3) {
		if (bpf_skb_change_head(ctx, ETH_HLEN, 0))
			return drop(p, DROP_NOT_LINEAR);
		p->l3 += ETH_HLEN;
		p->l4 += ETH_HLEN;
	}
	return redirect_neigh(p, ifindex, gateway);
}

/* Sends a packet to a next hop that has no row in the table. */
static __always_inline enum verdict
send_without_hop(ctx_t *ctx, struct packet *p, const struct hop_key *hop)
{
	if (hop->kind == HOP_LAYER3) {
		trace_out(p, hop->ifindex);
		p->action = bpf_redirect(hop->ifindex, 0);
		return VERDICT_REDIRECT;
	}
	return send_by_kernel(ctx, p, hop->ifindex, &hop->gateway);
}

#endif
