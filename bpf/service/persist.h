/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * persist.h - sends a client's connections to the endpoint of its last one.
 *
 * A client is an address or a prefix. The hash of a new client chooses its endpoint in
 * the service's Maglev table, so two machines agree without communicating, and a full
 * map loses little. After that the map decides: an added endpoint gets new clients
 * only. A client is new again when it has opened no connection for the service's
 * timeout, or up to a second longer, whether or not the sweep has run. A client whose
 * endpoint was removed, or takes no new connections, gets another one at once.
 */
#ifndef LOXILB_PERSIST_H
#define LOXILB_PERSIST_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include "packet/clock.h"
#include "service/opening.h"
#include "service/select.h"

static __always_inline void persist_make_key(struct persist_key *key,
					     const struct packet *p,
					     const struct service *svc)
{
	key->service = svc->id;
	copy_prefix(&key->client, &p->tuple.saddr, svc->persist_prefix);
}

/* Returns the first position of a client without a record. The service's id is
 * not part of the hash: it differs between machines. */
static __always_inline __u64 persist_position(const struct persist_key *key)
{
	return hash_end(hash_addr(hash_seed, &key->client));
}

/* Reports whether the client has opened no connection for the service's timeout plus
 * slack. */
static __always_inline bool persist_expired(const struct persist_entry *e,
					    __u32 service, __u32 now,
					    __u32 slack)
{
	__u32 *timeout = bpf_map_lookup_elem(&persist_timeouts, &service);

	return !timeout || !*timeout ||
	       !jiffies_within(e->seen, now, *timeout + slack);
}

/* Reports whether the client keeps the endpoint of the record. */
static __always_inline bool persist_is_valid(const struct persist_entry *e,
					     __u32 service, __u32 now)
{
	__u32 id = e->endpoint;
	struct endpoint *ep = endpoint_find(id);

	return ep && ep->service == service && ep->weight &&
	       !persist_expired(e, service, now, hz);
}

/* Chooses the client's endpoint and renews the record's time. If the memory belongs to
 * another client by now, that client's record is kept a little longer. */
static __noinline __maybe_unused bool persist_lookup(struct opening *o,
						     const struct packet *p)
{
	struct persist_entry entry, *old;

	persist_make_key(&o->choice.client, p, &o->service);
	old = lazy_hash_find(&persists, &o->choice.client);
	if (!old)
		return false;
	entry = *old;
	if (!persist_is_valid(&entry, o->service.id, p->now))
		return false;
	/* once a second: in between, CPUs only read it */
	if (!jiffies_within(entry.seen, p->now, hz - 1))
		old->seen = p->now;
	o->choice.endpoint = entry.endpoint;
	return true;
}

static __noinline __maybe_unused void persist_store(const struct opening *o,
						    __u32 now)
{
	struct persist_entry entry = {
		.endpoint = o->choice.endpoint,
		.seen = now,
	};
	void *table = lazy_hash_get(&persists);

	if (table)
		bpf_map_update_elem(table, &o->choice.client, &entry, BPF_ANY);
}

#endif
