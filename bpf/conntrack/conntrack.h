/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * conntrack.h - the two entries of a connection, and the changes of its state.
 *
 * A connection is two entries of one table (table.h), one for each direction, which are
 * made and removed together. A packet needs one lookup, and finds all that it needs.
 * Rare events (SYN, FIN, RST, the end of the handshake) are recorded in both entries.
 * If the endpoint answers the client directly (CONN_ONE_WAY), there is only the
 * client's entry.
 */
#ifndef LOXILB_CONNTRACK_H
#define LOXILB_CONNTRACK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "shared.h"
#include "limit/limit.h"
#include "limit/pressure.h"
#include "observe/event.h"
#include "packet/address.h"
#include "packet/packet.h"
#include "protocol/protocol.h"
#include "table/rows.h"
#include "table/state.h"
#include "table/table.h"
#include "table/table_write.h"

/* Traits of an entry whose reverse key has no entry, or another connection's entry. */
#define CONN_SINGLE_ENTRY (CONN_RESTING | CONN_ONE_WAY)

/* Reports whether packets of an entry leave with this tuple. */
static __always_inline bool
connection_has_tuple(const struct connection *c,
		     const struct connection_key *tuple)
{
	return c->sport == tuple->sport && c->dport == tuple->dport &&
	       same_addr(&c->saddr, &tuple->saddr) &&
	       same_addr(&c->daddr, &tuple->daddr);
}

/* Reports whether packets of an entry answer packets with this tuple. */
static __always_inline bool
connection_answers(const struct connection *c,
		   const struct connection_key *tuple)
{
	return c->dport == tuple->sport && c->sport == tuple->dport &&
	       same_aligned(&c->daddr, &tuple->saddr) &&
	       same_aligned(&c->saddr, &tuple->daddr);
}

/* Makes the key of the other direction's entry. */
static __always_inline void connection_reverse(struct connection_key *key,
					       const struct connection *c,
					       __u8 protocol)
{
	key->saddr = c->daddr;
	key->daddr = c->saddr;
	key->sport = c->dport;
	key->dport = c->sport;
	key->protocol = unlikely(c->hop & HOP_FAMILY) ?
				family_protocol(protocol) :
				protocol;
	__builtin_memset(key->pad, 0, sizeof(key->pad));
}

static __always_inline struct connection *
connection_peer(const struct connection *c, __u8 protocol)
{
	struct connection_key key;

	connection_reverse(&key, c, protocol);
	return entry_find(&key);
}

/* Finds the other direction's entry by its key. A call, to save stack. */
static __noinline __maybe_unused struct connection *
connection_peer_by_key(const struct connection *c, __u8 protocol)
{
	struct connection_key key;

	connection_reverse(&key, c, protocol);
	return entry_find_established(&key, false);
}

/* Returns the entry of the other direction than c, for a packet of this protocol; NULL
 * if there is none. It is usually in the next row. hash: of entry_find_hashed(), which
 * has found c. */
static __always_inline struct connection *
connection_peer_hashed(const struct connection *c, __u8 protocol, __u64 hash)
{
	struct table_row *neighbor = row_neighbor(hash);

	if (likely(neighbor && neighbor->status & ROW_LIVE &&
		   neighbor->key.protocol == protocol &&
		   connection_answers(c, &neighbor->key)))
		return &neighbor->connection;
	return connection_peer_by_key(c, protocol);
}

/* Waits until the entry of the other direction is no longer being moved. A call, to
 * save stack. */
static __noinline __maybe_unused int
connection_settle_peer(const struct connection *c, __u8 protocol)
{
	struct connection_key key;

	connection_reverse(&key, c, protocol);
	return entry_settle(&key);
}

/* Reports whether a connection counts as active, according to its client's entry.
 * Limits, least connections and drains consider active connections only. Flows of
 * other protocols are active until they end. */
static __always_inline bool connection_is_active(__u32 word)
{
	return !connection_is_closed(word) && !connection_may_be_closed(word);
}

/* Adds to the active connections of an endpoint; n: this CPU's counts of it. While its
 * service compares loads, they are counted in one place for all CPUs. */
static __always_inline void endpoint_add_active(struct connection_count *n,
						const struct endpoint *ep,
						__u32 endpoint, __s32 by)
{
	struct endpoint_state *s;

	if (likely(!ep || !(ep->flags & ENDPOINT_COMPARED))) {
		__sync_fetch_and_add(&n->active, by);
		return;
	}
	s = endpoint_state_find(endpoint);
	if (s)
		__sync_fetch_and_add(&s->active, by);
}

/* Adds to the active connections of an endpoint, its service and a client. */
static __always_inline void active_count(__u32 endpoint,
					 const struct ip_addr *client, __s32 by)
{
	struct connection_count *n = connection_counts_find(endpoint);

	if (n)
		endpoint_add_active(n, endpoint_find(endpoint), endpoint, by);
	limit_count(endpoint, client, by);
}

/* Counts a change of a client's entry from word to next: the connection may have
 * closed, or be active again. The swap of the word decides which CPU counts, so
 * each change counts once. Global (verifier: globals). */
__noinline __maybe_unused int active_recount(__u32 endpoint,
					     const struct ip_addr *client,
					     __u32 word, __u32 next)
{
	bool was = connection_is_active(word), is = connection_is_active(next);

	if (client && was != is && !(word & STATE_ENDED))
		active_count(endpoint, client, is ? 1 : -1);
	return 0;
}

/* Bits of the state word by which connection_is_active() decides. */
#define STATE_ACTIVITY                                                  \
	(CONN_RESET | CONN_FIN_CLIENT_ACKED | CONN_FIN_ENDPOINT_ACKED | \
	 CONN_FIN_CLIENT | STATE_TRAIT(CONN_ONE_WAY))

/* Changes the client's entry like state_change(), and counts the connection again.
 * The endpoint and the client are read first: afterwards the row may belong to
 * another connection. */
static __always_inline __u32 client_change(struct connection *client,
					   const struct ip_addr *addr,
					   __u32 word, __u32 clear, __u32 set)
{
	const __u32 endpoint = client->endpoint;
	const struct ip_addr own = *addr;

	word = state_change(client, word, clear, set);
	if (unlikely((clear | set) & STATE_ACTIVITY &&
		     connection_is_active(word) !=
			     connection_is_active((word & ~clear) | set)))
		active_recount(endpoint, &own, word, (word & ~clear) | set);
	return word;
}

/* Records events in both entries, the client's first, since it decides. Returns the
 * word that was replaced there: of all CPUs that record CONN_ASSURED, exactly one
 * finds it absent, and the same for CONN_ENDED. If the client's entry is being moved
 * (grow.h), neither entry changes, and the caller retries when it is found again. */
static __noinline __maybe_unused __u32
connection_record_both(struct connection *client, __u32 client_word,
		       struct connection *reply, __u32 reply_word, __u8 events)
{
	if ((client_word & events) != events)
		client_word = client_change(client, &reply->daddr, client_word,
					    0, events);
	if (!(client_word & STATE_ENDED) && (reply_word & events) != events)
		state_change(reply, reply_word, 0, events);
	return client_word;
}

/* Like connection_record_both(), but c may be either of the two entries. */
static __always_inline __u32 connection_record(struct connection *c, __u32 word,
					       struct connection *peer,
					       __u32 peer_word, __u8 events)
{
	return word & CONN_REPLY_DIRECTION ?
		       connection_record_both(peer, peer_word, c, word,
					      events) :
		       connection_record_both(c, word, peer, peer_word, events);
}

/* Reports a connection to watchers, for a packet of its client. A call, to save
 * stack. */
static __noinline __maybe_unused void
connection_notify(const struct packet *p, const struct connection *c,
		  enum connection_event_kind kind)
{
	event_notify(&p->tuple, c, NULL, EVENT(kind, 0, p->tuple.protocol, 0));
}

/* Stops counting a connection as half-open if these events of a client's packet have
 * made it assured. word: the replaced word of the client's entry. Returns whether it
 * became assured. */
static __always_inline bool connection_count_assured(const struct packet *p,
						     const struct connection *c,
						     __u32 word, __u8 events)
{
	if (!(events & CONN_ASSURED) || word & (CONN_ASSURED | STATE_ENDED))
		return false;
	half_open_count_of(c->endpoint, p->tuple.protocol, -1);
	if (unlikely(watching))
		connection_notify(p, c, EVENT_ASSURED);
	return true;
}

/* Reports whether c, found by this key, and peer, found by c, are the entries of one
 * connection: c may have been removed meanwhile, and its row reused. */
static __always_inline bool connection_is_pair(const struct connection_key *key,
					       __u32 word,
					       const struct connection *peer,
					       __u32 peer_word)
{
	return state_is_same_generation(word, peer_word) &&
	       connection_answers(peer, key);
}

/* Checks that both entries have kept the events that a packet has recorded. AGAIN:
 * perhaps not, because another CPU was moving one (grow.h); the move is complete by
 * now. */
static __always_inline enum verdict
connection_check_recorded(struct packet *p, const struct connection *c,
			  const struct connection *peer)
{
	if (likely(states_are_of_pair(state_read(c), state_read(peer))))
		return VERDICT_CONTINUE;
	return connection_settle_peer(c, p->tuple.protocol) ?
		       drop(p, DROP_CONNECTION_RACE) :
		       VERDICT_AGAIN;
}

#endif
