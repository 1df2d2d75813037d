/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * conntrack.h - find, touch, create and end connections.
 *
 * A connection is two entries of one map, one for each direction, which live
 * and die together: each packet needs one lookup and finds there all that it
 * needs. Rare events (SYN, FIN, RST, the end of the handshake) look up the
 * other entry too and note the event in both.
 *
 * Time: an entry whose direction has been silent for longer than the timeout
 * of its state is past its time, a connection both of whose entries are is
 * dead. The packet path treats a dead connection as absent, whether or not the
 * sweep has come by, so expiry is exact; and since nothing revives a dead
 * connection, the sweep may remove one without a lock.
 */
#ifndef LOXILB_CONNTRACK_H
#define LOXILB_CONNTRACK_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/in.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "packet.h"

/* The key of the other direction's entry. */
static __always_inline void connection_reverse(struct connection_key *key,
					       const struct connection *c,
					       __u8 protocol)
{
	key->saddr = c->daddr;
	key->daddr = c->saddr;
	key->sport = c->dport;
	key->dport = c->sport;
	key->protocol = protocol;
	__builtin_memset(key->pad, 0, sizeof(key->pad));
}

static __always_inline struct connection *
connection_peer(const struct connection *c, __u8 protocol)
{
	struct connection_key key;

	connection_reverse(&key, c, protocol);
	return bpf_map_lookup_elem(&connections, &key);
}

/* Notes an event in an entry. Atomic, as the other direction may be noting
 * one of its own on another CPU. */
static __always_inline void connection_note(struct connection *c, __u8 flags)
{
	__sync_fetch_and_or((__u32 *)&c->flags, flags);
}

static __always_inline void
connection_note_both(struct connection *c, struct connection *peer, __u8 flags)
{
	if ((c->flags & flags) != flags)
		connection_note(c, flags);
	if (peer && (peer->flags & flags) != flags)
		connection_note(peer, flags);
}

static __always_inline bool connection_closed(__u8 flags)
{
	const __u8 acked = CONN_FIN_CLIENT_ACKED | CONN_FIN_ENDPOINT_ACKED;

	return (flags & CONN_RESET) || (flags & acked) == acked;
}

/* How long a connection in this state may be silent, in jiffies. */
static __always_inline __u32 connection_timeout(const struct connection *c,
						__u8 protocol)
{
	__u32 id = c->endpoint, *idle = NULL;
	struct endpoint *ep;

	if (protocol == IPPROTO_TCP) {
		if (connection_closed(c->flags))
			return timeout_tcp_closed;
		if (c->flags & (CONN_FIN_CLIENT | CONN_FIN_ENDPOINT))
			return timeout_tcp_closing;
		if (!(c->flags & CONN_ASSURED))
			return timeout_tcp_syn;
	}
	ep = bpf_map_lookup_elem(&endpoints, &id);
	if (ep) {
		__u32 service = ep->service;

		idle = bpf_map_lookup_elem(&idle_timeouts, &service);
	}
	if (protocol == IPPROTO_TCP)
		return idle && *idle ? *idle : timeout_tcp_established;
	if (c->flags & CONN_REPLIED)
		return idle && *idle ? *idle : timeout_udp_replied;
	return idle && *idle && *idle < timeout_udp_unreplied ?
		       *idle :
		       timeout_udp_unreplied;
}

/* Neither direction has been heard of within the timeout plus slack. The other
 * entry is looked up only if this one is past its time. */
static __always_inline bool connection_dead(const struct connection *c,
					    __u8 protocol, __u32 now,
					    __u32 slack)
{
	__s32 limit = connection_timeout(c, protocol) + slack;
	const struct connection *peer;

	if ((__s32)(now - c->seen) <= limit)
		return false;
	peer = connection_peer(c, protocol);
	return !peer || (__s32)(now - peer->seen) > limit;
}

/* Removes both entries; false if there was none. Whoever removes the client's
 * entry gives the endpoint's count back, so it is given back once. */
static __always_inline bool connection_end(const struct connection_key *key,
					   const struct connection *c)
{
	bool reply = c->flags & CONN_REPLY_DIRECTION;
	__u32 id = c->endpoint;
	struct connection_key other;
	struct endpoint_state *s;
	long own, peer;

	connection_reverse(&other, c, key->protocol);
	own = bpf_map_delete_elem(&connections, key);
	peer = bpf_map_delete_elem(&connections, &other);
	if (reply ? peer : own)
		return !own || !peer;
	s = bpf_map_lookup_elem(&endpoint_states, &id);
	if (s)
		__sync_fetch_and_add(&s->active, (__u64)-1);
	return true;
}

#endif
