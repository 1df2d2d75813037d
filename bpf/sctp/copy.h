/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * copy.h - sends copies of associations to other nodes (observe/copy.h), also after a
 * client's restart, which changes the tags but not the state.
 */
#ifndef LOXILB_SCTP_COPY_H
#define LOXILB_SCTP_COPY_H

#include "observe/copy.h"
#include "protocol/sctp.h"

/* word: of c, before the packet whose events these are, without repeated ones: a client could send
 * any number of copies. peer: the other entry, or NULL. Global (verifier: globals). */
__noinline __maybe_unused int
sctp_copy_if_changed(const struct connection *c, __u32 word,
		     const struct connection *peer, __u32 events)
{
	const __u32 decides = CONN_ASSURED | SCTP_ESTABLISHED;
	__u32 next;

	if (!c) /* verifier: null */
		return 0;
	next = state_read(c);
	if (!(events & decides && !(next & STATE_ENDED)) &&
	    !copy_is_due(word, next))
		return 0;
	return word & CONN_REPLY_DIRECTION ? copy_send(peer, c, IPPROTO_SCTP) :
					     copy_send(c, peer, IPPROTO_SCTP);
}

#endif
