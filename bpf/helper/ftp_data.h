/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ftp_data.h - finds the control connection that a data connection of FTP is for.
 *
 * The program of control connections (ftp.h) has read the port in a command or reply,
 * and stored an expectation:
 *
 *	passive   client > VIP:port        opens a connection of the service, at the endpoint
 *	active    endpoint > client:port   opens one outwards, from the VIP
 *
 * Afterwards it is a connection like others. The first SYN uses up the expectation;
 * repetitions of the SYN have the same source port. An unused expectation expires after
 * FTP_EXPECT_SECONDS, without the daemon.
 */
#ifndef LOXILB_HELPER_FTP_DATA_H
#define LOXILB_HELPER_FTP_DATA_H

#include "packet/clock.h"
#include "protocol/tcp.h"
#include "service/opening.h"
#include "service/service.h"

/* How many services have SERVICE_FTP. Packets pay nothing while it is 0. Written by user. */
volatile __u32 ftp_services SEC(".data.runtime") = 0;

/* enum ftp_refusal -> announcements of data connections that are not expected. Read by user. */
__u64 ftp_refusals[FTP_REFUSALS] SEC(".data.runtime") = {};

/* The row after the SYN that has used up the expectation. */
#define FTP_OPENER(sport) (0x10000 | (sport))

static __always_inline void expectation_make_key(struct expectation_key *key,
						 const struct ip_addr *client,
						 const struct ip_addr *server,
						 __be16 port, __u8 kind)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->client = *client;
	key->server = *server;
	key->port = port;
	key->kind = kind;
}

static __always_inline bool expectation_is_valid(__u32 since, __u32 now)
{
	return jiffies_within(since, now, FTP_EXPECT_SECONDS * hz);
}

/* Finds a data connection that is expected, with a key whose other members are set. */
static __noinline __maybe_unused struct expectation *
expectation_find(const struct expectation_key *key, __u32 now)
{
	struct expectation *e = bpf_map_lookup_elem(&fragments, key);

	return e && expectation_is_valid(e->since, now) ? e : NULL;
}

/* Marks the announcement of the control connection as used, so another control
 * connection can take its place. Until then its row stays, so repeated segments are
 * recognized. Changes the key, which is that of the data connection. */
static __noinline __maybe_unused int
expectation_settle(struct expectation_key *key, const struct expectation *e)
{
	const __u32 endpoint = e->endpoint;
	const __be16 port = key->port;
	const __u8 kind = key->kind;
	struct announcement *control;

	__builtin_memset(&key->server, 0, sizeof(key->server));
	key->port = e->place;
	key->kind = EXPECT_CONTROL;
	control = bpf_map_lookup_elem(&fragments, key);
	if (control && control->kind == kind && control->vip_port == port &&
	    control->endpoint == endpoint)
		control->is_used = true;
	return 0;
}

/* Reports whether a SYN may open the data connection. The first one uses it up: afterwards
 * only its repetitions may, as the connection may not have been admitted. Two hosts that
 * share the client's address have different ports. */
static __always_inline bool expectation_use(struct expectation_key *key,
					    struct expectation *e,
					    const struct packet *p)
{
	const __u32 opener = FTP_OPENER(p->tuple.sport);
	const __u32 had = __sync_val_compare_and_swap(&e->opener, 0, opener);

	if (had)
		return had == opener;
	expectation_settle(key, e);
	return true;
}

/* Fills in what open.h needs: the client opens a connection of the service, and has its
 * endpoint already. It may be drained: then the service may have no slot. */
static __always_inline bool ftp_describe_passive(ctx_t *ctx, struct packet *p,
						 struct opening *o,
						 const struct expectation *e)
{
	const struct endpoint *ep = endpoint_find(e->endpoint);
	const __be16 port = p->tuple.dport;
	bool found;

	p->tuple.dport = e->service_port;
	found = service_copy(p, ctx_mark(ctx), &o->service);
	p->tuple.dport = port;
	if (!found || !ep || ep->service != o->service.id ||
	    !(o->service.flags & SERVICE_FTP) || !same_addr(&ep->addr, &e->vip))
		return false;
	o->service.slot_count = 1;
	o->service.algorithm = ALGORITHM_HASH;
	o->service.flags &= ~(SERVICE_HELPERS | SERVICE_PROXY);
	o->choice.endpoint = e->endpoint;
	o->outward.is_given = true;
	o->outward.peer = *ep;
	o->outward.peer.flags &= ~ENDPOINT_SHIFT;
	o->outward.peer.port = e->port;
	return true;
}

/* Fills in what open.h needs: the endpoint opens a connection to the client. */
static __always_inline bool ftp_describe_active(const struct packet *p,
						struct opening *o,
						const struct expectation *e)
{
	const struct endpoint *ep = endpoint_find(e->endpoint);

	if (!ep || !same_addr(&ep->addr, &p->tuple.saddr))
		return false; /* its id belongs to another endpoint by now */
	__builtin_memset(&o->service, 0, sizeof(o->service));
	__builtin_memset(&o->outward, 0, sizeof(o->outward));
	o->service.id = ep->service;
	o->choice.endpoint = e->endpoint;
	o->outward.is = true;
	o->outward.is_given = true;
	o->outward.keeps_port = true;
	o->outward.peer.source = e->vip;
	o->outward.peer.addr = p->tuple.daddr;
	o->outward.peer.port = p->tuple.dport;
	o->outward.peer.service = ep->service;
	return true;
}

/* Reports whether the packet opens a data connection that is expected. Global (verifier:
 * globals). */
__noinline int ftp_find_service(ctx_t *ctx, struct packet *p, struct opening *o)
{
	struct expectation_key key;
	struct expectation *e;

	if (!p || !o /* verifier: null */ || p->tuple.protocol != IPPROTO_TCP ||
	    !is_opening_syn(p) || is_martian_source(p))
		return false;
	expectation_make_key(&key, &p->tuple.saddr, &p->tuple.daddr,
			     p->tuple.dport, EXPECT_PASSIVE);
	e = expectation_find(&key, p->now);
	if (e)
		return expectation_use(&key, e, p) &&
		       ftp_describe_passive(ctx, p, o, e);
	expectation_make_key(&key, &p->tuple.daddr, &p->tuple.saddr,
			     p->tuple.dport, EXPECT_ACTIVE);
	e = expectation_find(&key, p->now);
	return e && expectation_use(&key, e, p) && ftp_describe_active(p, o, e);
}

#endif
