/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * expiry.h - how long a connection may be silent, and when it may be removed or replaced.
 *
 * A connection is expired when both directions have been silent for longer than the
 * timeout of its state. The packet path treats an expired connection as absent, whether
 * or not the sweep has removed it, so expiry is exact. Nothing revives an expired
 * connection, so the sweep needs no lock against packets while it checks one.
 */
#ifndef LOXILB_CONNTRACK_EXPIRY_H
#define LOXILB_CONNTRACK_EXPIRY_H

#include <linux/bpf.h>
#include <stdbool.h>
#include "maps.h"
#include "conntrack/conntrack.h"
#include "limit/port_pressure.h"
#include "limit/pressure.h"
#include "protocol/protocol.h"
#include "table/rows.h"

/* Reports whether a connection in this state is half-open and uses a source port of
 * ours while few of these are free. */
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
 * timeout shrinks gradually as the table fills, and at once if it uses a source port of
 * ours while these are short. Global (verifier: globals). */
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

/* Reports whether the connection has been silent for its timeout plus slack. Then
 * packets no longer belong to it. */
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
	/* under pressure, less slack frees the entry sooner */
	if (limit <= timeout_half_open_pressed)
		slack /= 4;
	return connection_is_silent(c, protocol, now, limit + slack);
}

/* Reports whether the entry was just made, so the other one may still be missing. */
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
 * expired or closed, and its source port is not ours, has left quarantine, or was the
 * same client's; or if only one of its entries is left. */
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

#endif
