/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * clock.h - compares times that are stored as the lower 32 bits of the jiffies.
 *
 * They wrap around after 50 days at 1,000 Hz. By the sign of a difference, a time more
 * than half of that ago would seem to be in the future. So times that may be that old
 * are compared over the whole range.
 */
#ifndef LOXILB_CLOCK_H
#define LOXILB_CLOCK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* How far the CPU that stored a time may be ahead. */
#define JIFFIES_SKEW 16

/* Reports whether a time is at most a period ago. The period is far below the range. */
static __always_inline bool jiffies_within(__u32 since, __u32 now, __u32 period)
{
	return now - since + JIFFIES_SKEW <= period + JIFFIES_SKEW;
}

#endif
