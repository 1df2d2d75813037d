/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * flow.h - updates the state of a connection of any protocol but TCP: records the
 * events that its protocol reports (protocol/flow.h).
 */
#ifndef LOXILB_CONNTRACK_FLOW_H
#define LOXILB_CONNTRACK_FLOW_H

#include "conntrack/conntrack.h"
#include "limit/known.h"
#include "observe/copy.h"
#include "protocol/protocol.h"
#include "table/state.h"

/* Handles a packet that may change the state. Returns MISS if the connection is closed
 * and the packet opens another one. Global (verifier: globals). */
__noinline enum verdict flow_transition(struct packet *p, struct connection *c,
					__u64 hash)
{
	struct connection *peer;
	__u32 word, peer_word;
	__u8 events;

	if (!p || !c) /* verifier: null */
		return VERDICT_DROP;
	word = state_read(c);
	if (connection_is_closed(word) && protocol_opens(p))
		return VERDICT_MISS;
	if (word & STATE_TRAIT(CONN_ONE_WAY)) {
		events = protocol_events(p, word, 0);
		connection_count_assured(p, c, state_change(c, word, 0, events),
					 events);
		if (unlikely(copying))
			copy_if_changed(c, word, NULL, p->tuple.protocol);
		return VERDICT_CONTINUE;
	}
	peer = connection_peer_hashed(c, p->tuple.protocol, hash);
	if (!peer)
		return VERDICT_CONTINUE;
	peer_word = state_read(peer);
	if (!connection_is_pair(&p->tuple, word, peer, peer_word))
		return drop(p, DROP_CONNECTION_RACE);
	events = protocol_events(p, word, peer_word);
	if (word & CONN_REPLY_DIRECTION) {
		connection_record_both(peer, peer_word, c, word, events);
	} else {
		peer_word = connection_record_both(c, word, peer, peer_word,
						   events);
		/* without an answer, the client may be forged */
		if (connection_count_assured(p, c, peer_word, events) &&
		    word & CONN_REPLIED)
			source_mark_known(p);
	}
	if (unlikely(copying))
		copy_if_changed(c, word, peer, p->tuple.protocol);
	return connection_check_recorded(p, c, peer);
}

static __always_inline enum verdict
flow_update(struct packet *p, struct connection *c, __u64 hash)
{
	if (unlikely(!protocol_is_settled(p, state_read(c)))) {
		enum verdict v = flow_transition(p, c, hash);

		if (v != VERDICT_CONTINUE)
			return v;
	}
	c->seen = p->now;
	return VERDICT_CONTINUE;
}

#endif
