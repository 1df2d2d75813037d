/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * wake.h - wakes user space, which sleeps while there is nothing to do, and tells it
 * which endpoints have news.
 *
 * User space says what it sleeps for, looks whether that has come meanwhile, and
 * sleeps. Who brings it takes the wish back and rings: once, however many come.
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
	       "wake_note_handshake() masks with it");

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

/* An endpoint has counted something of a handshake. Most often its bit is set
 * already, and nothing is written. */
static __always_inline void wake_note_handshake(__u32 endpoint)
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

/* The table has more entries. */
static __always_inline void wake_note_entries(void)
{
	const struct table_state *t = table_state_get();

	if (!t || likely(t->entries < *(volatile __s64 *)&wakes.entries))
		return;
	*(volatile __s64 *)&wakes.entries = WAKE_NEVER;
	wake_ring(WAKE_ENTRIES);
}

/* The table is to be looked at, however few entries it has. */
static __always_inline void wake_for_table(void)
{
	if (*(volatile __s64 *)&wakes.entries == WAKE_NEVER)
		return;
	*(volatile __s64 *)&wakes.entries = WAKE_NEVER;
	wake_ring(WAKE_ENTRIES);
}

#endif
