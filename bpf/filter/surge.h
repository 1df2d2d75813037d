/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * surge.h - detects a surge of packets of some kind.
 *
 * A surge begins when 64 of them have arrived within a window of 16 jiffies, some thousand
 * per second, and lasts for 1,024 jiffies.
 */
#ifndef LOXILB_SURGE_H
#define LOXILB_SURGE_H

#include <stdbool.h>
#include <linux/types.h>

#define SURGE_WINDOW 16 /* jiffies: 16 to 160 ms */
#define SURGE_PACKETS 64 /* in a window */
#define SURGE_PERIOD 1024 /* jiffies: 1 to 10 s */

/* CPUs write it without locks: a slightly wrong count does no harm. They rarely write
 * during a surge, when all of them read it. */
struct surge {
	volatile __u32 packets; /* in this window, at most SURGE_PACKETS */
	volatile __u32 window;
	volatile __u32 until; /* jiffies */
};

/* The value before the first surge. Jiffies wrap around 5 minutes after the kernel has
 * started, so with 0 all SYNs would be challenged for the last seconds before that. Jiffies
 * reach this value after 24 days or more, and once per wraparound: a short surge without
 * packets does no harm. */
#define SURGE_NEVER { .until = 1U << 31 }

/* Reports whether there is a surge. A time further away than a period is from before
 * jiffies wrapped around. */
static __always_inline bool surge_is_on(const struct surge *s, __u32 now)
{
	return s->until - now - 1 < SURGE_PERIOD;
}

/* Counts a packet of this kind. */
static __always_inline void surge_count(struct surge *s, __u32 now)
{
	__u32 window = now / SURGE_WINDOW;

	if (s->window != window) {
		s->window = window;
		s->packets = 0;
	}
	if (s->packets >= SURGE_PACKETS)
		return;
	s->packets++;
	if (s->packets >= SURGE_PACKETS)
		s->until = now + SURGE_PERIOD;
}

#endif
