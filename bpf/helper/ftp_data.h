/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ftp_data.h - finds the control connection that a data connection of FTP is for.
 *
 * The program of control connections (ftp.h) has read the port in a command or reply, and
 * left what it expects:
 *
 *	passive   client > VIP:port        opens a connection of the service, at the endpoint
 *	active    endpoint > client:port   opens one outwards, from the VIP
 *
 * Afterwards it is a connection like others. What is expected expires after
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

static __always_inline bool expectation_is_valid(const struct expectation *e,
						 __u32 now)
{
	return jiffies_within(e->since, now, FTP_EXPECT_SECONDS * hz);
}

/* Finds a data connection that is expected, with a key whose other members are set. */
static __noinline __maybe_unused const struct expectation *
expectation_find(const struct expectation_key *key, __u32 now)
{
	const struct expectation *e = bpf_map_lookup_elem(&fragments, key);

	return e && expectation_is_valid(e, now) ? e : NULL;
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

/* ... or the endpoint opens one to the client. */
static __always_inline bool ftp_describe_active(const struct packet *p,
						struct opening *o,
						const struct expectation *e)
{
	const struct endpoint *ep = endpoint_find(e->endpoint);

	if (!ep || !same_addr(&ep->addr, &p->tuple.saddr))
		return false; /* another endpoint has its number by now */
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
	const struct expectation *e;
	struct expectation_key key;

	if (!p || !o /* verifier: null */ || p->tuple.protocol != IPPROTO_TCP ||
	    !is_opening_syn(p) || is_martian_source(p))
		return false;
	expectation_make_key(&key, &p->tuple.saddr, &p->tuple.daddr,
			     p->tuple.dport, EXPECT_PASSIVE);
	e = expectation_find(&key, p->now);
	if (e)
		return ftp_describe_passive(ctx, p, o, e);
	expectation_make_key(&key, &p->tuple.daddr, &p->tuple.saddr,
			     p->tuple.dport, EXPECT_ACTIVE);
	e = expectation_find(&key, p->now);
	return e && ftp_describe_active(p, o, e);
}

#endif
