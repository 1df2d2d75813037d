/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * limit.h - limits the connections of a service, and of each of its clients.
 *
 * New connections are limited by token buckets that hold one second's worth; open ones
 * are counted while they are active (conntrack.h). A client is an address or a prefix.
 * The table has room for 131,072 clients; the least recently used one is forgotten, and
 * may exceed its limit afterwards. A count that began late is too low, never too high,
 * and does not drop below zero.
 *
 * While no service has limits there is no table of them: a closing connection pays one
 * check, and new connections check a flag of their service.
 */
#ifndef LOXILB_LIMIT_H
#define LOXILB_LIMIT_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/address.h"
#include "packet/packet.h"
#include "table/bucket.h"
#include "table/rows.h"

/* Finds the row of a client, or makes one. */
static __always_inline struct limit_row *
limit_row_find(__u32 service, const struct service_limits *limits,
	       const struct ip_addr *client, bool make)
{
	struct limit_key key = {
		.service = service,
		.generation = limits->generation,
	};
	void *rows = lazy_hash_get(&limited_clients);
	struct limit_row none = {}, *row;

	if (!rows)
		return NULL;
	copy_prefix(&key.client, client, limits->client_prefix);
	row = bpf_map_lookup_elem(rows, &key);
	if (row || !make)
		return row;
	bpf_map_update_elem(rows, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(rows, &key);
}

/* Adds to a count that must not drop below zero. */
static __always_inline void limit_add(__s64 *open, __s64 by)
{
	if (__sync_fetch_and_add(open, by) + by < 0)
		__sync_fetch_and_add(open, -by);
}

/* Counts an open connection of an endpoint's service and a client, or stops counting
 * it. Returns a value (verifier: globals). */
__noinline __maybe_unused int
limit_count(__u32 endpoint, const struct ip_addr *client, __s32 by)
{
	void *table = lazy_hash_get(&limits_by_service);
	struct service_limits *limits;
	struct service_state *state;
	struct limit_row *row;
	struct endpoint *ep;
	__u32 service;

	if (likely(!table) || !client)
		return 0;
	ep = endpoint_find(endpoint);
	/* connections of the endpoint itself (egress.h) count for no client */
	if (!ep || same_addr(client, &ep->addr))
		return 0;
	service = ep->service;
	state = bpf_map_lookup_elem(&service_states, &service);
	limits = bpf_map_lookup_elem(table, &service);
	if (state)
		limit_add(&state->open, by);
	if (!limits || !limits->client_connections)
		return 0;
	row = limit_row_find(service, limits, client, by > 0);
	if (row)
		limit_add(&row->open, by);
	return 0;
}

/* Reports whether a service or its client has reached its limit of open connections. */
static __always_inline bool
limit_service_is_full(const struct service_limits *limits,
		      const struct service_state *state)
{
	return limits->connections && state->open >= limits->connections;
}

static __always_inline bool
limit_client_is_full(const struct service_limits *limits,
		     const struct limit_row *row)
{
	return row && limits->client_connections &&
	       row->open >= limits->client_connections;
}

/* Reports whether the service of a new connection, or its client, has reached its
 * limit. Agrees with the first check of limit_reason(), and changes nothing. */
static __noinline __maybe_unused bool limit_is_full(const struct packet *p,
						    __u32 service)
{
	struct service_limits *limits =
		lazy_hash_find(&limits_by_service, &service);
	struct service_state *state =
		bpf_map_lookup_elem(&service_states, &service);

	if (!limits || !state)
		return false;
	if (limit_service_is_full(limits, state))
		return true;
	return limits->client_connections &&
	       limit_client_is_full(limits,
				    limit_row_find(service, limits,
						   &p->tuple.saddr, false));
}

/* Returns why a client of a service with limits may not open a connection, or
 * DROP_NONE. */
static __noinline __maybe_unused enum drop_reason
limit_reason(const struct packet *p, __u32 service)
{
	struct service_limits *limits =
		lazy_hash_find(&limits_by_service, &service);
	struct service_state *state =
		bpf_map_lookup_elem(&service_states, &service);
	struct limit_row *row = NULL;

	if (!limits || !state)
		return DROP_NONE;
	if (limit_service_is_full(limits, state))
		return DROP_CONNECTION_LIMIT;
	if (limits->client_rate || limits->client_connections)
		row = limit_row_find(service, limits, &p->tuple.saddr, true);
	if (limit_client_is_full(limits, row))
		return DROP_CONNECTION_LIMIT;
	if (row && limits->client_rate &&
	    !bucket_take_shared(&row->opens, limits->client_rate,
				limits->client_rate, p->now))
		return DROP_RATE_LIMIT;
	if (limits->rate && !bucket_take_shared(&state->opens, limits->rate,
						limits->rate, p->now))
		return DROP_RATE_LIMIT;
	return DROP_NONE;
}

#endif
