/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wake.h - wakes user space, which sleeps while there is nothing to do, and shows it
 * which endpoints have changed.
 *
 * User space sets a condition, checks that it is not true already, and sleeps. The CPU
 * that makes it true clears the condition and wakes user space, only once.
 */
#ifndef LOXILB_WAKE_H
#define LOXILB_WAKE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/packet.h"
#include "table/table.h"

#define WAKE_WORD_BITS 64
#define WAKE_WORDS (MAX_ENDPOINTS / WAKE_WORD_BITS)
_Static_assert((WAKE_WORDS & (WAKE_WORDS - 1)) == 0,
	       "wake_mark_handshake() masks with it");

/* Written and read by the packet path and, as memory, by user. */
struct wake wakes SEC(".data.runtime")
	__attribute__((aligned(CACHE_LINE))) = {};

static __always_inline void wake_ring(enum wake_reason why)
{
	__u32 number = BELL, reason = why;
	void *bell = bpf_map_lookup_elem(&watchers, &number);

	if (bell)
		bpf_ringbuf_output(bell, &reason, sizeof(reason),
				   BPF_RB_FORCE_WAKEUP);
}

/* Marks an endpoint that has counted part of a handshake. Usually its bit is set
 * already, and nothing is written. */
static __always_inline void wake_mark_handshake(__u32 endpoint)
{
	const __u64 bit = 1ULL << (endpoint % WAKE_WORD_BITS);
	__u64 *word =
		&wakes.handshakes[endpoint / WAKE_WORD_BITS & (WAKE_WORDS - 1)];

	if (*(volatile __u64 *)word & bit ||
	    __sync_fetch_and_or(word, bit) & bit)
		return;
	if (*(volatile __u32 *)&wakes.handshake) {
		*(volatile __u32 *)&wakes.handshake = 0;
		wake_ring(WAKE_HANDSHAKE);
	}
}

/* Wakes user space if the table has reached the awaited number of entries. */
static __always_inline void wake_on_entries(void)
{
	const struct table_state *t = table_state_get();

	if (likely(t->entries < *(volatile __s64 *)&wakes.entries))
		return;
	*(volatile __s64 *)&wakes.entries = WAKE_NEVER;
	wake_ring(WAKE_ENTRIES);
}

/* Wakes user space to check the table, whatever its number of entries. */
static __always_inline void wake_for_table(void)
{
	if (*(volatile __s64 *)&wakes.entries == WAKE_NEVER)
		return;
	*(volatile __s64 *)&wakes.entries = WAKE_NEVER;
	wake_ring(WAKE_ENTRIES);
}

#endif
