/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pressure.h - how full the table of connections is, and of what.
 *
 * A connection is half-open until it is assured: TCP when the handshake is
 * complete, all others when the client has sent again after the endpoint's
 * answer. Whoever sends from made-up addresses gets no further. So half-open
 * connections have a share of the table, TCP's and the others' one each, and a
 * service half of that. From a quarter of either on they are forgotten after a short
 * silence (conntrack.h), and when it is used up new clients are challenged or
 * refused (protect.h). So they are while the table has not grown yet.
 *
 * The numbers are of the whole machine. Each CPU keeps back what it has to add,
 * up to table_state.count_batch, so that CPUs seldom share the line: a number
 * may be wrong by as much for each CPU.
 */
#ifndef LOXILB_PRESSURE_H
#define LOXILB_PRESSURE_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "packet/packet.h"
#include "table/rows.h"
#include "table/table.h"

static __always_inline struct half_open *half_open_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&half_opens, &zero);
}

static __always_inline struct half_open_kept *half_open_kept_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&half_opens_kept, &zero);
}

static __always_inline enum half_open_class half_open_class_of(__u8 protocol)
{
	return protocol == IPPROTO_TCP ? HALF_OPEN_TCP : HALF_OPEN_OTHERS;
}

/* Adds to a number, by way of what this CPU keeps back of it. */
static __always_inline void half_open_add(__s64 *number, __s64 *kept, __s64 by,
					  __s64 batch)
{
	__s64 n = __sync_fetch_and_add(kept, by) + by;

	if (likely(n < batch && n > -batch))
		return;
	n = __sync_lock_test_and_set(kept, 0);
	__sync_fetch_and_add(number, n);
}

static __always_inline void half_open_add_to_service(__u32 service, __s64 by)
{
	struct service_state *state =
		bpf_map_lookup_elem(&service_states, &service);

	if (state)
		__sync_fetch_and_add(&state->half_open, by);
}

/* How often a swap is tried. It fails when a packet interrupts the sweep. */
#define HALF_OPEN_ATTEMPTS 4

/* Does the same for a service. It shares the place where a CPU keeps that back
 * with others; who finds another one's there passes that on. */
static __always_inline void half_open_add_by_service(__u64 *kept, __u32 service,
						     __s32 by, __s32 batch)
{
	for (int i = 0; i < HALF_OPEN_ATTEMPTS; i++) {
		__u64 found = *(volatile __u64 *)kept;
		bool own = found >> 32 == service;
		__s32 n = own ? (__s32)found + by : by;
		bool full = n >= batch || n <= -batch;
		__u64 next = (__u64)service << 32 | (full ? 0 : (__u32)n);

		if (__sync_val_compare_and_swap(kept, found, next) != found)
			continue;
		if (!own && (__s32)found)
			half_open_add_to_service(found >> 32, (__s32)found);
		if (full)
			half_open_add_to_service(service, n);
		return;
	}
	half_open_add_to_service(service, by);
}

/* Counts half-open connections, of the machine and of the endpoint's service.
 * Returns something (verifier: globals). */
__noinline __maybe_unused int half_open_count(__u32 endpoint, __u8 protocol,
					      __s32 by)
{
	enum half_open_class class = half_open_class_of(protocol);
	struct half_open_kept *kept = half_open_kept_get();
	struct endpoint *ep = endpoint_find(endpoint);
	struct table_state *t = table_state_get();
	struct half_open *all = half_open_get();
	__u32 service;

	if (!t || !all || !kept)
		return 0;
	half_open_add(&all->of[class], &kept->of[class], by, t->count_batch);
	if (!ep)
		return 0;
	service = ep->service;
	half_open_add_by_service(
		&kept->services[service & (HALF_OPEN_SERVICES - 1)], service,
		by, t->count_batch);
	return 0;
}

/* Do so many entries nearly fill the table: at the size to which it has grown, at
 * 72 percent of which it grows while the daemon is there; or for good? What is
 * left is for clients that are known. Others may have made-up addresses even
 * where connections are assured: who sends twice has some without TCP, or where
 * the endpoint's answers are not seen. */
static __always_inline bool table_is_tight(const struct table_state *t)
{
	const __s64 rows = BUCKETS_PER_GROUP * ROWS_PER_BUCKET;

	return t->entries * 4 >= size_groups(table_size(t)) * rows * 3 ||
	       t->entries * 8 >= t->entries_max * 7;
}

/* Parts of the share, in eighths. */
#define HALF_OPEN_QUARTER 2
#define HALF_OPEN_FULL 8
#define HALF_OPEN_FULL_FOR_KNOWN 12

/* Are there more half-open connections, of the machine or of a service, than
 * this part of what may be? Global (verifier: globals). */
__noinline __maybe_unused bool half_open_exceeds(__u32 service, __u8 protocol,
						 __s64 part)
{
	const struct service_state *state =
		bpf_map_lookup_elem(&service_states, &service);
	const struct table_state *t = table_state_get();
	const struct half_open *all = half_open_get();
	/* percent, eighths */
	const __s64 unit = ENTRIES_PER_CONNECTION * 100 * 8;
	__s64 share;

	if (!half_open_percent || !state || !t || !all)
		return false;
	share = t->entries_max * half_open_percent * part;
	return all->of[half_open_class_of(protocol)] * unit >= share ||
	       state->half_open * 2 * unit >= share;
}

/* Is there no room for a half-open connection of a client that is not known? */
static __noinline __maybe_unused bool half_open_is_full(__u32 service,
							__u8 protocol)
{
	const struct table_state *t = table_state_get();

	return half_open_exceeds(service, protocol, HALF_OPEN_FULL) ||
	       (half_open_percent && t && table_is_tight(t));
}

/* Are half-open connections of an endpoint to be forgotten soon? */
static __always_inline bool pressure_of_half_open(__u32 endpoint, __u8 protocol)
{
	struct endpoint *ep = endpoint_find(endpoint);

	return ep &&
	       half_open_exceeds(ep->service, protocol, HALF_OPEN_QUARTER);
}

/* How much closed connections are to give way: not at all while half of the table
 * is free, and wholly from nine sixteenths on. */
#define PRESSURE_WHOLE 16

static __always_inline __u32 pressure_of_table(void)
{
	const struct table_state *t = table_state_get();
	__s64 entries, over;
	__u64 level;

	if (!half_open_percent || !t)
		return 0;
	entries = t->entries > t->entries_swept ? t->entries : t->entries_swept;
	over = entries * 2 - t->entries_max;
	if (over < 0)
		return 0;
	level = 1 +
		(__u64)over * 8 * PRESSURE_WHOLE / ((__u64)t->entries_max | 1);
	return level < PRESSURE_WHOLE ? level : PRESSURE_WHOLE;
}

/* Returns a timeout between the usual one and that under pressure. It shrinks by
 * degrees: if it were one or the other, the sweep would empty the part of the
 * table where it is when the table is half full, and leave the rest to fill. */
static __always_inline __u32 timeout_by_pressure(__u32 usual, __u32 pressed)
{
	return usual - (usual - pressed) * pressure_of_table() / PRESSURE_WHOLE;
}

#endif
