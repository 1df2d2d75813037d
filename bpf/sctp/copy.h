/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * copy.h - sends copies of associations to other nodes (observe/copy.h), also when a client
 * has restarted: its tags are new, while the state is the same.
 */
#ifndef LOXILB_SCTP_COPY_H
#define LOXILB_SCTP_COPY_H

#include "observe/copy.h"
#include "protocol/sctp.h"

/* word: of c, before the packet whose events these are. peer: the other entry, or NULL. */
static __always_inline void sctp_copy_if_changed(const struct connection *c,
						 __u32 word,
						 const struct connection *peer,
						 __u8 events)
{
	const __u8 decides = CONN_ASSURED | SCTP_ESTABLISHED;

	if (!(events & decides) || state_read(c) & STATE_ENDED) {
		copy_if_changed(c, word, peer, IPPROTO_SCTP);
		return;
	}
	if (word & CONN_REPLY_DIRECTION)
		copy_send(peer, c, IPPROTO_SCTP);
	else
		copy_send(c, peer, IPPROTO_SCTP);
}

#endif
