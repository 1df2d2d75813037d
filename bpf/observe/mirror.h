/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * mirror.h - copies packets to an interface: a port, or the kernel's tunnel to a
 * collector.
 *
 * The original proceeds regardless of the copy. A VLAN tag for the copy is set in the
 * metadata, not in the frame, and removed again: neither can fail
 * (docs/adr/0052-connection-events.md).
 */
#ifndef LOXILB_MIRROR_H
#define LOXILB_MIRROR_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/ctx.h"
#include "packet/packet.h"

/* Sends a copy, tagged unless the packet has a tag already. */
static __always_inline long mirror_send(ctx_t *ctx, const struct mirror *m)
{
	long failed;

	if (!m->vlan || ctx->vlan_present)
		return bpf_clone_redirect(ctx, m->ifindex, 0);
	failed = bpf_skb_vlan_push(ctx, bpf_htons(ETH_P_8021Q), m->vlan);
	if (failed)
		return failed;
	failed = bpf_clone_redirect(ctx, m->ifindex, 0);
	bpf_skb_vlan_pop(ctx);
	return failed;
}

/* Copies a packet to a mirror, or one packet of several. key 0: no mirror. Global
 * (verifier: globals), so it returns a value. */
__noinline __maybe_unused int mirror_copy(ctx_t *ctx, __u64 key)
{
	struct mirror *m;
	struct mirrored *n;

	if (!key)
		return 0;
	m = bpf_map_lookup_elem(&mirrors, &key);
	n = bpf_map_lookup_elem(&mirrored_counts, &key);
	if (!m || !n || (m->one_of > 1 && bpf_get_prandom_u32() % m->one_of))
		return 0;
	if (mirror_send(ctx, m)) {
		n->lost++;
		return 0;
	}
	n->packets++;
	n->bytes += ctx_length(ctx);
	return 0;
}

#endif
