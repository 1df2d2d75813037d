/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ftp_place.h - limits the data connections that a client's address may have announced.
 *
 * An address has FTP_PER_CLIENT places. A control connection occupies one with its last
 * announcement until this is used up or expires. So a client has at most two rows per
 * place in the shared table, and cannot evict the expectations of others.
 */
#ifndef LOXILB_HELPER_FTP_PLACE_H
#define LOXILB_HELPER_FTP_PLACE_H

#include "helper/ftp_data.h"
#include "helper/ftp_text.h"

#if ONLY_PROXY

/* Fills in the control connection of a segment, and the first candidate for its place.
 */
static __always_inline void ftp_set_control(struct ftp_scratch *s,
					    const struct packet *p,
					    const struct connection *c)
{
	struct announcement *own = &s->announced;

	__builtin_memset(own, 0, sizeof(*own));
	__builtin_memset(&s->place, 0, sizeof(s->place));
	s->place.kind = EXPECT_CONTROL;
	if (c->flags & CONN_REPLY_DIRECTION) {
		s->place.client = c->daddr;
		own->vip = c->saddr;
		own->client_port = c->dport;
		own->service_port = c->sport;
	} else {
		s->place.client = p->tuple.saddr;
		own->vip = p->tuple.daddr;
		own->client_port = p->tuple.sport;
		own->service_port = p->tuple.dport;
	}
	own->endpoint = c->endpoint;
	own->since = p->now;
	own->seq = p->seq + s->scan.line;
	s->first_place = bpf_ntohs(own->client_port);
	s->free_place = FTP_PER_CLIENT;
	s->is_own = false;
}

/* Reports whether a row of the client is of the control connection itself. */
static __always_inline bool ftp_is_own(const struct ftp_scratch *s,
				       const struct announcement *a)
{
	return a->client_port == s->announced.client_port &&
	       a->service_port == s->announced.service_port &&
	       same_addr(&a->vip, &s->announced.vip);
}

/* Checks a place. An empty place ends the search, since rows do not move. Only an
 * evicted row can hide a later one, which then expires. */
static long ftp_check_place(__u32 i, struct ftp_walk *w)
{
	struct ftp_scratch *s = w->s;
	const struct announcement *a;

	s->place.port = (s->first_place + i) % FTP_PER_CLIENT;
	a = bpf_map_lookup_elem(&fragments, &s->place);
	if (a && ftp_is_own(s, a)) {
		s->free_place = s->place.port;
		s->is_own = true;
		return 1;
	}
	if (s->free_place == FTP_PER_CLIENT &&
	    (!a || a->is_used ||
	     !expectation_is_valid(a->since, s->announced.since)))
		s->free_place = s->place.port;
	return !a;
}

/* Finds the place of a control connection, or a free one for it. Returns its row; NULL: there
 * is none yet, or no place is free. */
static __noinline struct announcement *
ftp_find_place(const struct packet *p, const struct connection *c,
	       struct ftp_scratch *s)
{
	struct ftp_walk w = { .s = s };

	ftp_set_control(s, p, c);
	bpf_loop(FTP_PER_CLIENT, ftp_check_place, &w, 0);
	if (s->free_place >= FTP_PER_CLIENT)
		return NULL;
	s->place.port = s->free_place;
	return bpf_map_lookup_elem(&fragments, &s->place);
}

/* Forgets the last announcement of the present or former control connection of a place.
 * Another control connection of the client may have announced the same since; then the
 * row's place differs. */
static __noinline int ftp_forget(const struct ftp_scratch *s,
				 const struct announcement *last)
{
	const struct ip_addr *server = &last->vip;
	const struct endpoint *ep;
	const struct expectation *e;
	struct expectation_key key;

	if (last->kind == EXPECT_ACTIVE) {
		ep = endpoint_find(last->endpoint);
		if (!ep)
			return 0;
		server = &ep->addr;
	}
	expectation_make_key(&key, &s->place.client, server, last->vip_port,
			     last->kind);
	e = bpf_map_lookup_elem(&fragments, &key);
	if (e && e->place == s->free_place)
		bpf_map_delete_elem(&fragments, &key);
	return 0;
}

#endif
#endif
