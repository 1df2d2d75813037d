/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bucket.h - token buckets: how often something may be done.
 */
#ifndef LOXILB_BUCKET_H
#define LOXILB_BUCKET_H

#include <stdbool.h>
#include "abi.h"
#include "config.h"

/* Returns how long tokens have accumulated since the last request, a second at most:
 * for a zero bucket, a second. The last time may be ahead of now if a packet on
 * another CPU began a tick later, and was faster. */
static __always_inline __u32 bucket_advance(struct token_bucket *b, __u32 now)
{
	__u32 elapsed = b->since ? now - b->since : hz;

	if (elapsed > -hz)
		return 0;
	b->since = now ?: 1;
	return elapsed < hz ? elapsed : hz;
}

/* Takes a token. rate tokens are added per second, and at most size are kept, both up
 * to a million. Returns whether there was a token. A zero bucket fills at once. */
static __always_inline bool bucket_take(struct token_bucket *b, __u32 rate,
					__u32 size, __u32 now)
{
	__u32 elapsed = bucket_advance(b, now);

	b->tokens += elapsed * rate;
	if (b->tokens > size * hz)
		b->tokens = size * hz;
	if (b->tokens < hz)
		return false;
	b->tokens -= hz;
	return true;
}

/* How many attempts to take a token, before it counts as taken. */
#define BUCKET_ATTEMPTS 4

/* Takes a token from a bucket that several CPUs share. Global (verifier: globals). */
__noinline int bucket_take_shared(struct token_bucket *b, __u32 rate,
				  __u32 size, __u32 now)
{
	union {
		struct token_bucket bucket;
		__u64 word;
	} next;
	__u64 found;
	bool taken;

	if (!b) /* verifier: null */
		return true;
	for (int i = 0; i < BUCKET_ATTEMPTS; i++) {
		found = *(volatile __u64 *)b;
		next.word = found;
		taken = bucket_take(&next.bucket, rate, size, now);
		/* no token: a bucket that would not change is not written, so CPUs
		 * that refuse a flood do not contend for it */
		if (next.word == found)
			return false;
		if (__sync_val_compare_and_swap((__u64 *)b, found, next.word) ==
		    found)
			return taken;
	}
	return true;
}

#endif
