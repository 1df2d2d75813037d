/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * select.h - which endpoint takes a new connection.
 *
 * Every algorithm is a table of endpoint ids (made in user space) and an index
 * into it. Round robin, weighted or not, counts connections: one sequence over
 * all CPUs, one atomic step for each new connection.
 */
#ifndef LOXILB_SELECT_H
#define LOXILB_SELECT_H

#include "maps.h"

static __always_inline __u64 select_round_robin(struct service_state *state)
{
	return __sync_fetch_and_add(&state->next, 1);
}

/* The id of the endpoint at a place of the service's table; places go round. */
static __always_inline __u32 *select_slot(const struct service *svc,
					  __u64 place)
{
	__u32 segment = svc->slot_segment, slot;
	void *table;

	table = bpf_map_lookup_elem(&slots, &segment);
	if (!table)
		return NULL;
	slot = svc->slot_offset + place % svc->slot_count;
	return bpf_map_lookup_elem(table, &slot);
}

#endif
