/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * quiet.h - keeps segments of unknown connections unanswered for a while: after the
 * nodes of a cluster have changed, they may be of connections whose copies are about to
 * arrive. Their senders repeat them, where a RST would end the connections.
 */
#ifndef LOXILB_QUIET_H
#define LOXILB_QUIET_H

#include <stdbool.h>
#include <linux/types.h>
#include "config.h"

/* The longest time. A more distant one is from before jiffies wrapped around. */
#define QUIET_SECONDS 10

/* Until when, in jiffies; 0: not. quiet_hashed_until is for segments that their service
 * passes on by their hash. Written by user. */
volatile __u32 quiet_until SEC(".data.runtime") = 0;
volatile __u32 quiet_hashed_until SEC(".data.runtime") = 0;

static __always_inline bool is_quiet(__u32 now, bool hashed)
{
	const __u32 until = hashed ? quiet_hashed_until : quiet_until;

	return until && until - now <= QUIET_SECONDS * hz;
}

#endif
