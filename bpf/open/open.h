/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * open.h - opens a connection for a packet that belongs to none.
 *
 *	judge          do firewall rules let it pass?
 *	find_service   which service is it for?
 *	admit          may it open a connection?
 *	choose         to which endpoint?
 *	claim          which tuple has the connection there? Makes the entry of
 *	               answers
 *	enter          makes the entry of the client's packets: the connection is
 *	               open
 *	leave          forwards the packet, or refuses it
 *
 * connection_open(), at the end of the file, runs these steps. Each returns a verdict
 * and fills in its part of struct opening (opening.h). If the client has just closed a
 * connection from the same port, that connection's two entries may be reopened
 * (reopen.h) instead of claim and enter.
 */
#ifndef LOXILB_OPEN_H
#define LOXILB_OPEN_H

#include "conntrack/end.h"
#include "conntrack/flow.h"
#include "conntrack/reclaim.h"
#include "firewall/firewall.h"
#include "forward/forward_uncommon.h"
#include "helper/related.h"
#include "observe/stats.h"
#include "open/admit.h"
#include "open/challenge_tc.h"
#include "open/claim.h"
#include "open/egress.h"
#include "open/enter.h"
#include "open/reopen.h"
#include "open/trial.h"
#include "protocol/protocol.h"
#include "proxy/change.h"
#include "quic/hand_over.h"
#include "route/nexthop.h"
#include "service/opening.h"
#include "service/persist.h"
#include "service/select.h"
#include "service/service.h"
#include "tcp/sample.h"
#include "tcp/state.h"

/* How many places of the service's table are tried. The next one is tried when the
 * client's address and port are in use at the endpoint, because the client reached it
 * through another VIP; or when all of our ports are in use. After that, the client
 * gets another port (docs/adr/0068-source-ports.md). */
#define OPEN_ATTEMPTS 4

/* Leaves a packet without service to the kernel. If it is the first fragment to
 * a VIP, the later ones, which have no ports, go to the kernel too. If it has a mark,
 * they get the mark of its rule. */
static __noinline enum verdict pass_without_service(struct packet *p,
						    __u32 mark)
{
	if (likely(!p->fault))
		return VERDICT_PASS;
	if (p->fault == DROP_FRAGMENT && (mark || is_to_vip(p)))
		fragment_record(p, true);
	return p->fault == DROP_MALFORMED && p->fragment && is_to_vip(p) ?
		       drop(p, DROP_MALFORMED) :
		       VERDICT_PASS;
}

/* Applies the firewall rules, if there are any. One may set the mark that selects the
 * service. */
static __always_inline enum verdict judge(ctx_t *ctx, struct packet *p,
					  struct opening *o)
{
	if (likely(!rule_count))
		return VERDICT_CONTINUE;
	o->source_of = 0;
	return firewall_judge(ctx, p);
}

/* Finds the service that the packet is for, or the service whose address it leaves
 * with. PASS: neither. */
static __always_inline enum verdict find_service(ctx_t *ctx, struct packet *p,
						 struct opening *o)
{
	if (p->echo_reply)
		return VERDICT_PASS;
	o->outward.is = false;
	o->outward.is_given = false;
	if (likely(service_copy(p, ctx_mark(ctx), &o->service)))
		return VERDICT_CONTINUE;
	if (related_find_service(ctx, p, o))
		return VERDICT_CONTINUE;
	if (unlikely(egress_count || snat_rules) &&
	    egress_find_service(ctx, p, o))
		return VERDICT_CONTINUE;
	return pass_without_service(p, rule_count ? ctx_mark(ctx) : 0);
}

/* Checks whether the packet may open a connection of the service. Its client may have
 * to prove first that it exists (challenge.h): then the packet leaves as the challenge,
 * or it is the answer to a challenge and is consumed. */
static __always_inline enum verdict admit(ctx_t *ctx, struct packet *p,
					  struct opening *o)
{
	const struct service *svc = &o->service;
	enum verdict v;

	if (unlikely(sweep_is_late(p->now)))
		reclaim_next_buckets(p->now);
	if (unlikely(o->outward.is))
		return egress_admit(p, svc);
	if (challenge_takes_answer(p, svc))
		return drop(p, DROP_NONE);
	v = service_admit(p, svc);
	if (unlikely(v == VERDICT_DROP && is_refused_for_room(p)) &&
	    reclaim_next_buckets(p->now)) {
		p->drop = DROP_NONE;
		v = service_admit(p, svc);
	}
	return v == VERDICT_CHALLENGE ? challenge_client(ctx, p) : v;
}

/* Chooses the endpoint at one of several positions. */
static __always_inline enum verdict choose_at(struct packet *p,
					      struct opening *o, __u32 attempt)
{
	const __u32 *slot = select_slot(&o->service, o->choice.place + attempt);

	if (!slot)
		return drop(p, DROP_CONNECTION_RACE);
	o->choice.endpoint = *slot;
	return VERDICT_CONTINUE;
}

/* Chooses the endpoint: the client's present one, or the one at the position that the
 * service's algorithm gives. */
static __always_inline enum verdict choose(struct packet *p, struct opening *o)
{
	o->choice.is_held = false;
	if (unlikely(o->outward.is_given) || trial_choose(p, o))
		return VERDICT_CONTINUE;
	if (!ONLY_SCTP && unlikely(o->service.algorithm == ALGORITHM_QUIC))
		return VERDICT_QUIC;
	if (o->service.algorithm == ALGORITHM_PERSIST) {
		o->choice.is_held = persist_lookup(o, p);
		o->choice.place = persist_position(&o->choice.client);
		if (o->choice.is_held)
			return VERDICT_CONTINUE;
	} else {
		o->choice.place = select_position(p, o);
	}
	return choose_at(p, o, 0);
}

/* Reports whether the flow or its client determines the endpoint. */
static __always_inline bool selects_by_client(const struct service *svc)
{
	return svc->algorithm == ALGORITHM_HASH ||
	       svc->algorithm == ALGORITHM_PERSIST ||
	       svc->algorithm == ALGORITHM_N3 ||
	       svc->algorithm == ALGORITHM_QUIC;
}

/* Claims a tuple at the endpoint of a place of the service's table. */
static __always_inline enum verdict
claim_at_place(ctx_t *ctx, struct packet *p, struct opening *o, __u32 attempt)
{
	enum verdict v = choose_at(p, o, attempt);

	return v == VERDICT_CONTINUE ? claim_at_endpoint(ctx, p) : v;
}

/* Claims a tuple at another endpoint. The loop begins with a constant: Linux 6.1
 * considers a loop from an unknown number infinite. A flow that chooses its endpoint
 * stays with the first one. */
static __always_inline enum verdict
claim_at_other_endpoint(ctx_t *ctx, struct packet *p, struct opening *o)
{
	enum verdict v = VERDICT_TAKEN;

	if (o->choice.is_held)
		v = claim_at_place(ctx, p, o, 0);
	for (__u32 i = 1; i < OPEN_ATTEMPTS && v == VERDICT_TAKEN; i++)
		v = claim_at_place(ctx, p, o, i);
	return v;
}

/* Reports whether a packet was refused because a pool of source ports has none for
 * it. */
static __always_inline bool is_refused_for_ports(const struct packet *p)
{
	return p->drop == DROP_SNAT_PORTS_EXHAUSTED ||
	       p->drop == DROP_UNKNOWN_SOURCE;
}

/* Claims a tuple at the endpoint. If the client's tuple is taken, claims it at another
 * endpoint; if it is taken everywhere, claims one with the client's address and another
 * port at the first endpoint. A client of select=persist keeps its endpoint for the
 * next connection. Global (verifier: globals). */
__noinline enum verdict claim(ctx_t *ctx, struct packet *p, struct opening *o,
			      bool is_apart)
{
	bool has_no_port;
	enum verdict v;
	__u32 first;

	if (!p || !o) /* verifier: null */
		return VERDICT_DROP;
	first = o->choice.endpoint;
	o->source.keeps_address = false;
	o->entries.is_apart = is_apart;
	v = claim_at_endpoint(ctx, p);
	if (likely(v != VERDICT_TAKEN) || unlikely(o->outward.is))
		return v;
	has_no_port = is_refused_for_ports(p);
	if (!o->outward.is_given &&
	    (!selects_by_client(&o->service) || has_no_port))
		v = claim_at_other_endpoint(ctx, p, o);
	if (v != VERDICT_TAKEN || has_no_port)
		return v;
	o->choice.endpoint = first;
	o->source.keeps_address = true;
	return claim_at_endpoint(ctx, p);
}

/* Reports the open connection to watchers. */
static __always_inline void notify_opened(const struct packet *p,
					  struct opening *o)
{
	if (unlikely(watching))
		connection_notify(p, &o->entries.entry, EVENT_OPENED);
	if (o->service.algorithm == ALGORITHM_PERSIST && !o->choice.is_held)
		persist_store(o, p->now);
}

/* Undoes the count of the first packet, which could not be translated. */
static __noinline void uncount_first_packet(const struct packet *p,
					    const struct entries *e)
{
	struct connection *c = entry_find(&e->client_key);

	if (!c || !c->packets || !e->entry.packets)
		return;
	c->packets--;
	c->bytes -= p->length;
}

/* Counts the SYN of a handshake, unless a policer has dropped it: then it is no
 * evidence about the endpoint. */
static __always_inline void
count_opened(const struct packet *p, const struct opening *o, enum verdict v)
{
	if (is_opening_syn(p) && !o->outward.is &&
	    o->service.mode != MODE_DSR &&
	    !(v == VERDICT_DROP && p->drop == DROP_POLICED))
		handshake_opened(p, o->choice.endpoint);
}

/* Forwards the packet that has opened the connection. */
static __always_inline enum verdict
forward_opening(ctx_t *ctx, struct packet *p, struct opening *o)
{
	struct connection *c = &o->entries.entry;
	enum verdict v;

	notify_opened(p, o);
	v = forward_first(ctx, p, c, o->hop);
	if (is_forwarded(v))
		count_traffic(p, c);
	else
		uncount_first_packet(p, &o->entries);
	count_opened(p, o, v);
	return v;
}

/* Forwards a packet whose copy, on another CPU, has opened the connection. */
static __always_inline enum verdict
forward_duplicate(ctx_t *ctx, struct packet *p, struct opening *o)
{
	struct connection *c = entry_find(&o->entries.client_key);
	enum verdict v;

	if (!c || c->traits & CONN_ENDED)
		return drop(p, DROP_CONNECTION_RACE);
	if (ipsec_drops(ctx, p, c))
		return drop(p, DROP_IPSEC_POLICY);
	v = forward_first(ctx, p, c, next_hop_resolve(ctx, p, c));
	if (is_forwarded(v))
		count(p, c);
	return v;
}

/* Reports whether the packet requested a refused connection, or belongs to a lost one.
 * A RST requests nothing. */
static __always_inline bool is_refused(const struct packet *p, enum verdict v)
{
	return v != VERDICT_REDIRECT &&
	       !(p->drop == DROP_NO_CONNECTION && p->tcp_flags & TCP_RST);
}

/* Counts a packet that is refused because of an endpoint. */
static __noinline int endpoint_count_refused(__u32 endpoint, __u32 why)
{
	struct endpoint_state *state = endpoint_state_find(endpoint);

	if (!state)
		return 0;
	if (why == DROP_SNAT_PORTS_EXHAUSTED)
		__sync_fetch_and_add(&state->snat_ports_exhausted, 1);
	else if (why == DROP_TUPLE_IN_USE)
		__sync_fetch_and_add(&state->tuple_in_use, 1);
	return 0;
}

/* Counts a packet that opens no connection, at its service, and at the endpoint if no
 * source port was left there. */
static __always_inline enum verdict leave_refused(const struct packet *p,
						  const struct opening *o,
						  enum verdict v,
						  bool by_endpoint)
{
	if (unlikely(o->outward.is) || !is_refused(p, v))
		return v;
	if (by_endpoint)
		endpoint_count_refused(o->choice.endpoint, p->drop);
	service_count_refused(o->service.id, p->drop);
	return v;
}

/* Forwards or refuses the packet, as the steps before have decided. */
static __noinline enum verdict leave(ctx_t *ctx, struct packet *p,
				     struct opening *o, enum verdict v)
{
	switch (v) {
	case VERDICT_OPENED:
		return forward_opening(ctx, p, o);
	case VERDICT_TWIN:
		return forward_duplicate(ctx, p, o);
	case VERDICT_CHALLENGE:
		return challenge_client(ctx, p);
	case VERDICT_QUIC:
		return quic_prepare(ctx, p, o);
	case VERDICT_TAKEN:
		/* a source that may be forged is not answered */
		v = p->drop == DROP_UNKNOWN_SOURCE ?
			    VERDICT_DROP :
			    service_refuse(p, &o->service, p->drop);
		return leave_refused(p, o, v, true);
	case VERDICT_FULL:
		return leave_refused(p, o, VERDICT_DROP, false);
	default:
		return leave_refused(p, o, v, false);
	}
}

/* Opens the connection at the chosen endpoint. v: of the steps before. */
static __always_inline enum verdict
open_at_chosen(ctx_t *ctx, struct packet *p, struct opening *o, enum verdict v)
{
	if (v == VERDICT_CONTINUE)
		v = reopen(ctx, p, o);
	if (v == VERDICT_MISS)
		v = claim(ctx, p, o, false);
	if (v == VERDICT_CONTINUE)
		v = enter(ctx, p, o);
	if (unlikely(v == VERDICT_MISS)) {
		v = claim(ctx, p, o, true);
		if (v == VERDICT_CONTINUE)
			v = enter(ctx, p, o);
	}
	return v;
}

/* Opens a connection for a packet that belongs to none, and forwards the packet. PASS:
 * it has no service. Global (verifier: globals). */
__noinline enum verdict connection_open(ctx_t *ctx, struct packet *p)
{
	struct opening *o = opening_get();
	enum verdict v;

	if (!p || !o) /* verifier: null */
		return VERDICT_DROP;
	v = judge(ctx, p, o);
	if (v != VERDICT_CONTINUE)
		return v;
	v = find_service(ctx, p, o);
	if (v != VERDICT_CONTINUE)
		return v;
	if (unlikely(o->service.flags & SERVICE_PROXY))
		v = proxy_change_syn(ctx, p);
	if (v == VERDICT_CONTINUE)
		v = admit(ctx, p, o);
	if (v == VERDICT_CONTINUE)
		v = choose(p, o);
	v = open_at_chosen(ctx, p, o, v);
	return leave(ctx, p, o, v);
}

#endif
