/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * packet_sum.h - sums over bytes of a packet at the tc hook, for the few packets whose
 * checksum is computed, not adjusted.
 */
#ifndef LOXILB_PACKET_SUM_H
#define LOXILB_PACKET_SUM_H

#include <linux/bpf.h>
#include "maps.h"
#include "packet/checksum.h"
#include "packet/ctx.h"

#define ICMP6_LARGEST 1280 /* RFC 4443 section 3.1 */

/* Returns the sum of length bytes of the packet, at most ICMP6_LARGEST. The memory
 * beyond them is cleared and added too: every kernel's verifier accepts parts of
 * fixed size, and bpf_csum_diff takes at most 512 bytes before 6.14. Global
 * (verifier: globals). */
__noinline __u32 packet_sum(ctx_t *ctx, __u32 from, __u32 length)
{
	__u32 use = SCRATCH_QUOTE, sum, last = length - 1;
	struct packet_scratch *s;

	s = bpf_map_lookup_elem(&packet_scratches, &use);
	/* 1 to ICMP6_LARGEST, both bounds visible (verifier: bounds) */
	asm volatile("" : "+r"(last));
	if (!s || last >= ICMP6_LARGEST)
		return 0;
	/* in two parts, since the compiler writes out at most 128 stores; it
	 * would join them without the barrier */
	__builtin_memset(s->words, 0, 640);
	asm volatile("" ::: "memory");
	__builtin_memset(s->words + 80, 0, 640);
	if (bpf_skb_load_bytes(ctx, from, s->words, last + 1))
		return 0;
	sum = bpf_csum_diff(NULL, 0, (void *)s->words, 512, 0);
	sum = bpf_csum_diff(NULL, 0, (void *)(s->words + 64), 512, sum);
	return sum_fold(
		bpf_csum_diff(NULL, 0, (void *)(s->words + 128), 256, sum));
}

#endif
