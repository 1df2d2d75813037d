/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * conntrack.h - finds, updates, creates and ends connections.
 *
 * A connection is two entries of one table (table.h), one for each direction,
 * which are made and removed together. A packet needs one look-up and finds there all
 * that it needs. Rare events (SYN, FIN, RST, the end of the handshake) look up
 * the other entry as well and are noted in both. If the endpoint answers the
 * client directly (CONN_ONE_WAY), there is the client's entry only.
 *
 * A connection is expired when both directions have been silent for longer
 * than the timeout of its state. The packet path treats an expired connection
 * as absent, whether or not the sweep has come by, so expiry is exact. Nothing
 * revives an expired connection: the sweep need not keep packets out while it
 * judges one.
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
#include "limit/port_pressure.h"
#include "limit/pressure.h"
#include "observe/event.h"
#include "packet/address.h"
#include "packet/packet.h"
#include "protocol/protocol.h"
#include "table/rows.h"
#include "table/state.h"
#include "table/table.h"
#include "table/table_write.h"

/* Traits of an entry whose reverse key has no entry, or that of another connection. */
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

/* Reports whether packets of an entry answer those with this tuple. */
static __always_inline bool
connection_answers(const struct connection *c,
		   const struct connection_key *tuple)
{
	return c->dport == tuple->sport && c->sport == tuple->dport &&
	       same_addr(&c->daddr, &tuple->saddr) &&
	       same_addr(&c->saddr, &tuple->daddr);
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

/* Returns the entry of the other direction than c, for a packet of this protocol: mostly
 * it is in the row beside. hash: of entry_find_hashed(), which has found c. NULL: there
 * is none. */
static __always_inline struct connection *
connection_peer_hashed(const struct connection *c, __u8 protocol, __u64 hash)
{
	struct table_row *beside = row_beside(hash);

	if (likely(beside && beside->status & ROW_LIVE &&
		   beside->key.protocol == protocol &&
		   connection_answers(c, &beside->key)))
		return &beside->connection;
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

/* Adds to the active connections of an endpoint, its service and a client. */
static __always_inline void active_count(__u32 endpoint,
					 const struct ip_addr *client, __s32 by)
{
	struct endpoint_state *s = endpoint_state_find(endpoint);

	if (s)
		__sync_fetch_and_add(&s->active, by);
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

/* Does the same; c may be either of the two entries. */
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

/* Stops counting a connection as half-open if these events have made it assured. It
 * was the client's packet. word: what was replaced in the client's entry. Returns
 * whether it became assured. */
static __always_inline bool
connection_is_assured_now(const struct packet *p, const struct connection *c,
			  __u32 word, __u8 events)
{
	if (!(events & CONN_ASSURED) || word & (CONN_ASSURED | STATE_ENDED))
		return false;
	half_open_count(c->endpoint, p->tuple.protocol, -1);
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

/* Reports whether both entries have kept what a packet has recorded in them. AGAIN:
 * perhaps not, because another CPU was moving one (grow.h); that is finished by now. */
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

/* Reports whether a connection in this state is half-open and has a source port of ours
 * while those are short. */
static __always_inline bool port_returns_early(__u32 word)
{
	return !(word & CONN_ASSURED) && word & STATE_TRAIT(CONN_SNAT) &&
	       port_pressure_is_on((__u32)bpf_jiffies64());
}

/* Returns the service's own timeout, in jiffies; 0: it has none. */
static __always_inline __u32 idle_timeout_of(__u32 endpoint)
{
	const struct endpoint *ep = endpoint_find(endpoint);
	__u32 service, *idle;

	if (!ep)
		return 0;
	service = ep->service;
	idle = bpf_map_lookup_elem(&idle_timeouts, &service);
	return idle ? *idle : 0;
}

/* Applies the service's own timeout. */
static __always_inline __u32 timeout_of_service(const struct timeout *t,
						__u32 endpoint)
{
	__u32 usual = t->usual, idle;

	if (t->idle == IDLE_IGNORED)
		return usual;
	idle = idle_timeout_of(endpoint);
	if (idle && (t->idle == IDLE_REPLACES || idle < usual))
		usual = idle;
	return usual > t->least ? usual : t->least;
}

/* Returns how long a connection in this state may be silent, in jiffies. A flow's
 * timeout shrinks gradually as the table fills, and at once if it has a source port of
 * ours while those are short. Global (verifier: globals). */
__noinline __maybe_unused __u32 connection_timeout(__u32 endpoint, __u32 word,
						   __u8 protocol)
{
	struct timeout t;
	__u32 usual;

	if (!(word & CONN_ASSURED) &&
	    (pressure_of_half_open(endpoint, protocol) ||
	     port_returns_early(word)))
		return protocol_of(protocol).has_handshake &&
				       connection_is_closed(word) ?
			       timeout_by_pressure(timeout_half_open_pressed,
						   timeout_closed_pressed) :
			       timeout_half_open_pressed;
	t = protocol_timeout(protocol, word);
	usual = timeout_of_service(&t, endpoint);
	if (t.pressed >= usual)
		return usual;
	if (t.by_ports && word & STATE_TRAIT(CONN_SNAT) &&
	    port_pressure_is_on((__u32)bpf_jiffies64()))
		return t.pressed;
	return timeout_by_pressure(usual, t.pressed);
}

/* Reports whether both directions have been silent for longer than limit. The other
 * entry is looked up only if this direction has. */
static __always_inline bool connection_is_silent(const struct connection *c,
						 __u8 protocol, __u32 now,
						 __s32 limit)
{
	const struct connection *peer;

	if ((__s32)(now - c->seen) <= limit)
		return false;
	if (c->traits & CONN_SINGLE_ENTRY)
		return true;
	peer = connection_peer(c, protocol);
	return !peer || (__s32)(now - peer->seen) > limit;
}

/* Reports whether the connection has been silent for its timeout plus slack. Then no
 * packet belongs to it any more. */
static __always_inline bool connection_is_expired(const struct connection *c,
						  __u8 protocol, __u32 now,
						  __u32 slack)
{
	return connection_is_silent(
		c, protocol, now,
		connection_timeout(c->endpoint, state_read(c), protocol) +
			slack);
}

/* Returns the length of the quarantine of the source port of a connection in this
 * state. A call, to save stack. */
static __noinline __maybe_unused __u32 port_quarantine(__u32 word)
{
	return port_returns_early(word) ?
		       timeout_snat_rest_pressed :
		       timeout_by_pressure(timeout_snat_rest,
					   timeout_snat_rest_pressed);
}

/* Reports whether the connection is expired and the quarantine of its source port is
 * over, so it may be removed. */
static __always_inline bool connection_is_removable(const struct connection *c,
						    __u8 protocol, __u32 now,
						    __u32 slack)
{
	const __u32 word = state_read(c);
	__u32 rest = port_quarantine(word);
	__u32 limit = c->traits & CONN_RESTING ?
			      rest :
			      connection_timeout(c->endpoint, word, protocol);

	if ((c->traits & CONN_SNAT) && limit < rest)
		limit = rest;
	/* under pressure, soon */
	if (limit <= timeout_half_open_pressed)
		slack /= 4;
	return connection_is_silent(c, protocol, now, limit + slack);
}

/* Reports whether the entry was just made. The other one may be missing until then. */
static __always_inline bool connection_is_new(const struct connection *c)
{
	return (__s32)((__u32)bpf_jiffies64() - c->seen) <= (__s32)(2 * hz);
}

/* Reports whether the entry is all that is left of a connection. */
static __always_inline bool connection_is_orphan(const struct connection *c,
						 __u8 protocol)
{
	return !(c->traits & CONN_SINGLE_ENTRY) && !connection_is_new(c) &&
	       !connection_peer(c, protocol);
}

/* Reports whether a new connection may take the key of this one: if the old one is
 * expired or closed, and its source port, if it is one of ours, has left quarantine
 * or was the same client's; or if only one of its entries is left. */
static __noinline __maybe_unused bool
connection_is_replaceable(const struct connection *old, const struct packet *p,
			  __u8 protocol)
{
	if (connection_is_orphan(old, protocol))
		return true;
	if ((old->traits & CONN_SNAT) &&
	    !(same_addr(&old->daddr, &p->tuple.saddr) &&
	      old->dport == p->tuple.sport))
		return connection_is_removable(old, protocol, p->now, 0);
	return connection_is_closed(old->flags) ||
	       connection_is_expired(old, protocol, p->now, 0);
}

/* Removes the count of a pair without connections. A connection that opens at the
 * same moment finds the row retired, and the client repeats its packet. */
static __always_inline void snat_usage_retire(void *usages,
					      const struct snat_pair *pair,
					      struct snat_usage *u)
{
	if (!__sync_val_compare_and_swap(&u->count, 0, SNAT_RETIRED))
		bpf_map_delete_elem(usages, pair);
}

/* Counts connections of a source address and an endpoint. The sweep removes counts of
 * zero, which connections from endpoints to anywhere leave behind. While it is late,
 * the last connection removes its count. */
static __always_inline void snat_usage_add(const struct snat_pair *pair,
					   __s32 by)
{
	void *usages = lazy_hash_get(&snat_usages);
	struct snat_usage *u =
		usages ? bpf_map_lookup_elem(usages, pair) : NULL;

	if (u && __sync_fetch_and_add(&u->count, by) + by == 0 &&
	    unlikely(sweep_is_late((__u32)bpf_jiffies64())))
		snat_usage_retire(usages, pair, u);
}

/* Decrements the count of a pair, given the key of the reply entry. */
static __noinline void snat_release(const struct connection_key *reply)
{
	struct snat_pair pair = {
		.source = reply->daddr,
		.endpoint = reply->saddr,
		.port = reply->sport,
		.protocol = reply->protocol,
	};

	snat_usage_add(&pair, -1);
}

static __always_inline void endpoint_untrack(__u32 endpoint)
{
	struct endpoint_state *s = endpoint_state_find(endpoint);

	if (s)
		__sync_fetch_and_add(&s->tracked, (__u64)-1);
}

/* Counts a connection that is about to begin: for its endpoint, as half-open, and for
 * its service and client. Called before others can see the connection, so it is
 * counted before any CPU assures or ends it, and no number drops below zero. */
static __always_inline void connection_begins(struct endpoint_state *s,
					      __u32 endpoint,
					      const struct ip_addr *client,
					      __u8 protocol)
{
	__sync_fetch_and_add(&s->tracked, 1);
	half_open_count(endpoint, protocol, 1);
	active_count(endpoint, client, 1);
}

/* Stops counting a connection. Called by the CPU that has ended it, or could not
 * begin it. word: the last one of the client's entry; CONN_ASSURED is in it iff the
 * connection became assured. */
static __noinline __maybe_unused void
connection_ended(__u32 endpoint, const struct ip_addr *client, __u32 word,
		 __u8 protocol)
{
	if (!(word & CONN_ASSURED))
		half_open_count(endpoint, protocol, -1);
	if (connection_is_active(word))
		active_count(endpoint, client, -1);
	/* last: user space reuses the row of a removed endpoint when its count is
	 * zero */
	endpoint_untrack(endpoint);
}

/* Begins the next connection in the reply entry, if another CPU was moving that entry
 * when the connection began in the client's. */
static __always_inline void reply_succeed(const struct connection_key *key,
					  __u32 word, __u32 clear, __u32 next)
{
	struct connection *reply;
	__u32 now;

	if (entry_settle(key))
		return;
	reply = entry_find(key);
	if (!reply)
		return;
	now = state_read(reply);
	if (state_is_same_generation(now, word))
		state_change(reply, now, clear, next);
}

/* Ends a TCP connection and begins the next one, of the next generation, in the same
 * entries; events is what the new one has seen already. key: of the reply entry. The
 * caller has counted the new connection. Of two CPUs, one succeeds. */
static __noinline __maybe_unused bool
connection_succeed(struct connection *client, __u32 word,
		   const struct connection_key *key, struct connection *reply,
		   __u8 events)
{
	const __u32 proxy = STATE_PROXY_ACKED | STATE_PROXY_PAST;
	const __u32 clear =
		~((STATE_HOP & ~proxy) | (STATE_TRAITS & ~STATE_TCP));
	__u32 next = state_next_generation(word) | events, now;
	const __u32 endpoint = client->endpoint; /* as in client_change() */

	word = state_change(client, word, clear, next);
	if (word & STATE_ENDED)
		return false;
	connection_ended(endpoint, &reply->daddr, word, IPPROTO_TCP);
	if (unlikely(watching))
		event_notify(NULL, client, reply,
			     EVENT(EVENT_ENDED, CAUSE_REPLACED, IPPROTO_TCP,
				   word));
	next |= CONN_REPLY_DIRECTION;
	now = state_read(reply);
	if (unlikely(!state_is_same_generation(now, word) ||
		     state_change(reply, now, clear, next) & STATE_ENDED))
		reply_succeed(key, word, clear, next);
	return true;
}

/* What happens to the source port of a connection that ends. */
enum port_fate {
	PORT_IS_FREE,
	PORT_RESTS, /* for timeout_snat_rest after the last packet */
	PORT_RESTS_FROM_NOW,
};

/* Deletes an entry like entry_remove(); more: what to pass to it with the word.
 * Deleting a reply entry frees its source port. */
static __always_inline __u64 entry_delete(const struct connection_key *key,
					  __u32 word, __u64 more)
{
	const __u32 ours = CONN_REPLY_DIRECTION | STATE_TRAIT(CONN_SNAT);
	__u64 removed = entry_remove(key, REMOVE_WORD(word) | more);

	if (unlikely(removed && (word & ours) == ours))
		snat_release(key);
	return removed;
}

/* Keeps the source port of an ended connection in quarantine: its reply entry stays,
 * and matches no packets. */
static __always_inline void reply_rest(const struct connection_key *key,
				       enum port_fate fate)
{
	const __u32 rests = STATE_TRAIT(CONN_RESTING) | CONN_RESET;
	struct connection *c;

	/* twice, as it may be being moved (grow.h) */
	NO_UNROLL
	for (int i = 0; i < 2; i++) {
		c = entry_find(key);
		if (!c)
			return;
		if (fate == PORT_RESTS_FROM_NOW)
			c->seen = (__u32)bpf_jiffies64();
		if (!(state_change(c, state_read(c), 0, rests) & STATE_ENDED))
			return;
		if (entry_settle(key))
			return;
	}
}

/* Ends a reply entry without a client's entry: one whose port has rested, or an
 * orphan. Also deletes an entry that could not be deleted when its connection ended. */
static __always_inline bool reply_end(const struct connection_key *key,
				      struct connection *c, __u32 word)
{
	if (state_is_left(word))
		return entry_delete(key, word, REMOVE_COUNTS);
	word = state_change(c, word, 0, STATE_ENDED | CONN_RESET);
	if (word & STATE_ENDED)
		return false;
	entry_delete(key, word, REMOVE_COUNTS);
	return true;
}

/* Ends a connection and deletes its entries. Returns whether this CPU has ended it.
 * word: the entry's, read before the connection was found to be over.
 *
 * The client's entry decides: the CPU that sets CONN_ENDED there stops counting the
 * connection and deletes both entries, the client's last. No other CPU deletes them,
 * so no entry of another connection is deleted. Global (verifier: globals). */
__noinline bool connection_end(const struct connection_key *key,
			       struct connection *c, __u32 word,
			       enum port_fate fate)
{
	struct connection *client = c;
	struct connection_key other;
	__u64 more = REMOVE_COUNTS;
	bool reply;

	if (!key || !c) /* verifier: null */
		return false;
	if (unlikely(word & STATE_TRAIT(CONN_RESTING)))
		return fate == PORT_IS_FREE && reply_end(key, c, word);
	connection_reverse(&other, c, key->protocol);
	if (word & CONN_REPLY_DIRECTION) {
		__u32 reply_word = word;

		client = entry_find(&other);
		if (!client)
			return !connection_is_new(c) && reply_end(key, c, word);
		word = state_read(client);
		if (!state_is_same_generation(word, reply_word))
			return false;
	}
	word = state_change(client, word, 0, STATE_ENDED | CONN_RESET);
	if (word & STATE_ENDED)
		return false;
	if (unlikely(watching))
		event_notify(client == c ? key : NULL, client,
			     client == c ? NULL : c,
			     EVENT(EVENT_ENDED,
				   fate == PORT_RESTS_FROM_NOW ? CAUSE_REMOVED :
								 CAUSE_STATE,
				   key->protocol, word));
	connection_ended(client->endpoint,
			 client == c ? &key->saddr : &other.saddr, word,
			 key->protocol);
	reply = client != c;
	/* from here on it stands for both, which are not kept on the stack */
	asm volatile("" : "+r"(reply));
	if (unlikely(fate != PORT_IS_FREE && word & STATE_TRAIT(CONN_SNAT)))
		reply_rest(reply ? key : &other, fate);
	else if (likely(!(word & STATE_TRAIT(CONN_ONE_WAY))))
		more |= entry_delete(reply ? key : &other,
				     word | CONN_REPLY_DIRECTION, more);
	entry_delete(reply ? &other : key,
		     (word & ~CONN_REPLY_DIRECTION) | STATE_ENDED, more);
	return true;
}

/* Does the same by the reply entry, and reports the end to watchers if they need its
 * counts. */
static __always_inline bool
connection_end_by_reply(const struct connection_key *key, struct connection *c,
			__u32 word, enum port_fate fate)
{
	const __u32 alone = CONN_REPLY_DIRECTION | STATE_TRAIT(CONN_ONE_WAY);
	struct connection_key answers;
	struct connection *reply;

	if (likely(!watching) || word & alone)
		return connection_end(key, c, word, fate);
	connection_reverse(&answers, c, key->protocol);
	reply = entry_find(&answers);
	if (!reply || !state_is_same_generation(word, state_read(reply)))
		return connection_end(key, c, word, fate);
	return connection_end(&answers, reply, state_read(reply), fate);
}

/* Returns what happens to the source port of a connection that a packet found expired
 * or closed. */
static __always_inline enum port_fate port_fate(__u32 word)
{
	return connection_is_closed(word) ? PORT_RESTS_FROM_NOW : PORT_RESTS;
}

/* Ends such a connection. */
static __always_inline bool connection_discard(const struct connection_key *key,
					       struct connection *c, __u32 word)
{
	return connection_end_by_reply(key, c, word, port_fate(word));
}

#endif
