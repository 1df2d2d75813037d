/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * gather.h - moves the counts of active connections from CPUs to one place, for
 * services that begin to compare loads (docs/adr/0112-counts-per-cpu.md).
 */
#ifndef LOXILB_GATHER_H
#define LOXILB_GATHER_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "table/rows.h"

/* More than any machine has: the loop ends with the last CPU. */
#define GATHER_CPUS 8192

struct gather {
	void *segment; /* of connection_counts */
	struct endpoint_state *state;
	__u32 row;
};

/* Moves the count of one CPU, which may change meanwhile. Readers of the sum see too
 * many for an instant, and never too few. */
static long gather_cpu(__u32 cpu, struct gather *g)
{
	struct connection_count *n;
	__s64 active;

	n = bpf_map_lookup_percpu_elem(g->segment, &g->row, cpu);
	if (!n)
		return 1;
	active = *(volatile __s64 *)&n->active;
	if (active) {
		__sync_fetch_and_add(&g->state->active, active);
		__sync_fetch_and_add(&n->active, -active);
	}
	return 0;
}

static __always_inline void gather_endpoint(__u32 id)
{
	__u32 segment = id / ENDPOINTS_PER_SEGMENT;
	struct gather g = {
		.segment = bpf_map_lookup_elem(&connection_counts, &segment),
		.state = endpoint_state_find(id),
		.row = id % ENDPOINTS_PER_SEGMENT,
	};

	if (g.segment && g.state)
		bpf_loop(GATHER_CPUS, gather_cpu, &g, 0);
}

#endif
