/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * trace_note.h - notes what becomes of a packet that somebody traces (trace.h).
 *
 * The programs are compiled twice: those with TRACING take the place of the others
 * while somebody traces. In the others nothing of this is left
 * (docs/adr/0058-traces.md).
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

/* What is kept of a packet from its way in to its way out. */
struct trace_scratch {
	struct packet_trace trace;
	struct connection_key before;
	struct connection_key after;
	__u32 wanted; /* by whom: a bit for each; 0: no packet is on its way */
	__u8 became; /* enum trace_verdict, if the packet's verdict does not say so */
	__u8 pad[3];
};
_Static_assert(sizeof(struct trace_scratch) <= sizeof(struct packet_scratch),
	       "it has room");

static __always_inline struct trace_scratch *trace_scratch_get(void)
{
	__u32 use = SCRATCH_TRACE;

	return bpf_map_lookup_elem(&packet_scratches, &use);
}

/* Notes by which interface a packet leaves. */
static __always_inline void trace_out(const struct packet *p, __u32 ifindex)
{
	struct trace_scratch *s;

	if (!TRACING || likely(!p->traced))
		return;
	s = trace_scratch_get();
	if (s)
		s->trace.out = ifindex;
}

/* Notes what has become of a packet that its verdict does not tell from others. */
static __always_inline void trace_became(const struct packet *p,
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
