/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * open.h - a packet of no connection: find its service, choose an endpoint,
 * make the two entries.
 */
#ifndef LOXILB_OPEN_H
#define LOXILB_OPEN_H

#include <linux/errno.h>
#include "checksum.h"
#include "ct_tcp.h"
#include "ct_udp.h"
#include "select.h"
#include "service.h"

/* Endpoints tried when a client's address and port are taken at the first:
 * it came through another VIP with the same endpoints. */
#define OPEN_ATTEMPTS 4

static __always_inline void connection_sums(struct connection *c,
					    const struct connection_key *key)
{
	/* addresses and ports lie alike in both structs */
	c->address_sum =
		sum_fold(bpf_csum_diff((void *)key, 32, (void *)c, 32, 0));
	c->tuple_sum =
		sum_fold(bpf_csum_diff((void *)key, 36, (void *)c, 36, 0));
}

/* The entry of replies: as the endpoint sends them, to what the client expects.
 * -EEXIST when the endpoint has a live connection with that client already.
 * Errors are int, not long as the helpers' types say: before 6.4 a map's
 * operations return int, and the upper half of what the verifier's inlined call
 * leaves is zero, so that no negative number would compare equal. */
static __always_inline int open_reply(struct packet *p,
				      const struct endpoint *ep, __u32 id)
{
	struct connection c = {
		.saddr = p->tuple.daddr,
		.daddr = p->tuple.saddr,
		.sport = p->tuple.dport,
		.dport = p->tuple.sport,
		.seen = p->now,
		.endpoint = id,
		.flags = CONN_REPLY_DIRECTION,
	};
	struct connection_key key = {
		.saddr = ep->addr,
		.daddr = p->tuple.saddr,
		.sport = ep->port,
		.dport = p->tuple.sport,
		.protocol = p->tuple.protocol,
	};
	struct connection *old;
	int err;

	connection_sums(&c, &key);
	err = bpf_map_update_elem(&connections, &key, &c, BPF_NOEXIST);
	if (err != -EEXIST)
		return err;
	old = bpf_map_lookup_elem(&connections, &key);
	if (old && old->sport == c.sport && same_addr(&old->saddr, &c.saddr) &&
	    !connection_closed(old->flags))
		return -EALREADY; /* of this very connection */
	if (!old || !(connection_closed(old->flags) ||
		      connection_dead(old, key.protocol, p->now, 0)))
		return -EEXIST;
	connection_end(&key, old);
	return bpf_map_update_elem(&connections, &key, &c, BPF_NOEXIST);
}

/* The entry of the client's packets. Takes the reply's entry away again if it
 * cannot be made. -EALREADY: the same packet came in on another CPU. */
static __always_inline int open_forward(struct packet *p,
					const struct endpoint *ep, __u32 id)
{
	struct connection c = {
		.saddr = p->tuple.saddr,
		.daddr = ep->addr,
		.sport = p->tuple.sport,
		.dport = ep->port,
		.seen = p->now,
		.seq_end = p->seq_end,
		.endpoint = id,
	};
	struct connection_key reply;
	int err;

	connection_sums(&c, &p->tuple);
	err = bpf_map_update_elem(&connections, &p->tuple, &c, BPF_NOEXIST);
	if (!err)
		return 0;
	connection_reverse(&reply, &c, p->tuple.protocol);
	bpf_map_delete_elem(&connections, &reply);
	return err == -EEXIST ? -EALREADY : err;
}

/* Both entries towards one endpoint. -EAGAIN: the slot and the service are not
 * of one generation, since the table was replaced while we looked. */
static __always_inline int open_towards(struct packet *p, __u32 service,
					__u32 id)
{
	struct endpoint_state *state;
	struct endpoint *ep;
	int err;

	ep = bpf_map_lookup_elem(&endpoints, &id);
	state = bpf_map_lookup_elem(&endpoint_states, &id);
	if (!ep || !state || ep->service != service)
		return -EAGAIN;
	/* counted before it can be ended, lest the count pass below zero */
	__sync_fetch_and_add(&state->active, 1);
	err = open_reply(p, ep, id);
	if (!err)
		err = open_forward(p, ep, id);
	if (err)
		__sync_fetch_and_add(&state->active, (__u64)-1);
	else
		__sync_fetch_and_add(&state->connections, 1);
	return err;
}

static __always_inline enum verdict
open_failed(struct packet *p, struct service_state *state, int err)
{
	if (err == -EALREADY)
		return VERDICT_CONTINUE;
	if (err == -EEXIST)
		return drop(p, DROP_TUPLE_IN_USE);
	if (err == -EAGAIN)
		return drop(p, DROP_CONNECTION_RACE);
	__sync_fetch_and_add(&state->refused, 1);
	return drop(p, DROP_CONNTRACK_FULL);
}

/* Towards the endpoint whose turn it is, or one of the next. */
static __always_inline enum verdict open_at(struct packet *p,
					    const struct service *svc,
					    struct service_state *state)
{
	__u64 place = select_round_robin(state);
	int err = -EAGAIN;

	for (int i = 0; i < OPEN_ATTEMPTS; i++) {
		__u32 *slot = select_slot(svc, place + i);

		if (!slot)
			break;
		err = open_towards(p, svc->id, *slot);
		if (err != -EEXIST)
			break;
	}
	return err ? open_failed(p, state, err) : VERDICT_CONTINUE;
}

/* CONTINUE: p->tuple now has a connection. PASS: no service wants it. */
static __noinline enum verdict connection_open(struct packet *p)
{
	struct service *found = service_find(p), svc;
	struct service_state *state;
	enum verdict v;
	__u32 id;

	if (!found) {
		if (p->drop == DROP_FRAGMENT && is_vip(&p->tuple.daddr))
			return VERDICT_DROP;
		return VERDICT_PASS;
	}
	svc = *found; /* its memory may be another service's soon */
	v = service_admit(p);
	if (v != VERDICT_CONTINUE)
		return v;
	id = svc.id;
	state = bpf_map_lookup_elem(&service_states, &id);
	if (!state)
		return drop(p, DROP_CONNECTION_RACE);
	if (!svc.slot_count) {
		__sync_fetch_and_add(&state->no_endpoint, 1);
		return drop(p, DROP_NO_ENDPOINT);
	}
	return open_at(p, &svc, state);
}

#endif
