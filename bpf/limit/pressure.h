/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * pressure.h - measures how full the connection table is, and of what.
 *
 * A connection is half-open until it is assured: TCP when the handshake is complete,
 * all others when the client has sent again after the endpoint's answer. A sender with
 * forged addresses never gets that far. So TCP and the other protocols each have a
 * share of the table for half-open connections, and a service may use half of it.
 * Beyond a quarter of either share, half-open connections expire after a short silence
 * (expiry.h); when the share is used up, new clients are challenged or refused
 * (protect.h), also while the table must grow first.
 *
 * The numbers are the whole machine's. Each CPU accumulates up to
 * table_state.count_batch before it adds to them, so that CPUs seldom write the same
 * line: a number may be off by that much per CPU.
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
#include "protocol/protocol.h"
#include "table/rows.h"
#include "table/table.h"

static __always_inline struct half_open *half_open_get(void)
{
	struct half_open *all = &half_open_value;

	asm volatile("" : "+r"(all)::"memory"); /* as table_state_get() */
	return all;
}

static __always_inline struct half_open_kept *half_open_kept_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&half_opens_kept, &zero);
}

static __always_inline enum half_open_class half_open_class_of(__u8 protocol)
{
	return protocol_of(protocol).has_handshake ? HALF_OPEN_TCP :
						     HALF_OPEN_OTHERS;
}

/* Adds to a number, through this CPU's accumulated changes. */
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

/* Counts for a service. Services share the places for a CPU's accumulated changes; a
 * CPU that finds another service's change there adds that to its number first. */
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

/* Counts half-open connections, of the machine and of a service. Returns a value
 * (verifier: globals). */
__noinline __maybe_unused int half_open_count(__u32 service, __u8 protocol,
					      __s32 by)
{
	enum half_open_class class = half_open_class_of(protocol);
	struct half_open_kept *kept = half_open_kept_get();
	const __s64 batch = table_state_get()->count_batch;

	if (!kept)
		return 0;
	half_open_add(&half_open_get()->of[class], &kept->of[class], by, batch);
	half_open_add_by_service(
		&kept->services[service & (HALF_OPEN_SERVICES - 1)], service,
		by, batch);
	return 0;
}

/* Reports the pressure of the endpoint's service. */
static __always_inline void half_open_count_of(__u32 endpoint, __u8 protocol,
					       __s32 by)
{
	const struct endpoint *ep = endpoint_find(endpoint);

	if (ep) /* always: rows of endpoints with connections are kept */
		half_open_count(ep->service, protocol, by);
}

/* Reports whether entries nearly fill the table, either at its current size or at its
 * largest. (While the daemon runs, the table grows when 72 percent are in use.) The
 * remaining rows are for known clients. Others may have forged addresses even with
 * assured connections: without TCP, or where the endpoint's answers are not seen,
 * sending twice is enough. */
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

/* Reports whether the machine or a service has more half-open connections than this
 * part of its share. Global (verifier: globals). */
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

	if (!half_open_percent || !state)
		return false;
	share = t->entries_max * half_open_percent * part;
	return all->of[half_open_class_of(protocol)] * unit >= share ||
	       state->half_open * 2 * unit >= share;
}

/* Reports whether an unknown client's half-open connection has no room. */
static __noinline __maybe_unused bool half_open_is_full(__u32 service,
							__u8 protocol)
{
	const struct table_state *t = table_state_get();

	return half_open_exceeds(service, protocol, HALF_OPEN_FULL) ||
	       (half_open_percent && table_is_tight(t));
}

/* Reports whether half-open connections of an endpoint expire early. */
static __always_inline bool pressure_of_half_open(__u32 endpoint, __u8 protocol)
{
	struct endpoint *ep = endpoint_find(endpoint);

	return ep &&
	       half_open_exceeds(ep->service, protocol, HALF_OPEN_QUARTER);
}

/* How much the timeouts of closed connections shrink: not at all while half of the
 * table is free, and fully when nine sixteenths are in use. */
#define PRESSURE_WHOLE 16

static __always_inline __u32 pressure_of_table(void)
{
	const struct table_state *t = table_state_get();
	__s64 entries, over;
	__u64 level;

	if (!half_open_percent)
		return 0;
	entries = t->entries > t->entries_swept ? t->entries : t->entries_swept;
	over = entries * 2 - t->entries_max;
	if (over < 0)
		return 0;
	level = 1 +
		(__u64)over * 8 * PRESSURE_WHOLE / ((__u64)t->entries_max | 1);
	return level < PRESSURE_WHOLE ? level : PRESSURE_WHOLE;
}

/* Returns a timeout between the usual one and the one under pressure. It shrinks
 * gradually: with only two values, the sweep of a half-full table would empty the part
 * that it is visiting, and let the rest fill. */
static __always_inline __u32 timeout_by_pressure(__u32 usual, __u32 pressed)
{
	return usual - (usual - pressed) * pressure_of_table() / PRESSURE_WHOLE;
}

#endif
