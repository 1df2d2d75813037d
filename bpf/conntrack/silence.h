/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * silence.h - recognizes entries that may be expired. A packet of any other entry reads
 * no timeout.
 */
#ifndef LOXILB_SILENCE_H
#define LOXILB_SILENCE_H

#include <stdbool.h>
#include "abi.h"
#include "packet/packet.h"

/* An entry that was silent for longer than this, in jiffies, may be expired:
 * 0.26 to 2.6 s, by CONFIG_HZ. A constant, since reading hz would cost two
 * instructions. */
#define SILENCE_LIMIT 256

static __always_inline bool connection_was_silent(const struct packet *p,
						  const struct connection *c)
{
	return (__s32)(p->now - c->seen) > SILENCE_LIMIT;
}

#endif
