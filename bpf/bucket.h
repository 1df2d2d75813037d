/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bucket.h - token buckets: how often something may be done.
 */
#ifndef LOXILB_BUCKET_H
#define LOXILB_BUCKET_H

#include <stdbool.h>
#include "abi.h"
#include "config.h"

/* Takes a token, of which rate come in a second and size are kept at most.
 * Returns whether there was one. A bucket of zeros fills at once. */
static __always_inline bool bucket_take(struct token_bucket *b, __u32 rate,
					__u32 size, __u32 now)
{
	__u32 elapsed = now - b->since, more;

	if (elapsed > hz)
		elapsed = hz;
	more = elapsed * rate / hz;
	if (more) {
		b->since = now;
		b->tokens += more;
		if (b->tokens > size)
			b->tokens = size;
	}
	if (!b->tokens)
		return false;
	b->tokens--;
	return true;
}

#endif
