/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * clock.h - compares times, of which 32 bits of the jiffies are kept.
 *
 * They turn round after 50 days at 1,000 Hz. The sign of a difference would take a time
 * that is more than half a turn ago for one to come, for the other half. So what nobody
 * removes for so long is compared with the whole turn.
 */
#ifndef LOXILB_CLOCK_H
#define LOXILB_CLOCK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

/* By so many at most the CPU that noted a time is ahead. */
#define JIFFIES_SKEW 16

/* Reports whether a time is no longer ago than a period, which is far below a turn. */
static __always_inline bool jiffies_within(__u32 since, __u32 now, __u32 period)
{
	return now - since + JIFFIES_SKEW <= period + JIFFIES_SKEW;
}

#endif
