/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * record.h - copies packets to ring buffers, with their outcome.
 *
 * A ring exists while a reader does. A packet never waits: if the ring is full, the
 * copy is lost and counted (docs/adr/0052-connection-events.md).
 */
#ifndef LOXILB_RECORD_H
#define LOXILB_RECORD_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/ctx.h"
#include "packet/packet_copy.h"

/* Copies the beginning of a packet. */
static __always_inline void record_fill(ctx_t *ctx, struct packet_record *r)
{
	r->ifindex = ctx_interface(ctx);
	r->length = ctx_length(ctx);
	r->captured = packet_copy(ctx, r->data, r->length, RECORD_BYTES);
	r->vlan_tci = ctx->vlan_tci;
	r->vlan_proto = ctx->vlan_proto;
	if (ctx_is_tagged(ctx))
		r->flags |= RECORD_TAGGED;
}

/* Copies a packet to a ring, if it has a reader. of: the source of the record; flags:
 * RECORD_LAYER3 or none. Global (verifier: globals), so it returns a value. */
__noinline __maybe_unused int record_packet(ctx_t *ctx, __u32 number, __u64 of,
					    __u32 verdict, __u32 flags)
{
	void *ring = bpf_map_lookup_elem(&watchers, &number);
	struct omitted_counts *n = bpf_map_lookup_elem(&untold_counts, &number);
	struct packet_record *r;

	if (!ring || !n)
		return 0;
	r = bpf_ringbuf_reserve(ring, sizeof(*r), 0);
	if (!r) {
		n->lost++;
		return 0;
	}
	r->time = bpf_ktime_get_ns();
	r->of = of;
	r->verdict = verdict;
	r->flags = flags;
	record_fill(ctx, r);
	/* no wakeup: the reader polls often enough */
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return 0;
}

/* Counts a packet that is deliberately omitted. */
static __always_inline void record_none(__u32 number)
{
	struct omitted_counts *n = bpf_map_lookup_elem(&untold_counts, &number);

	if (n)
		n->sampled++;
}

#endif
