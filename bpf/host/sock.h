/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sock.h - chooses the endpoint for a socket of this machine that connects to a VIP.
 *
 * The socket is connected to the endpoint itself, so its packets need no translation,
 * and no program sees them. The choice is stored with the socket and freed with it: an
 * open socket counts as a connection.
 *
 * A datagram socket that names a destination with each packet may have eight flows. The
 * ninth replaces the oldest; a later datagram to that destination chooses an endpoint
 * again.
 */
#ifndef LOXILB_SOCK_H
#define LOXILB_SOCK_H

#include <linux/errno.h>
#include "packet/clock.h"
#include "service/persist.h"
#include "service/select.h"
#include "service/service.h"

#define SOCK_FLOWS 8

/* A VIP that the socket uses, and the endpoint chosen for it. */
struct sock_flow {
	struct ip_addr vip;
	struct ip_addr addr; /* of the endpoint */
	__be16 vip_port;
	__be16 port;
	__u32 endpoint; /* index into endpoints */
	__u32 seen; /* jiffies */
	__u32 used; /* the other members are valid iff it is set */
};

/* The inputs of the choice. */
struct sock_request {
	__u64 cookie;
	__u32 mark;
	__u32 both; /* the socket can use either IP version */
};

struct sock_flows {
	struct bpf_spin_lock lock; /* threads may share a socket */
	__u32 next; /* index of the flow that is replaced next */
	struct sock_flow connected; /* of connect() */
	struct sock_flow flows[SOCK_FLOWS]; /* of datagrams with a
					     * destination */
};

/* socket -> its flows. Written and read by the hooks; the kernel frees it with
 * the socket. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct sock_flows);
} sock_flows SEC(".maps");

/* How many flows of sockets count as connections of an endpoint, and how often
 * that has changed. */
struct socket_count {
	__s64 open;
	__u64 changes;
};

/* Endpoints for which flows of this machine's sockets can be recounted: a table for
 * all endpoints would take 4 MB of buckets. */
#define MAX_SOCKET_ENDPOINTS 16384

/* endpoint id -> its count. Written by the hooks; read by user, which compares it
 * with the existing sockets, unless it is full. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SOCKET_ENDPOINTS);
	__type(key, __u32);
	__type(value, struct socket_count);
} socket_counts SEC(".maps");

static __always_inline void sock_note_change(__u32 endpoint, __s64 by)
{
	const struct socket_count none = {};
	struct socket_count *n = bpf_map_lookup_elem(&socket_counts, &endpoint);

	if (!n) {
		bpf_map_update_elem(&socket_counts, &endpoint, &none,
				    BPF_NOEXIST);
		n = bpf_map_lookup_elem(&socket_counts, &endpoint);
		if (!n)
			return;
	}
	__sync_fetch_and_add(&n->open, by);
	__sync_fetch_and_add(&n->changes, 1);
}

/* Adds to the flows of an endpoint. A closed socket leaves nothing in the table, so
 * all flows are active. */
static __always_inline void sock_add(struct endpoint_state *s, __s64 by)
{
	__sync_fetch_and_add(&s->active, by);
	__sync_fetch_and_add(&s->tracked, by);
}

static __noinline void sock_count(__u32 endpoint)
{
	struct endpoint_state *s = endpoint_state_find(endpoint);

	if (!s)
		return;
	sock_add(s, 1);
	__sync_fetch_and_add(&s->connections, 1);
	sock_note_change(endpoint, 1);
}

static __noinline void sock_uncount_endpoint(__u32 endpoint)
{
	struct endpoint_state *s = endpoint_state_find(endpoint);

	if (s)
		sock_add(s, -1);
	sock_note_change(endpoint, -1);
}

/* Uncounts a flow that was replaced, or whose socket is closed. */
static __always_inline void sock_uncount(const struct sock_flow *f)
{
	if (f->used)
		sock_uncount_endpoint(f->endpoint);
}

/* Returns the error for a refused connection, without delay: the error of a refusing
 * endpoint, or of a silent one. */
static __always_inline int sock_refuse_error(const struct service *svc)
{
	if (svc->flags & SERVICE_REFUSE_PASS)
		return -ENOENT;
	return svc->flags & SERVICE_REFUSE_DROP ? -ETIMEDOUT : -ECONNREFUSED;
}

/* Chooses by the service's algorithm; the socket's cookie stands for a packet's source.
 * System calls may be preempted, and another call may use the opening meanwhile. Any
 * position is valid, so at worst the chosen endpoint is not the least loaded one. */
static __noinline __u32 *sock_select(struct packet *p,
				     const struct service *svc, __u64 cookie)
{
	struct opening *o = opening_get();

	if (!o)
		return NULL;
	o->service = *svc;
	p->tuple.saddr.word[0] = cookie;
	p->tuple.saddr.word[1] = cookie >> 32;
	return select_slot(svc, select_position(p, o));
}

/* Chooses for algorithm persist: this machine is one client. */
static __noinline __u32 *sock_persist(const struct packet *p,
				      const struct service *svc)
{
	struct persist_key client = { .service = svc->id };
	struct persist_entry entry = { .seen = p->now }, *old;
	void *table = lazy_hash_get(&persists);
	__u32 *slot;

	if (!table)
		return NULL;
	old = bpf_map_lookup_elem(table, &client);
	if (old && persist_is_valid(old, svc->id, p->now)) {
		old->seen = p->now;
		return &old->endpoint;
	}
	slot = select_slot(svc, persist_position(&client));
	if (!slot)
		return NULL;
	entry.endpoint = *slot;
	bpf_map_update_elem(table, &client, &entry, BPF_ANY);
	return slot;
}

/* Makes a flow to one of the service's endpoints. Returns -EAGAIN if the
 * service is being replaced. Global (verifier: globals). */
__noinline int sock_flow_to_endpoint(struct packet *p,
				     const struct service *svc,
				     const struct sock_request *request,
				     struct sock_flow *f)
{
	struct endpoint *ep;
	__u32 *slot, id;

	if (!p || !svc || !request || !f) /* verifier: null */
		return -EAGAIN;
	slot = svc->algorithm == ALGORITHM_PERSIST ?
		       sock_persist(p, svc) :
		       sock_select(p, svc, request->cookie);
	if (!slot)
		return -EAGAIN;
	id = *slot;
	ep = endpoint_find(id);
	if (!ep || ep->service != svc->id)
		return -EAGAIN;
	if (is_mapped_ipv4(&ep->addr) == p->ipv6 && !request->both)
		return -ENETUNREACH;
	f->vip = p->tuple.daddr;
	f->vip_port = p->tuple.dport;
	f->addr = ep->addr;
	f->port = endpoint_port(p, ep);
	f->endpoint = id;
	f->seen = p->now;
	f->used = 1;
	return 0;
}

/* Copies the service of a packet. Global (verifier: globals): the verifier would follow
 * each path through it in each round of the caller's loop. */
__noinline int sock_service(struct packet *p, __u32 mark, struct service *svc)
{
	if (!p || !svc) /* verifier: null */
		return false;
	return service_copy(p, mark, svc);
}

/* Finds the service and makes a flow. Returns -ENOENT if the kernel handles the
 * connection: there is no service, or it refuses with SERVICE_REFUSE_PASS. The socket's
 * program gets all other errors. Its packets do not pass the balancer, so they cannot
 * get a PROXY header. */
static __noinline int sock_new_flow(struct packet *p,
				    const struct sock_request *request,
				    struct sock_flow *f)
{
	struct service svc = {}; /* verifier: globals */
	int err = -EAGAIN;

	for (int i = 0; i < 3 && err == -EAGAIN; i++) {
		if (!sock_service(p, request->mark, &svc))
			return -ENOENT;
		if (svc.flags & SERVICE_PROXY)
			return -EOPNOTSUPP;
		if (!svc.slot_count) {
			service_count_refused(svc.id, DROP_NO_ENDPOINT);
			return sock_refuse_error(&svc);
		}
		err = sock_flow_to_endpoint(p, &svc, request, f);
	}
	return err;
}

/* Reports whether the flow's endpoint is still in use and up, and the flow has been
 * used within its timeout. */
static __noinline bool sock_flow_is_valid(const struct sock_flow *f, __u32 now)
{
	__u32 id = f->endpoint, service, *idle, limit = timeout_udp_replied;
	struct endpoint *ep = endpoint_find(id);

	if (!ep || !(ep->flags & ENDPOINT_IN_USE) || endpoint_is_lost(ep) ||
	    !same_addr(&ep->addr, &f->addr))
		return false;
	service = ep->service;
	idle = bpf_map_lookup_elem(&idle_timeouts, &service);
	if (idle && *idle)
		limit = *idle;
	return jiffies_within(f->seen, now, limit);
}

/* Finds a valid flow to the destination of a datagram. */
static __noinline bool sock_find_flow(struct sock_flows *s,
				      const struct packet *p,
				      struct sock_flow *out)
{
	bool found = false;

	bpf_spin_lock(&s->lock);
	for (int i = 0; i < SOCK_FLOWS; i++) {
		struct sock_flow *f = &s->flows[i];

		if (f->used && f->vip_port == p->tuple.dport &&
		    same_addr(&f->vip, &p->tuple.daddr)) {
			*out = *f;
			f->seen = p->now;
			found = true;
			break;
		}
	}
	bpf_spin_unlock(&s->lock);
	return found && sock_flow_is_valid(out, p->now);
}

/* Stores a flow in the place of a flow to the same VIP, in an empty place, or in the
 * place of the oldest flow. Returns the former content. */
static __noinline void sock_store_flow(struct sock_flows *s,
				       const struct sock_flow *flow,
				       struct sock_flow *old)
{
	__u32 place = SOCK_FLOWS;

	bpf_spin_lock(&s->lock);
	for (int i = 0; i < SOCK_FLOWS; i++) {
		struct sock_flow *f = &s->flows[i];

		if (f->used && f->vip_port == flow->vip_port &&
		    same_addr(&f->vip, &flow->vip)) {
			place = i;
			break;
		}
		if (!f->used && place == SOCK_FLOWS)
			place = i;
	}
	if (place >= SOCK_FLOWS)
		place = s->next++;
	place %= SOCK_FLOWS;
	*old = s->flows[place];
	s->flows[place] = *flow;
	bpf_spin_unlock(&s->lock);
}

/* Replaces an endpoint's address by the VIP that it stands for. */
static __noinline bool sock_rewrite_to_vip(struct sock_flows *s,
					   struct packet *p)
{
	struct sock_flow *f = &s->connected;
	bool found = false;

	bpf_spin_lock(&s->lock);
	for (int i = 0; i <= SOCK_FLOWS && !found; i++) {
		if (i)
			f = &s->flows[i - 1];
		if (f->used && f->port == p->tuple.dport &&
		    same_addr(&f->addr, &p->tuple.daddr)) {
			p->tuple.daddr = f->vip;
			p->tuple.dport = f->vip_port;
			f->seen = p->now;
			found = true;
		}
	}
	bpf_spin_unlock(&s->lock);
	return found;
}

#endif
