/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * trace_note.h - records the outcome of a traced packet (trace.h).
 *
 * The programs are compiled twice: the programs with TRACING replace the others during
 * a trace. In the others, all of this compiles to nothing
 * (docs/adr/0057-explanations.md).
 */
#ifndef LOXILB_TRACE_NOTE_H
#define LOXILB_TRACE_NOTE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/packet.h"

/* Set by the compiler's -D (internal/kernel/datapath/bpf/gen.go). */
#ifndef TRACING
#define TRACING 0
#endif

/* State of a traced packet, from its arrival to its end. */
struct trace_scratch {
	struct packet_trace trace;
	struct connection_key before;
	struct connection_key after;
	__u32 wanted; /* a bit for each tracer; 0: no packet is being traced */
	__u8 became; /* enum trace_verdict, if the packet's verdict does not show it */
	__u8 pad[3];
};
_Static_assert(sizeof(struct trace_scratch) <= sizeof(struct packet_scratch),
	       "it has room");

static __always_inline struct trace_scratch *trace_scratch_get(void)
{
	__u32 use = SCRATCH_TRACE;

	return bpf_map_lookup_elem(&packet_scratches, &use);
}

/* Records by which interface a packet leaves. */
static __always_inline void trace_out(const struct packet *p, __u32 ifindex)
{
	struct trace_scratch *s;

	if (!TRACING || likely(!p->traced))
		return;
	s = trace_scratch_get();
	if (s)
		s->trace.out = ifindex;
}

/* Records an outcome of a packet that its verdict does not show. */
static __always_inline void trace_note_outcome(const struct packet *p,
					       enum trace_verdict what)
{
	struct trace_scratch *s;

	if (!TRACING || likely(!p->traced))
		return;
	s = trace_scratch_get();
	if (s)
		s->became = what;
}

#endif
