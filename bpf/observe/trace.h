/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * trace.h - copies packets to tracers, as they arrive and as they leave.
 *
 *	trace_begin	if the packet is in the sample, copies it as it arrived
 *	trace_note.h	records its outcome
 *	trace_end	if it matches a filter, copies it as it leaves, and sends both
 *
 * A packet never waits: if the ring is full, the trace is lost and counted.
 */
#ifndef LOXILB_TRACE_H
#define LOXILB_TRACE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "observe/trace_filter.h"
#include "observe/trace_note.h"
#include "packet/ctx.h"
#include "packet/packet_copy.h"

/* Copies the packet as it is. */
static __always_inline void trace_copy_packet(ctx_t *ctx, struct packet_view *v,
					      bool layer3)
{
	v->length = ctx_length(ctx);
	v->segment = ctx_segment(ctx);
	v->flags = layer3 ? TRACE_LAYER3 : 0;
	if (ctx_tag(ctx, &v->vlan_tci, &v->vlan_proto))
		v->flags |= TRACE_TAGGED;
	v->captured = packet_copy(ctx, v->data, v->length, TRACE_BYTES);
}

static __always_inline struct trace_turn *trace_turns_get(void)
{
	return &trace_turns[bpf_get_smp_processor_id() % TRACE_CPUS];
}

/* Chooses when the next packet is sampled, and returns a random number. */
static __always_inline __u32 trace_turn_next(void)
{
	struct trace_turn *turns = trace_turns_get();
	__u32 random = turns->random;

	if (!random)
		random = bpf_get_prandom_u32() | 1;
	/* xorshift (Marsaglia, 2003): bpf_get_prandom_u32() takes 20 ns on a virtual
	 * machine */
	random ^= random << 13;
	random ^= random >> 17;
	random ^= random << 5;
	turns->random = random;
	turns->left = 1 + ((__u64)random * trace_turn_most >>
			   (32 + TRACE_TURN_SHIFT));
	return random;
}

/* Copies a packet as it arrived, if it may match a filter. Returns a bit for each
 * tracer with a possible match. how: enum trace_point, and TRACE_AT_LAYER3 if it has no
 * link-layer header. Global (verifier: globals). */
#define TRACE_AT_LAYER3 0x100
__noinline __maybe_unused int trace_arriving(ctx_t *ctx, __u32 now, __u32 how)
{
	struct trace_scratch *s = trace_scratch_get();
	__u32 random = trace_turn_next();
	struct packet_trace *t;

	if ((__s32)(trace_until - now) < 0)
		trace_turns_get()->left = TRACE_IDLE_TURN;
	/* if a program copies a packet to an interface, another program runs inside
	 * it */
	if (!s || s->wanted || (__s32)(trace_until - now) < 0)
		return 0;
	t = &s->trace;
	t->time = bpf_ktime_get_ns();
	t->in = ctx_interface(ctx);
	t->out = 0;
	t->point = how;
	t->after.captured = 0;
	s->became = TRACE_PASS;
	trace_copy_packet(ctx, &t->before, how & TRACE_AT_LAYER3);
	trace_key(&t->before, &s->before);
	s->wanted = trace_choose(random, s->before.protocol);
	return s->wanted;
}

/* Begins to trace a packet, if it is sampled. */
static __always_inline void trace_begin(ctx_t *ctx, struct packet *p, __u32 how)
{
	struct trace_turn *turns;

	if (!TRACING)
		return;
	turns = trace_turns_get();
	if (likely(turns->left > 1))
		turns->left--;
	else
		p->traced = !!trace_arriving(ctx, p->now, how);
}

/* Discards a packet that another program traces. */
static __always_inline void trace_discard(void)
{
	struct trace_scratch *s = trace_scratch_get();

	if (s)
		s->wanted = 0;
}

/* Interrupts a packet's trace, while another program may trace it. Returns what
 * trace_resume() needs to go on. */
static __always_inline int trace_suspend(const struct packet *p)
{
	struct trace_scratch *s;
	int wanted;

	if (!TRACING || likely(!p->traced))
		return 0;
	s = trace_scratch_get();
	if (!s)
		return 0;
	wanted = s->wanted;
	s->wanted = 0;
	return wanted;
}

static __always_inline void trace_resume(const struct packet *p, int wanted)
{
	struct trace_scratch *s;

	if (!TRACING || likely(!p->traced))
		return;
	s = trace_scratch_get();
	if (s)
		s->wanted = wanted;
}

/* Completes the copy of a packet that arrived without a link-layer header: it leaves
 * with room for one, which the kernel fills in after the program. */
static __always_inline void trace_fill_room(struct packet_view *v)
{
	__be16 *type = (__be16 *)(v->data + 2 * ETH_ALEN);

	if (v->captured > ETH_HLEN && !*type)
		*type = v->data[ETH_HLEN] >> 4 == 6 ? bpf_htons(ETH_P_IPV6) :
						      bpf_htons(ETH_P_IP);
}

/* Sends a trace to one tracer. */
static __always_inline void trace_send(const struct packet_trace *t, __u32 i)
{
	__u32 number = FIRST_TRACE + i;
	void *ring = bpf_map_lookup_elem(&watchers, &number);
	struct omitted_counts *n = bpf_map_lookup_elem(&untold_counts, &number);

	/* no wakeup: the reader polls often enough */
	if (ring && n &&
	    bpf_ringbuf_output(ring, (void *)t, sizeof(*t), BPF_RB_NO_WAKEUP))
		n->lost++;
}

/* Sends the trace of a leaving packet to all tracers whose filter matches. what: enum
 * trace_verdict. reasons: enum drop_reason, and enum pass_reason above it. Global
 * (verifier: globals), so it returns a value. */
#define TRACE_PASS_SHIFT 8
__noinline __maybe_unused int trace_leaving(ctx_t *ctx, __u32 what,
					    __u32 reasons, __u32 layer3)
{
	struct trace_scratch *s = trace_scratch_get();
	struct packet_trace *t;

	if (!s)
		return 0;
	t = &s->trace;
	t->took = bpf_ktime_get_ns() - t->time;
	t->verdict = what == TRACE_FORWARD && s->became ? s->became : what;
	/* otherwise reason is left over from an earlier attempt */
	t->reason = t->verdict == TRACE_DROP || t->verdict == TRACE_ANSWER ?
			    reasons :
			    0;
	t->pass = reasons >> TRACE_PASS_SHIFT;
	if (what != TRACE_DROP)
		trace_copy_packet(ctx, &t->after, layer3);
	if (t->before.flags & TRACE_LAYER3 && !layer3)
		trace_fill_room(&t->after);
	trace_key(&t->after, &s->after);
	NO_UNROLL
	for (__u32 i = 0; i < MAX_TRACES; i++) {
		if (s->wanted >> i & 1 && trace_wants(&trace_filters[i], s))
			trace_send(t, i);
	}
	s->wanted = 0;
	return 0;
}

#endif
