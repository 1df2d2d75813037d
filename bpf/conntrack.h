/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * conntrack.h - finds, updates, creates and ends connections.
 *
 * A connection is two entries of one map, one for each direction, which are
 * made and removed together. A packet needs one look-up and finds there all
 * that it needs. Rare events (SYN, FIN, RST, the end of the handshake) look up
 * the other entry as well and are noted in both. If the endpoint answers the
 * client directly (CONN_ONE_WAY), there is the client's entry only.
 *
 * A connection is expired when both directions have been silent for longer
 * than the timeout of its state. The packet path treats an expired connection
 * as absent, whether or not the sweep has come by, so expiry is exact. Since
 * nothing revives an expired connection, the sweep may remove it without a
 * lock.
 */
#ifndef LOXILB_CONNTRACK_H
#define LOXILB_CONNTRACK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "rows.h"
#include "packet.h"

/* Traits of an entry whose reversed key has no entry, or another
 * connection's. */
#define CONN_SINGLE_ENTRY (CONN_RESTING | CONN_ONE_WAY)

static __always_inline bool same_addr(const struct ip_addr *a,
				      const struct ip_addr *b)
{
	return a->word[3] == b->word[3] && a->word[2] == b->word[2] &&
	       a->word[1] == b->word[1] && a->word[0] == b->word[0];
}

/* :: stands for no address in our maps. */
static __always_inline bool unspecified(const struct ip_addr *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

/* Returns the protocol in the other IP version: ICMP and ICMPv6 are two
 * protocols. */
static __always_inline __u8 family_protocol(__u8 protocol)
{
	if (protocol == IPPROTO_ICMP)
		return IPPROTO_ICMPV6;
	return protocol == IPPROTO_ICMPV6 ? IPPROTO_ICMP : protocol;
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
	return bpf_map_lookup_elem(&connections, &key);
}

/* Sets flags of an entry. Atomic, since the other direction may set one of its
 * own on another CPU. */
static __always_inline void connection_add_flags(struct connection *c,
						 __u8 flags)
{
	__sync_fetch_and_or((__u32 *)&c->flags, flags);
}

static __always_inline void connection_add_flags_both(struct connection *c,
						      struct connection *peer,
						      __u8 flags)
{
	if ((c->flags & flags) != flags)
		connection_add_flags(c, flags);
	if (peer && (peer->flags & flags) != flags)
		connection_add_flags(peer, flags);
}

static __always_inline bool connection_is_closed(__u8 flags)
{
	const __u8 acked = CONN_FIN_CLIENT_ACKED | CONN_FIN_ENDPOINT_ACKED;

	return (flags & CONN_RESET) || (flags & acked) == acked;
}

/* Has a UDP client got an answer? Where answers are not seen: has it sent more
 * than one packet? */
static __always_inline bool connection_is_replied(const struct connection *c)
{
	if (c->traits & CONN_ONE_WAY)
		return c->packets > 1;
	return c->flags & CONN_REPLIED;
}

/* Returns how long a connection in this state may be silent, in jiffies. */
static __always_inline __u32 connection_timeout(const struct connection *c,
						__u8 protocol)
{
	__u32 id = c->endpoint, *idle = NULL;
	struct endpoint *ep;

	if (protocol == IPPROTO_TCP) {
		if (connection_is_closed(c->flags))
			return timeout_tcp_closed;
		if (c->flags & (CONN_FIN_CLIENT | CONN_FIN_ENDPOINT))
			return timeout_tcp_closing;
		if (!(c->flags & CONN_ASSURED))
			return timeout_tcp_syn;
	}
	ep = endpoint_find(id);
	if (ep) {
		__u32 service = ep->service;

		idle = bpf_map_lookup_elem(&idle_timeouts, &service);
	}
	if (protocol == IPPROTO_TCP)
		return idle && *idle ? *idle : timeout_tcp_established;
	if (protocol == IPPROTO_UDP && connection_is_replied(c))
		return idle && *idle ? *idle : timeout_udp_replied;
	return idle && *idle && *idle < timeout_udp_unreplied ?
		       *idle :
		       timeout_udp_unreplied;
}

/* Have both directions been silent for longer than limit? The other entry is
 * looked up only if this direction has. */
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

/* Has the connection been silent for its timeout plus slack? Then no packet
 * belongs to it any more. */
static __always_inline bool connection_is_expired(const struct connection *c,
						  __u8 protocol, __u32 now,
						  __u32 slack)
{
	return connection_is_silent(c, protocol, now,
				    connection_timeout(c, protocol) + slack);
}

/* Is the connection expired, and is the quarantine of its source port over?
 * Then it may be removed. */
static __always_inline bool connection_is_removable(const struct connection *c,
						    __u8 protocol, __u32 now,
						    __u32 slack)
{
	__u32 limit = connection_timeout(c, protocol);

	if ((c->traits & CONN_SNAT) && limit < timeout_snat_rest)
		limit = timeout_snat_rest;
	return connection_is_silent(c, protocol, now, limit + slack);
}

/* Counts one connection less of a source address and an endpoint. */
static __always_inline void snat_usage_dec(const struct snat_pair *pair)
{
	struct snat_usage *u = table_row(&snat_usages, pair);

	if (u)
		__sync_fetch_and_add(&u->count, (__u32)-1);
}

/* The same, by the key of the reply entry. */
static __noinline void snat_release(const struct connection_key *reply)
{
	struct snat_pair pair = {
		.source = reply->daddr,
		.endpoint = reply->saddr,
		.port = reply->sport,
		.protocol = reply->protocol,
	};

	snat_usage_dec(&pair);
}

static __always_inline void endpoint_uncount(__u32 endpoint)
{
	struct endpoint_state *s = endpoint_state_find(endpoint);

	if (s)
		__sync_fetch_and_add(&s->active, (__u64)-1);
}

/* Removes both entries; returns false if there was none. Whoever removes the
 * client's entry also decreases the counts of the endpoint and of the source
 * port, so they are decreased once. */
static __always_inline bool connection_remove(const struct connection_key *key,
					      const struct connection *c)
{
	bool reply = c->flags & CONN_REPLY_DIRECTION;
	__u8 traits = c->traits;
	__u32 id = c->endpoint;
	struct connection_key other;
	long own, peer;

	connection_reverse(&other, c, key->protocol);
	own = bpf_map_delete_elem(&connections, key);
	if (unlikely(traits & CONN_SINGLE_ENTRY)) {
		if (own)
			return false;
		if (traits & CONN_RESTING)
			snat_release(key);
		else
			endpoint_uncount(id);
		return true;
	}
	peer = bpf_map_delete_elem(&connections, &other);
	if (reply ? peer : own)
		return !own || !peer;
	endpoint_uncount(id);
	if (unlikely(traits & CONN_SNAT))
		snat_release(reply ? key : &other);
	return true;
}

/* Removes a connection and quarantines its source port: the reply entry stays,
 * keeps the port from others, and takes no packets. */
static __noinline void connection_quarantine(const struct connection_key *key,
					     struct connection *c, __u32 now)
{
	bool reply = c->flags & CONN_REPLY_DIRECTION;
	struct connection *rests = c;
	struct connection_key other;
	__u32 id = c->endpoint;

	if (c->traits & CONN_RESTING)
		return;
	connection_reverse(&other, c, key->protocol);
	if (bpf_map_delete_elem(&connections, reply ? &other : key))
		return;
	endpoint_uncount(id);
	if (!reply)
		rests = bpf_map_lookup_elem(&connections, &other);
	if (!rests) {
		snat_release(&other);
		return;
	}
	if (connection_is_closed(rests->flags))
		rests->seen = now;
	__sync_fetch_and_or((__u32 *)&rests->flags,
			    CONN_RESET | CONN_RESTING << CONN_TRAITS_SHIFT);
}

/* Ends a connection that a packet has found to be expired or closed. */
static __always_inline void connection_discard(const struct connection_key *key,
					       struct connection *c, __u32 now)
{
	if (unlikely(c->traits & CONN_SNAT))
		connection_quarantine(key, c, now);
	else
		connection_remove(key, c);
}

#endif
