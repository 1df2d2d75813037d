/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lock.h - locks buckets of the connection table (table.h).
 */
#ifndef LOXILB_TABLE_LOCK_H
#define LOXILB_TABLE_LOCK_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>
#include "table/table.h"

/* A lock is held longest while a group is moved, 50 us, or while a hypervisor has taken
 * its CPU away. An attempt takes some 200 ns. The verifier follows each attempt, some
 * 22,000 instructions in total, but only once per program. Fewer attempts, repeated by
 * callers, made Linux 6.1 follow the callers in 16 more states for each lock (verifier:
 * loops). */
#define LOCK_ATTEMPTS 2048
#define LOCK_PAUSES 4

/* Takes a bucket's lock if it is free. */
static __always_inline bool bucket_try_lock(struct table_bucket *b)
{
	return !(__sync_fetch_and_or(&b->tags[CONTROL_WORD], CONTROL_LOCKED) &
		 CONTROL_LOCKED);
}

/* Waits for the lock of a bucket. Returns 0, or -EBUSY if it was not available. Global
 * (verifier: globals). */
__noinline int bucket_wait(struct table_bucket *b)
{
	if (!b) /* verifier: null */
		return -EBUSY;
	NO_UNROLL
	for (int i = 0; i < LOCK_ATTEMPTS; i++) {
		for (int n = 0; n < LOCK_PAUSES; n++)
			bpf_ktime_get_ns(); /* as a delay */
		if (bucket_try_lock(b))
			return 0;
	}
	return -EBUSY;
}

static __always_inline bool bucket_lock(struct table_bucket *b)
{
	return likely(bucket_try_lock(b)) || !bucket_wait(b);
}

/* Adds to the word's highest bit: AND is not a barrier, and becomes a loop if its
 * result is used. */
static __always_inline void bucket_unlock(struct table_bucket *b)
{
	__u64 found =
		__sync_fetch_and_add(&b->tags[CONTROL_WORD], CONTROL_LOCKED);

	asm volatile("" : : "r"(found));
}

#endif
