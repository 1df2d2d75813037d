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
 * its CPU away. An attempt takes some 200 ns. */
#define LOCK_ATTEMPTS 2048
#define LOCK_PAUSES 4

/* Takes a bucket's lock if it is free. */
static __always_inline bool bucket_try_lock(struct table_bucket *b)
{
	return !(__sync_fetch_and_or(&b->tags[CONTROL_WORD], CONTROL_LOCKED) &
		 CONTROL_LOCKED);
}

static long lock_attempt(__u32 n, struct table_bucket **b)
{
	for (int i = 0; i < LOCK_PAUSES; i++)
		bpf_ktime_get_ns(); /* as a delay */
	return n + 1 < LOCK_ATTEMPTS && bucket_try_lock(*b);
}

/* Waits for the lock of a bucket. Returns whether it was available. The verifier
 * follows each round of a loop, 22,000 instructions in all, and bpf_loop() once. */
static __always_inline bool bucket_wait(struct table_bucket *b)
{
	return bpf_loop(LOCK_ATTEMPTS, lock_attempt, &b, 0) < LOCK_ATTEMPTS;
}

static __always_inline bool bucket_lock(struct table_bucket *b)
{
	return likely(bucket_try_lock(b)) || bucket_wait(b);
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
