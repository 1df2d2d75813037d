/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * select.h - which endpoint takes a new connection.
 *
 * Every algorithm is a table of endpoint ids (made in user space, with what
 * weights ask for) and a place in it. Places go round; the next ones are tried
 * when the endpoint at the first has the client's address and port already.
 *
 *   algorithm      table                         place
 *   rr, priority   one round, smooth             how many connections came before
 *   hash           Maglev                        hash of addresses, ports, protocol
 *   persist        Maglev                        hash of the client, for its first
 *                                                connection (persist.h)
 *   lc             up to 64: each once           fewest connections for its weight
 *                  more: one round, smooth       the better of two drawn by lot
 *   random         one round, smooth             drawn by lot
 */
#ifndef LOXILB_SELECT_H
#define LOXILB_SELECT_H

#include "config.h"
#include "maps.h"
#include "opening.h"
#include "packet.h"

/* Up to that many endpoints, the least loaded is looked for among all. */
#define SELECT_SCAN 64

/* One sequence over all CPUs, one atomic step for each new connection. */
static __always_inline __u64 select_round_robin(struct service_state *state)
{
	return __sync_fetch_and_add(&state->next, 1);
}

/* The hash: each word is multiplied in, and the upper half folded down, as the
 * remainder by the table's size takes all bits. It is keyed, so that nobody
 * outside can choose ports that all meet one endpoint. Words are of the packet's
 * bytes as a little-endian machine reads them: data paths are built for those
 * alone. */
static __always_inline __u64 hash_word(__u64 hash, __u32 high, __u32 low)
{
	hash = (hash ^ ((__u64)high << 32 | low)) * 0x9e3779b97f4a7c15ULL;
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
	hash *= 0xbf58476d1ce4e5b9ULL;
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
	struct endpoint_state *state =
		bpf_map_lookup_elem(&endpoint_states, &id);
	struct endpoint *ep = bpf_map_lookup_elem(&endpoints, &id);
	struct load load = {};

	if (!state || !ep)
		return load;
	load.active = state->active;
	load.weight = ep->weight;
	return load;
}

/* a is the better choice; neither is when they are the same. */
static __always_inline bool load_is_less(const struct load *a,
					 const struct load *b)
{
	return a->active * b->weight < b->active * a->weight;
}

/* A search for the least loaded among the slots of a service. What it found is
 * not on the stack: verifiers before 6.7 follow the body of bpf_loop once, and
 * would take what the stack has then for what it has in all rounds. */
struct least_search {
	void *table;
	struct opening *opening;
};

static long least_loaded_step(__u32 place, struct least_search *l)
{
	struct opening *o = l->opening;
	__u32 at = o->service.slot_offset + place, *slot;
	struct load load;

	slot = bpf_map_lookup_elem(l->table, &at);
	if (!slot)
		return 1;
	load = endpoint_load(*slot);
	if (load.weight &&
	    (!o->least_load.weight || load_is_less(&load, &o->least_load))) {
		o->least_load = load;
		o->least_position = place;
	}
	return 0;
}

/* The first of those with the least load: an exact count, since each connection
 * is counted when it opens and given back once when it ends. By bpf_loop, as
 * these 64 rounds, each followed by the verifier, were two thirds of the work of
 * loading the program. */
static __noinline __u64 select_least_loaded(struct opening *o)
{
	struct least_search l = { .opening = o };
	__u32 segment = o->service.slot_segment;

	o->least_position = 0;
	o->least_load.weight = 0;
	l.table = bpf_map_lookup_elem(&slots, &segment);
	if (!l.table)
		return 0;
	bpf_loop(o->service.slot_count, least_loaded_step, &l, 0);
	return o->least_position;
}

/* The id of the endpoint at a place of the service's table; places go round. */
static __always_inline __u32 *select_slot(const struct service *svc,
					  __u64 place)
{
	__u32 segment = svc->slot_segment, slot;
	void *table;

	table = bpf_map_lookup_elem(&slots, &segment);
	if (!table)
		return NULL;
	slot = svc->slot_offset + place % svc->slot_count;
	return bpf_map_lookup_elem(table, &slot);
}

/* Two by lot, the better of the two: within a few of the least loaded, however
 * many there are (Mitzenmacher, "The Power of Two Choices"). The lot gives
 * weights their share, and the choice evens out what is left. */
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

/* Where in its table a service looks for the endpoint of a new connection. */
static __always_inline __u64 select_position(const struct packet *p,
					     struct opening *o,
					     struct service_state *state)
{
	const struct service *svc = &o->service;

	switch (svc->algorithm) {
	case ALGORITHM_HASH:
		return select_hash(p);
	case ALGORITHM_LC:
		return svc->slot_count > SELECT_SCAN ?
			       select_better_of_two(svc) :
			       select_least_loaded(o);
	case ALGORITHM_RANDOM:
		return bpf_get_prandom_u32();
	default:
		return select_round_robin(state);
	}
}

/* Where the endpoint listens for what this packet is addressed to. */
static __always_inline __be16 endpoint_port(const struct packet *p,
					    const struct endpoint *ep)
{
	if (ep->flags & ENDPOINT_SHIFT)
		return bpf_htons(bpf_ntohs(p->tuple.dport) + ep->port_shift);
	return ep->port;
}

#endif
