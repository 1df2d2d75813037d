/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * end.h - counts connections that begin, and ends them: exactly once, with both entries.
 */
#ifndef LOXILB_CONNTRACK_END_H
#define LOXILB_CONNTRACK_END_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <stdbool.h>
#include "maps.h"
#include "shared.h"
#include "conntrack/conntrack.h"
#include "conntrack/expiry.h"
#include "limit/pressure.h"
#include "observe/event.h"
#include "table/pair.h"
#include "table/rows.h"
#include "table/table_write.h"

/* Removes the count of a pair without connections. A connection that opens concurrently
 * finds the row retired, and the client repeats its packet. */
static __always_inline void snat_usage_retire(void *usages,
					      const struct snat_pair *pair,
					      struct snat_usage *u)
{
	if (!__sync_val_compare_and_swap(&u->count, 0, SNAT_RETIRED))
		bpf_map_delete_elem(usages, pair);
}

/* Counts connections of a source address and an endpoint. The sweep removes counts of
 * zero, which connections that endpoints open leave behind. While it is late, the last
 * connection removes its count. */
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
	struct connection_count *n = connection_counts_find(endpoint);

	if (n)
		__sync_fetch_and_add(&n->tracked, -1);
}

/* Counts a connection that is about to begin: for its endpoint (n: this CPU's counts of
 * it), as half-open, and for its service and client. Called before others can see the
 * connection, so it is counted before any CPU assures or ends it, and no sum drops
 * below zero. */
static __always_inline void connection_begins(struct connection_count *n,
					      __u32 endpoint,
					      const struct ip_addr *client,
					      __u8 protocol)
{
	const struct endpoint *ep = endpoint_find(endpoint);

	__sync_fetch_and_add(&n->tracked, 1);
	if (likely(ep))
		half_open_count(ep->service, protocol, 1);
	endpoint_add_active(n, ep, endpoint, 1);
	limit_count(endpoint, client, 1);
}

/* Counts a connection that has begun. */
static __always_inline void connection_has_begun(struct connection_count *n)
{
	__sync_fetch_and_add(&n->connections, 1);
}

/* Stops counting a connection. Called by the CPU that has ended it, or could not begin
 * it. word: the last word of the client's entry, with CONN_ASSURED iff the connection
 * became assured. */
static __noinline __maybe_unused void
connection_ended(__u32 endpoint, const struct ip_addr *client, __u32 word,
		 __u8 protocol)
{
	if (!(word & CONN_ASSURED))
		half_open_count_of(endpoint, protocol, -1);
	if (connection_is_active(word))
		active_count(endpoint, client, -1);
	/* last: user space reuses the row of a removed endpoint when its count is
	 * zero */
	endpoint_untrack(endpoint);
}

/* Begins the next connection in the reply entry, if another CPU was moving that entry
 * when the connection began in the client's. */
static __always_inline void reply_begin_next(const struct connection_key *key,
					     __u32 word, __u32 clear,
					     __u32 next)
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
 * entries; events: already seen of the new connection. key: of the reply entry. The
 * caller has counted the new connection. Of two CPUs, one succeeds. */
static __noinline __maybe_unused bool
connection_begin_next(struct connection *client, __u32 word,
		      const struct connection_key *key,
		      struct connection *reply, __u8 events)
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
		reply_begin_next(key, word, clear, next);
	return true;
}

/* Treatment of an ending connection's source port. */
enum port_fate {
	PORT_IS_FREE,
	PORT_RESTS, /* for timeout_snat_rest after the last packet */
	PORT_RESTS_FROM_NOW,
};

/* Deletes an entry like entry_remove(), and frees the source port of a reply entry. more:
 * further bits of entry_remove()'s argument, in addition to the word. */
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
static __always_inline void reply_quarantine(const struct connection_key *key,
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

/* Ends a reply entry without a client's entry: its port has rested, or it is an orphan.
 * Also deletes an entry that could not be deleted when its connection ended. */
static __always_inline bool reply_end(const struct connection_key *key,
				      struct connection *c, __u32 word)
{
	if (state_is_leftover(word))
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
	/* opaque, so the compiler keeps it instead of client and c, to save stack */
	asm volatile("" : "+r"(reply));
	if (likely(!(word & STATE_TRAIT(CONN_SNAT | CONN_ONE_WAY))) &&
	    likely(pair_remove(reply ? &other : key, reply ? key : &other,
			       more)))
		return true;
	if (unlikely(fate != PORT_IS_FREE && word & STATE_TRAIT(CONN_SNAT)))
		reply_quarantine(reply ? key : &other, fate);
	else if (likely(!(word & STATE_TRAIT(CONN_ONE_WAY))))
		more |= entry_delete(reply ? key : &other,
				     word | CONN_REPLY_DIRECTION, more);
	entry_delete(reply ? &other : key,
		     (word & ~CONN_REPLY_DIRECTION) | STATE_ENDED, more);
	return true;
}

/* Ends a connection by its reply entry, and reports the end to watchers if they need
 * its counts. */
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

/* Returns the treatment of the source port of a connection that a packet found expired
 * or closed. */
static __always_inline enum port_fate port_fate(__u32 word)
{
	return connection_is_closed(word) ? PORT_RESTS_FROM_NOW : PORT_RESTS;
}

/* Ends a connection that a packet found expired or closed. */
static __always_inline bool connection_discard(const struct connection_key *key,
					       struct connection *c, __u32 word)
{
	return connection_end_by_reply(key, c, word, port_fate(word));
}

#endif
