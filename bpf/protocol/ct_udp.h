/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ct_udp.h - the UDP state of a connection: replied to, or not yet; assured once the
 * client has sent again after a reply, which proves that it exists.
 */
#ifndef LOXILB_CT_UDP_H
#define LOXILB_CT_UDP_H

#include "conntrack/conntrack.h"
#include "conntrack/established.h"
#include "limit/known.h"
#include "table/state.h"

/* Handles a packet that may change the state. Returns MISS if the connection has
 * ended. */
static __noinline enum verdict udp_transition(struct packet *p,
					      struct connection *c)
{
	const __u8 both = CONN_REPLIED | CONN_ASSURED;
	__u32 word = state_read(c), peer_word;
	struct connection_key key;
	struct connection *peer;

	if (word & CONN_RESET)
		return VERDICT_MISS;
	if (word & STATE_TRAIT(CONN_ONE_WAY)) {
		connection_is_assured_now(p, c, state_change(c, word, 0, both),
					  both);
		return VERDICT_CONTINUE;
	}
	connection_reverse(&key, c, p->tuple.protocol);
	peer = entry_find(&key);
	if (!peer)
		return VERDICT_CONTINUE;
	peer_word = state_read(peer);
	if (!connection_is_pair(&p->tuple, word, peer, peer_word))
		return drop(p, DROP_CONNECTION_RACE);
	if (word & CONN_REPLY_DIRECTION) {
		/* the peer may have been moved while this entry became assured */
		connection_record_both(peer, peer_word, c, word,
				       CONN_REPLIED |
					       (peer_word & CONN_ASSURED));
	} else {
		word = connection_record_both(c, word, peer, peer_word,
					      CONN_ASSURED);
		if (connection_is_assured_now(p, c, word, CONN_ASSURED))
			source_mark_known(p);
	}
	return connection_check_recorded(p, c, peer, &key);
}

static __always_inline enum verdict udp_update(struct packet *p,
					       struct connection *c)
{
	if (unlikely(!udp_is_settled(state_read(c)))) {
		enum verdict v = udp_transition(p, c);

		if (v != VERDICT_CONTINUE)
			return v;
	}
	c->seen = p->now;
	return VERDICT_CONTINUE;
}

#endif
