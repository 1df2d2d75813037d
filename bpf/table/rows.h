/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rows.h - rows of maps that are made on demand: arrays in segments, and hashes as a
 * whole.
 *
 * A row costs one additional array lookup, which is inlined.
 */
#ifndef LOXILB_ROWS_H
#define LOXILB_ROWS_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"

/* Returns the row of an endpoint in one of the maps by endpoint id, or NULL. */
static __always_inline void *endpoint_row(void *map, __u32 id)
{
	__u32 segment = id / ENDPOINTS_PER_SEGMENT;
	__u32 row = id % ENDPOINTS_PER_SEGMENT;
	void *rows = bpf_map_lookup_elem(map, &segment);

	return rows ? bpf_map_lookup_elem(rows, &row) : NULL;
}

static __always_inline struct endpoint *endpoint_find(__u32 id)
{
	return endpoint_row(&endpoints, id);
}

#define ENDPOINT_LOST (ENDPOINT_REMOVED | ENDPOINT_FAILED)

/* Reports whether an endpoint was removed from its service, or is down while others
 * are up. */
static __always_inline bool endpoint_is_lost(const struct endpoint *ep)
{
	return ep->flags & ENDPOINT_LOST;
}

static __always_inline struct endpoint_state *endpoint_state_find(__u32 id)
{
	return endpoint_row(&endpoint_states, id);
}

/* Returns this CPU's counts of an endpoint's connections, or NULL. */
static __always_inline struct connection_count *connection_counts_find(__u32 id)
{
	return endpoint_row(&connection_counts, id);
}

/* Returns a slot of a segment, or NULL. */
static __always_inline __u32 *slot_find(void *segment, __u32 slot)
{
	__u32 row = slot / SLOTS_PER_BLOCK;
	struct slot_block *block = bpf_map_lookup_elem(segment, &row);

	return block ? &block->endpoints[slot % SLOTS_PER_BLOCK] : NULL;
}

/* Returns a hash that is made on demand, or NULL. */
static __always_inline void *lazy_hash_get(void *map)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(map, &zero);
}

/* Returns a row of a hash that is made on demand, or NULL. */
static __always_inline void *lazy_hash_find(void *map, const void *key)
{
	void *hash = lazy_hash_get(map);

	return hash ? bpf_map_lookup_elem(hash, key) : NULL;
}

/* Returns the ports that the kernel assigns to sockets of this machine. */
static __always_inline const struct host_ports *kept_ports_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&kept_ports, &zero);
}

#endif
