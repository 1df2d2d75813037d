/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * flow.h - the states of flows, which have neither beginning nor end: UDP, and echoes
 * of ICMP. A flow is replied to, or not yet; assured once the client has sent again
 * after a reply, which proves that it exists.
 */
#ifndef LOXILB_FLOW_H
#define LOXILB_FLOW_H

#include <linux/types.h>
#include <stdbool.h>
#include "abi.h"
#include "config.h"
#include "protocol/facts.h"

/* The flow is a tunnel of GTP-U, which has no answers: endpoints send to the base station by a
 * tunnel of their own (gtp/source_port.h). The client's second packet sets CONN_REPLIED, and
 * CONN_ASSURED as always; otherwise the flow would count as half-open until it expires. */
#define STATE_TUNNEL ((__u32)HOP_NO_XDP << STATE_HOP_SHIFT)

/* Reports whether a packet leaves the state unchanged. The endpoint's first answer,
 * and the client's packet after it, do not; where answers are not seen, the client's
 * second packet does not. */
static __always_inline bool flow_is_settled(__u32 word)
{
	const __u32 done = CONN_REPLIED | CONN_ASSURED;
	const __u32 replied = CONN_REPLIED | CONN_REPLY_DIRECTION;

	return (word & (done | CONN_RESET)) == done ||
	       (word & (replied | CONN_RESET)) == replied ||
	       !(word & (replied | CONN_RESET | STATE_TRAIT(CONN_ONE_WAY) |
			 STATE_TUNNEL));
}

/* Returns the events that a packet adds to the state. peer_word is the state word of
 * the other direction's entry, whose table row may move at the same time; 0 if
 * answers are not seen. */
static __always_inline __u8 flow_events(__u32 word, __u32 peer_word)
{
	if (word & STATE_TRAIT(CONN_ONE_WAY))
		return CONN_REPLIED | CONN_ASSURED;
	if (word & CONN_REPLY_DIRECTION)
		return CONN_REPLIED | (peer_word & CONN_ASSURED);
	return CONN_ASSURED | (word & STATE_TUNNEL ? CONN_REPLIED : 0);
}

/* Returns the timeout of a flow: short, since the client is not proven to exist. */
static __always_inline struct timeout flow_timeout(__u32 usual, __u32 pressed,
						   enum idle_timeout idle)
{
	return (struct timeout){
		.usual = usual,
		.pressed = pressed,
		.idle = idle,
		.by_ports = true,
	};
}

#endif
