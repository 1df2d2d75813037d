/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * open.h - opens a connection for a packet that belongs to none: finds the
 * service, chooses an endpoint, makes the two entries, and forwards the
 * packet.
 */
#ifndef LOXILB_OPEN_H
#define LOXILB_OPEN_H

#include <linux/errno.h>
#include "admit.h"
#include "challenge_tc.h"
#include "checksum.h"
#include "ct_tcp.h"
#include "ct_udp.h"
#include "egress.h"
#include "forward.h"
#include "mss.h"
#include "opening.h"
#include "forward_uncommon.h"
#include "persist.h"
#include "protect.h"
#include "reopen.h"
#include "select.h"
#include "service.h"
#include "snat.h"
#include "stats.h"

/* How many endpoints are tried. The next one is tried when the client's address
 * and port are in use at this one, because the client reached it through
 * another VIP. */
#define OPEN_ATTEMPTS 4

/* Is this a reply entry of the connection that is to be opened? */
static __always_inline bool is_own_reply(const struct opening *o,
					 const struct connection *reply)
{
	return reply->sport == o->entry.sport &&
	       reply->dport == o->entry.dport &&
	       same_addr(&reply->saddr, &o->entry.saddr) &&
	       same_addr(&reply->daddr, &o->entry.daddr);
}

/* Inserts the reply entry: its key is what the endpoint sends, its value is
 * what the client expects. Returns -EEXIST if the endpoint has a live
 * connection with that client already, -EALREADY if that is this very
 * connection. Errors are int (verifier 8). */
static __noinline int insert_reply_entry(struct packet *p, struct opening *o)
{
	struct connection *old;
	__u32 word;
	int err;

	o->reply_key.daddr = o->source;
	o->reply_key.dport = o->source_port;
	connection_set_sums(&o->entry, &o->reply_key);
	err = entry_insert(&o->reply_key, &o->entry);
	if (err != -EEXIST)
		return err;
	old = entry_find(&o->reply_key);
	if (!old)
		return -EAGAIN;
	word = state_read(old);
	if (!connection_is_replaceable(old, p, o->reply_key.protocol))
		return is_own_reply(o, old) ? -EALREADY : -EEXIST;
	if (!connection_end(&o->reply_key, old, word, PORT_IS_FREE))
		return -EAGAIN; /* another CPU ends it */
	return entry_insert(&o->reply_key, &o->entry);
}

/* Inserts the client's entry. Its next hop is resolved and this packet is
 * counted before that, so the entry need not be looked up again. Returns
 * -EALREADY if the same packet has arrived on another CPU, -EEXIST if the
 * client is itself an endpoint and the key is that of replies to a quarantined
 * source port. */
static __always_inline int insert_client_entry(ctx_t *ctx, struct packet *p,
					       struct opening *o)
{
	struct connection *old;
	__u32 word;
	int err;

	opening_next_hop(ctx, p, o, &o->entry);
	err = entry_insert(&o->client_key, &o->entry);
	if (err != -EEXIST)
		return err;
	old = entry_find(&o->client_key);
	if (!old)
		return -EAGAIN;
	word = state_read(old);
	if (!(word & STATE_ENDED))
		return word & CONN_REPLY_DIRECTION ? -EEXIST : -EALREADY;
	if (!connection_end(&o->client_key, old, word, PORT_IS_FREE))
		return -EAGAIN; /* another CPU is about to delete it */
	return entry_insert(&o->client_key, &o->entry);
}

/* Makes the client's entry from the reply entry in o->entry, and inserts it. On
 * failure it removes the reply entry again. */
static __noinline int open_client_entry(ctx_t *ctx, struct packet *p,
					struct opening *o)
{
	struct connection *c = &o->entry;
	int err;

	c->saddr = o->source;
	c->daddr = o->reply_key.saddr;
	c->sport = o->source_port;
	c->dport = o->reply_key.sport;
	c->seq_end = p->seq_end;
	c->ack = 0;
	c->flags = 0;
	connection_invert_sums(c);
	err = insert_client_entry(ctx, p, o);
	if (!err)
		return 0;
	entry_delete(&o->reply_key, state_read(c) | CONN_REPLY_DIRECTION);
	return err;
}

/* Fills in what both entries have in common, and the rest of the reply
 * entry. */
static __always_inline void opening_init(const struct packet *p,
					 const struct endpoint *ep, __u32 id,
					 struct opening *o)
{
	__builtin_memset(&o->entry, 0, sizeof(o->entry));
	o->client_key = p->tuple;
	o->source = p->tuple.saddr;
	o->source_port = p->tuple.sport;
	o->reply_key = (struct connection_key){
		.saddr = ep->addr,
		.sport = endpoint_port(p, ep),
		.protocol = p->tuple.protocol,
	};
	o->entry.saddr = p->tuple.daddr;
	o->entry.daddr = p->tuple.saddr;
	o->entry.sport = p->tuple.dport;
	o->entry.dport = p->tuple.sport;
	o->entry.seen = p->now;
	way_forget(&o->entry, p->now); /* none is known yet */
	o->entry.endpoint = id;
	o->entry.ack = p->seq + 1;
	o->entry.flags = CONN_REPLY_DIRECTION;
	o->entry.generation = ++o->generation;
	if (family_differs(p, ep)) {
		o->reply_key.protocol = family_protocol(p->tuple.protocol);
		o->entry.hop = HOP_FAMILY;
	}
}

/* How many endpoints are on this machine. Packets pay nothing while there is
 * none. Written by user. */
volatile __u32 local_endpoints SEC(".data.runtime") = 0;

/* Would the endpoint's answers take another way than through this machine? So
 * it is if the client is in the endpoint's own network, or in the network
 * through which this machine reaches the endpoint: then its router has the
 * client for a neighbour. */
static __always_inline bool answers_pass_by(const struct endpoint *ep,
					    const struct ip_addr *client)
{
	if (ep->addr_bits && same_prefix(&ep->addr, client, ep->addr_bits))
		return true;
	return ep->source_bits &&
	       same_prefix(&ep->source, client, ep->source_bits);
}

/* Must the endpoint see an address of ours as the source? Not an endpoint on
 * this machine: the kernel drops packets from outside that have an address of
 * the machine as their source. */
static __noinline bool opening_needs_snat(const struct opening *o,
					  const struct endpoint *ep)
{
	struct ip_addr addr;

	if (o->entry.hop & HOP_FAMILY)
		return true;
	if (o->service.mode == MODE_DEFAULT &&
	    !same_addr(&ep->addr, &o->source) &&
	    !answers_pass_by(ep, &o->source))
		return false;
	if (!local_endpoints)
		return true;
	addr = ep->addr;
	return !bpf_map_lookup_elem(&local_addresses, &addr);
}

/* Makes the only entry of a connection whose endpoint answers the client
 * directly. Packets keep their addresses and ports. */
static __noinline int open_single_entry(ctx_t *ctx, struct packet *p,
					struct opening *o)
{
	struct connection *c = &o->entry;

	c->saddr = p->tuple.saddr;
	c->daddr = p->tuple.daddr;
	c->sport = p->tuple.sport;
	c->dport = p->tuple.dport;
	c->seq_end = p->seq_end;
	c->ack = p->ack;
	/* a segment from the middle of a connection opens it where there is a
	 * hash (service_admit()) */
	c->flags = (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_ACK ?
			   CONN_REPLIED :
			   0;
	c->traits = CONN_ONE_WAY;
	c->hop = o->service.flags & SERVICE_TUNNEL_GUE	? HOP_TUNNEL_GUE :
		 o->service.flags & SERVICE_TUNNEL_IPIP ? HOP_TUNNEL_IPIP :
							  0;
	return insert_client_entry(ctx, p, o);
}

/* Makes both entries. A client that is its own endpoint would send its answers
 * to itself, so it sees the VIP as the source, or what the mode says. An
 * endpoint that would answer past this machine, or is of another IP version than
 * the client, sees an address of ours. */
static __always_inline int open_entries(ctx_t *ctx, struct packet *p,
					struct opening *o,
					const struct endpoint *ep, __u32 id)
{
	bool direct; /* the endpoint answers the client directly */
	bool ours; /* the endpoint sees a source address of ours */
	int err;

	opening_init(p, ep, id, o);
	direct = o->service.mode == MODE_DSR;
	ours = !direct && opening_needs_snat(o, ep);
	if (unlikely(p->may_reopen)) {
		err = reopen(ctx, p, o, !direct && !ours);
		if (err != -ENOENT)
			return err;
		reopen_give_up(p, o);
	}
	if (direct)
		return open_single_entry(ctx, p, o);
	if (ours)
		err = snat_insert_reply_entry(ctx, p, ep, o);
	else
		err = insert_reply_entry(p, o);
	return err ? err : open_client_entry(ctx, p, o);
}

/* Tells that a connection is opened. Whose it is, is looked up once more: the stack
 * of who calls is short. */
static __noinline void opening_tell(const struct packet *p)
{
	struct opening *o = opening_get();

	if (o)
		connection_tell(p, &o->entry, EVENT_OPENED);
}

/* Opens a connection to one endpoint, with the opening of this CPU. Returns
 * -EAGAIN if the slot and the service are of two generations: the table was
 * replaced meanwhile. Global (verifier 1). */
__noinline int open_to_endpoint(ctx_t *ctx, struct packet *p, __u32 id)
{
	struct opening *o = opening_get();
	struct endpoint_state *state;
	struct endpoint *ep;
	int err;

	if (!p || !o) /* verifier 2 */
		return -EAGAIN;
	ep = o->egress ? &o->egress_peer : endpoint_find(id);
	state = endpoint_state_find(id);
	if (!ep || !state || ep->service != o->service.id)
		return -EAGAIN;
	connection_opened(state);
	err = open_entries(ctx, p, o, ep, id);
	if (err) {
		endpoint_uncount(id);
		return err;
	}
	__sync_fetch_and_add(&state->connections, 1);
	if (unlikely(watching))
		opening_tell(p);
	half_open_count(id, p->tuple.protocol, 1);
	limit_count(id, &p->tuple.saddr, 1);
	return 0;
}

static __always_inline enum verdict opening_failed(struct packet *p,
						   const struct service *svc,
						   struct service_state *state,
						   int err)
{
	if (err == -EEXIST)
		return drop(p, DROP_TUPLE_IN_USE);
	if (err == -EAGAIN)
		return drop(p, DROP_CONNECTION_RACE);
	if (err == -ENOSPC)
		return service_refuse(p, svc, DROP_SNAT_PORTS_EXHAUSTED);
	if (err == -ENETUNREACH)
		return drop(p, DROP_NO_ROUTE);
	if (err != -E2BIG && err != -ENOMEM)
		return drop(p, DROP_CONNECTION_RACE);
	__sync_fetch_and_add(&state->refused, 1);
	return drop(p, err == -E2BIG ? DROP_CONNTRACK_FULL : DROP_NO_MEMORY);
}

/* Translates and forwards the first packet by the entry c. */
static __always_inline enum verdict
forward_by(ctx_t *ctx, struct packet *p, struct connection *c, enum verdict hop)
{
	if (hop != VERDICT_CONTINUE && hop != VERDICT_REDIRECT)
		return hop;
	if (mss_applies(p) && mss_clamp(ctx, p, c) != VERDICT_CONTINUE)
		return VERDICT_DROP;
	return forward_uncommon(ctx, p, c, hop);
}

/* Takes back that the entry was made with its first packet counted, as that
 * could not be translated. */
static __noinline void opening_uncount(const struct packet *p,
				       struct opening *o)
{
	struct connection *c = entry_find(&o->client_key);

	if (!c || !c->packets || !o->entry.packets)
		return;
	c->packets--;
	c->bytes -= p->length;
}

/* Forwards the packet by the entry that it has made, or that the same packet
 * has made on another CPU. */
static __always_inline enum verdict
forward_first_packet(ctx_t *ctx, struct packet *p, struct opening *o,
		     struct service_state *state, int err)
{
	struct connection *c = &o->entry;
	enum verdict v, hop = o->hop_verdict;

	if (unlikely(err == -EALREADY)) {
		c = entry_find(&o->client_key);
		if (!c || c->traits & CONN_ENDED)
			return drop(p, DROP_CONNECTION_RACE);
		hop = next_hop_prepare(ctx, p, c);
	} else if (err) {
		return opening_failed(p, &o->service, state, err);
	}
	v = forward_by(ctx, p, c, hop);
	if (!is_forwarded(v)) {
		if (!err)
			opening_uncount(p, o);
		return v;
	}
	if (unlikely(err)) /* else it was counted when the entry was made */
		count_connection(p, c);
	count_traffic(p, c);
	return v;
}

/* Tries the endpoint at a position of the service's table, then the next ones.
 * o->endpoint is the endpoint's id; valid iff 0 is returned. */
static __noinline int open_by_slot(ctx_t *ctx, struct packet *p,
				   struct opening *o, __u64 place)
{
	int err = -EAGAIN;

	for (int i = 0; i < OPEN_ATTEMPTS; i++) {
		__u32 *slot = select_slot(&o->service, place + i);

		if (!slot)
			break;
		o->endpoint = *slot;
		err = open_to_endpoint(ctx, p, *slot);
		if (err != -EEXIST && err != -ENOSPC)
			break;
	}
	return err;
}

/* Opens a connection to the endpoint that the client had before, else to the
 * one that its hash gives. If the client's port is in use at its endpoint, this
 * connection goes to another one and the client's record stays. */
static __always_inline int open_by_client(ctx_t *ctx, struct packet *p,
					  struct opening *o)
{
	bool held = persist_lookup(o, p);
	int err;

	if (held) {
		err = open_to_endpoint(ctx, p, o->endpoint);
		if (err != -EEXIST && err != -EAGAIN && err != -ENOSPC)
			return err;
	}
	err = open_by_slot(ctx, p, o, persist_position(&o->client));
	if (!err && !held)
		persist_store(o, p->now);
	return err;
}

static __always_inline enum verdict
open_by_algorithm(ctx_t *ctx, struct packet *p, struct opening *o,
		  struct service_state *state)
{
	int err;

	if (o->service.algorithm == ALGORITHM_PERSIST)
		err = open_by_client(ctx, p, o);
	else
		err = open_by_slot(ctx, p, o, select_position(p, o, state));
	return forward_first_packet(ctx, p, o, state, err);
}

/* Copies the packet's service to o: the row in the map may be replaced at any
 * time. */
static __noinline bool opening_find_service(struct packet *p, struct opening *o,
					    __u32 mark)
{
	struct service *found = service_find(p, mark);

	if (!found && unlikely(host_services))
		found = service_find_any_local(p, mark);
	if (!found)
		return false;
	o->service = *found;
	return true;
}

/* Leaves a packet without service to the kernel. If it is the first fragment to
 * a VIP, the later ones, which have no ports, go to the kernel too. */
static __noinline enum verdict pass_without_service(struct packet *p)
{
	if (likely(!p->fault))
		return VERDICT_PASS;
	if (p->fault == DROP_FRAGMENT && is_to_vip(p))
		fragment_record(p, true);
	return p->fault == DROP_MALFORMED && p->fragment && is_to_vip(p) ?
		       drop(p, DROP_MALFORMED) :
		       VERDICT_PASS;
}

/* Handles a packet without service: an endpoint may be opening a connection of
 * its own. */
static __noinline enum verdict open_egress(ctx_t *ctx, struct packet *p,
					   struct opening *o)
{
	struct service_state *state;
	enum verdict v;
	__u32 id;
	int err;

	if (p->tuple.protocol == IPPROTO_TCP && !is_opening_syn(p))
		return pass_without_service(p);
	if (!egress_find_endpoint(p, o) || is_martian_source(p) ||
	    !egress_uses_default_route(ctx, p))
		return pass_without_service(p);
	v = packet_check_fault(p);
	if (v != VERDICT_CONTINUE)
		return v;
	id = o->service.id;
	state = bpf_map_lookup_elem(&service_states, &id);
	if (!state)
		return drop(p, DROP_CONNECTION_RACE);
	o->egress = true;
	if (half_open_exceeds(o->service.id, p->tuple.protocol,
			      HALF_OPEN_FULL_FOR_KNOWN))
		return drop(p, DROP_HALF_OPEN_FULL);
	err = open_to_endpoint(ctx, p, o->endpoint);
	return forward_first_packet(ctx, p, o, state, err);
}

/* Opens a connection. Returns PASS if no service wants the packet. Global, as
 * open_to_endpoint() is. */
__noinline enum verdict connection_open(ctx_t *ctx, struct packet *p)
{
	struct opening *o = opening_get();
	struct service_state *state;
	enum verdict v;
	__u32 id;

	if (!p || !o)
		return VERDICT_DROP;
	if (p->echo_reply)
		return VERDICT_PASS;
	o->egress = false;
	if (!opening_find_service(p, o, ctx_mark(ctx)))
		return unlikely(egress_count) ? open_egress(ctx, p, o) :
						pass_without_service(p);
	if (challenge_takes_answer(p, &o->service))
		return drop(p, DROP_NONE);
	v = service_admit(p, &o->service);
	if (v != VERDICT_CONTINUE)
		return v;
	id = o->service.id;
	if (unlikely(o->service.flags & (SERVICE_SOURCES | SERVICE_DENIES))) {
		enum drop_reason why = source_reason(p, &o->service);

		if (why)
			return drop(p, why);
	}
	state = bpf_map_lookup_elem(&service_states, &id);
	if (!state)
		return drop(p, DROP_CONNECTION_RACE);
	if (!o->service.slot_count) {
		__sync_fetch_and_add(&state->no_endpoint, 1);
		return service_refuse(p, &o->service, DROP_NO_ENDPOINT);
	}
	v = protect(p, &o->service);
	if (v == VERDICT_CHALLENGE)
		return challenge_client(ctx, p, o);
	if (v != VERDICT_CONTINUE)
		return v;
	if (unlikely(o->service.flags & SERVICE_LIMITED)) {
		enum drop_reason why = limit_reason(p, id);

		if (why)
			return service_refuse(p, &o->service, why);
	}
	return open_by_algorithm(ctx, p, o, state);
}

#endif
