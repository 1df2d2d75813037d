/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * established.h - what packets of established connections read and change. The XDP
 * program uses no other part of connection state.
 */
#ifndef LOXILB_ESTABLISHED_H
#define LOXILB_ESTABLISHED_H

#include <stdbool.h>
#include "abi.h"
#include "packet/packet.h"
#include "packet/parse.h"
#include "table/state.h"

/* An entry that was silent for longer than this, in jiffies, may be expired:
 * 0.26 to 2.6 s, by CONFIG_HZ. A constant, since reading hz would cost two
 * instructions. */
#define SILENCE_LIMIT 256

static __always_inline bool connection_was_silent(const struct packet *p,
						  const struct connection *c)
{
	return (__s32)(p->now - c->seen) > SILENCE_LIMIT;
}

/* How far ahead of the numbers seen in its direction a segment may be, in bytes sent
 * and in bytes acknowledged: the most that may be lost at once before it reaches us.
 * A power of two. */
#define TCP_MAX_AHEAD (1U << 22)

static __always_inline bool tcp_is_established(__u8 flags)
{
	return (flags & ~CONN_REPLY_DIRECTION) == (CONN_REPLIED | CONN_ASSURED);
}

/* Reports whether a segment continues what was seen of its direction, such that only
 * the real sender could know its numbers: both are exact or a little ahead, or one is
 * exact (docs/adr/0021-believe-nobody.md). Old segments do not. */
static __always_inline bool tcp_continues(const struct packet *p,
					  const struct connection *c)
{
	__u32 sent = p->seq_end - c->seq_end, acked = p->ack - c->ack;

	if (likely((sent | acked) < TCP_MAX_AHEAD))
		return true;
	return (!sent && (__s32)acked > 0) || (!acked && (__s32)sent > 0);
}

/* Records how far this direction has sent and acknowledged. */
static __always_inline void tcp_record_sequence(const struct packet *p,
						struct connection *c)
{
	if (likely(p->tcp_flags & TCP_ACK) && tcp_continues(p, c)) {
		c->seq_end = p->seq_end;
		c->ack = p->ack;
	}
}

/* Reports whether a packet other than TCP leaves the state unchanged. The endpoint's
 * first answer, and the client's packet after it, do not; where answers are not seen,
 * the client's second packet does not. */
static __always_inline bool udp_is_settled(__u32 word)
{
	const __u32 done = CONN_REPLIED | CONN_ASSURED;
	const __u32 replied = CONN_REPLIED | CONN_REPLY_DIRECTION;

	return (word & (done | CONN_RESET)) == done ||
	       (word & (replied | CONN_RESET)) == replied ||
	       !(word & (replied | CONN_RESET | STATE_TRAIT(CONN_ONE_WAY)));
}

#endif
