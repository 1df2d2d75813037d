/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * select.h - chooses the endpoint of a new connection.
 *
 * Each algorithm is a table of endpoint ids and a position in it. User space
 * makes the table, by the weights. Positions are taken modulo the size of the
 * table; the next ones are tried when the client's address and port are in use
 * at the first endpoint.
 *
 *   algorithm      table                         position
 *   rr, priority   one round, smooth             how many connections came before
 *   hash           Maglev                        hash of addresses, ports, protocol
 *   persist        Maglev                        hash of the client, for its first
 *                                                connection (persist.h)
 *   lc             up to 64: each once           fewest connections for its weight,
 *                                                in turn among equals
 *                  more: one round, smooth       the better of two random ones
 *   random         one round, smooth             random
 *   n3             Maglev                        hash of the source port, which is of the GTP-U
 *                                                tunnel, whichever base station uses it
 *                                                (gtp/source_port.h)
 *   quic           Maglev                        as hash, without a connection ID that names
 *                                                an endpoint (quic/route.h)
 */
#ifndef LOXILB_SELECT_H
#define LOXILB_SELECT_H

#include <linux/bpf.h>
#include "config.h"
#include "maps.h"
#include "packet/address.h"
#include "packet/packet.h"
#include "service/opening.h"
#include "table/rows.h"

/* Up to this many endpoints, lc looks at all of them. */
#define SELECT_SCAN 64

/* One sequence for all CPUs: one atomic operation for each new connection. */
static __always_inline __u64 select_round_robin(const struct service *svc)
{
	__u32 id = svc->id;
	struct service_state *state = bpf_map_lookup_elem(&service_states, &id);

	return state ? __sync_fetch_and_add(&state->next, 1) : 0;
}

/* Adds a word to the hash: multiplies it in and folds the upper half down, since the
 * position is a remainder and depends on all bits. The hash has a key, so attackers
 * cannot choose ports that all lead to one endpoint. Words are the packet's bytes as a
 * little-endian machine reads them; the programs are built only for these. */
static __always_inline __u64 hash_word(__u64 hash, __u32 high, __u32 low)
{
	hash = (hash ^ ((__u64)high << 32 | low)) * HASH_FACTOR;
	return hash ^ hash >> 32;
}

static __always_inline __u64 hash_addr(__u64 hash, const struct ip_addr *a)
{
	hash = hash_word(hash, a->word[0], a->word[1]);
	return hash_word(hash, a->word[2], a->word[3]);
}

/* Spreads the last word over all bits. */
static __always_inline __u64 hash_end(__u64 hash)
{
	hash *= HASH_FACTOR_2;
	return hash ^ hash >> 29;
}

static __always_inline __u64 select_hash(const struct packet *p)
{
	__u64 hash = hash_seed;

	hash = hash_addr(hash, &p->tuple.saddr);
	hash = hash_addr(hash, &p->tuple.daddr);
	hash = hash_word(hash, (__u32)p->tuple.sport << 16 | p->tuple.dport,
			 p->tuple.protocol);
	return hash_end(hash);
}

static __always_inline struct load endpoint_load(__u32 id)
{
	struct endpoint_state *state = endpoint_state_find(id);
	struct endpoint *ep = endpoint_find(id);
	struct load load = {};

	if (!state || !ep)
		return load;
	load.active = state->active > 0 ? state->active : 0;
	load.weight = ep->weight;
	return load;
}

/* Reports whether a is less loaded. If both are equal, neither is. */
static __always_inline bool load_is_less(const struct load *a,
					 const struct load *b)
{
	return a->active * b->weight < b->active * a->weight;
}

/* A search through a service's slots for the least loaded endpoint. The result is not
 * on the stack (verifier: loops). */
struct least_search {
	void *table;
	struct opening *opening;
	__u32 first; /* position where the search begins */
};

static long least_loaded_step(__u32 step, struct least_search *l)
{
	struct opening *o = l->opening;
	__u32 place = (l->first + step) % o->service.slot_count, *slot;
	struct load load;

	slot = slot_find(l->table, o->service.slot_offset + place);
	if (!slot)
		return 1;
	load = endpoint_load(*slot);
	if (load.weight && (!o->choice.least.load.weight ||
			    load_is_less(&load, &o->choice.least.load))) {
		o->choice.least.load = load;
		o->choice.least.place = place;
	}
	return 0;
}

/* Returns the first position with the least load, starting after the last choice:
 * otherwise connections that end before the next one begins would all go to one
 * endpoint. Two CPUs may choose the same one. The load is exact: each connection is
 * counted once when it opens and once when it ends. With bpf_loop, because the
 * verifier took two thirds of its time for 64 unrolled rounds. */
static __noinline __u64 select_least_loaded(struct opening *o)
{
	__u32 segment = o->service.slot_segment, id = o->service.id;
	struct service_state *state = bpf_map_lookup_elem(&service_states, &id);
	struct least_search l = { .opening = o };

	if (state)
		l.first = state->next;

	o->choice.least.place = 0;
	o->choice.least.load.weight = 0;
	l.table = bpf_map_lookup_elem(&slots, &segment);
	if (!l.table)
		return 0;
	bpf_loop(o->service.slot_count, least_loaded_step, &l, 0);
	if (state)
		state->next = o->choice.least.place + 1;
	return o->choice.least.place;
}

/* Returns the id of the endpoint at a position of the service's table. */
static __always_inline __u32 *select_slot(const struct service *svc,
					  __u64 place)
{
	__u32 segment = svc->slot_segment, slot;
	void *table;

	table = bpf_map_lookup_elem(&slots, &segment);
	if (!table)
		return NULL;
	slot = svc->slot_offset + place % svc->slot_count;
	return slot_find(table, slot);
}

/* Returns the better of two random positions: its load is within a few of the
 * least, however many endpoints there are (Mitzenmacher, "The Power of Two
 * Choices"). The random choice gives weights their share; the comparison evens
 * out the rest. */
static __noinline __u64 select_better_of_two(const struct service *svc)
{
	__u32 a = bpf_get_prandom_u32(), b = bpf_get_prandom_u32();
	__u32 *one = select_slot(svc, a), *other = select_slot(svc, b);
	struct load x, y;

	if (!one || !other)
		return a;
	x = endpoint_load(*one);
	y = endpoint_load(*other);
	return load_is_less(&y, &x) ? b : a;
}

/* Returns the position in the service's table at which a new connection looks
 * for its endpoint. */
static __always_inline __u64 select_position(const struct packet *p,
					     struct opening *o)
{
	const struct service *svc = &o->service;

	switch (svc->algorithm) {
	case ALGORITHM_HASH:
	case ALGORITHM_QUIC:
		return select_hash(p);
	case ALGORITHM_LC:
		return svc->slot_count > SELECT_SCAN ?
			       select_better_of_two(svc) :
			       select_least_loaded(o);
	case ALGORITHM_N3:
		return hash_end(hash_word(hash_seed, 0, p->tuple.sport));
	case ALGORITHM_RANDOM:
		return bpf_get_prandom_u32();
	default:
		return select_round_robin(svc);
	}
}

/* Returns the endpoint's port for this packet. */
static __always_inline __be16 endpoint_port(const struct packet *p,
					    const struct endpoint *ep)
{
	if (ep->flags & ENDPOINT_SHIFT)
		return bpf_htons(bpf_ntohs(p->tuple.dport) + ep->port_shift);
	return ep->port;
}

/* Reports whether the endpoint and the client use different IP versions. */
static __always_inline bool family_differs(const struct packet *p,
					   const struct endpoint *ep)
{
	return is_mapped_ipv4(&ep->addr) == !!p->ipv6;
}

#endif
