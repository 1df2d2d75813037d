/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * checksum.h - ones' complement arithmetic (RFC 1071, incremental: RFC 1624).
 * Sums are in network order, which the arithmetic does not mind.
 */
#ifndef LOXILB_CHECKSUM_H
#define LOXILB_CHECKSUM_H

#include <linux/types.h>

static __always_inline __u16 sum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Two sums of 16 bits: folding their sum of 17 once is enough. */
static __always_inline __u16 sum_add(__u16 a, __u16 b)
{
	__u32 sum = (__u32)a + b;

	return (sum & 0xffff) + (sum >> 16);
}

/* A checksum field after the data it covers changed by delta. */
static __always_inline __u16 sum_replace(__u16 field, __u16 delta)
{
	return ~sum_add(~field, delta);
}

#endif
