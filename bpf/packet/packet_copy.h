/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * packet_copy.h - copies the beginning of a packet.
 */
#ifndef LOXILB_PACKET_COPY_H
#define LOXILB_PACKET_COPY_H

#include "packet/ctx.h"

/* Copies at most len bytes, and at most the constant most. Returns how many. */
static __always_inline __u16 packet_copy(ctx_t *ctx, void *to, __u32 len,
					 const __u32 most)
{
	if (len > most)
		len = most;
	/* Two comparisons: the compiler would merge them into one of len - 1, from
	 * which Linux 6.1 cannot derive the range of len. */
	asm volatile("" : "+r"(len)); /* verifier: bounds */
	if ((__s32)len > 0) {
		asm volatile("" : "+r"(len)); /* verifier: bounds */
		if (len <= most && !ctx_load(ctx, to, len))
			return len;
	}
	return 0;
}

#endif
