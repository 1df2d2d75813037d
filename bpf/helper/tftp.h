/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * tftp.h - finds the connection that an answer of a TFTP server is for.
 *
 * A client sends its request to the server's well-known port, and the server answers from a
 * new one (RFC 1350 section 4):
 *
 *	client:4000 > VIP:69          request, a connection of the service
 *	endpoint:50000 > client:4000  answer, opens a connection of its own:
 *	VIP:50000 > client:4000       as the client receives it
 *
 * The entry of replies to the request has all data for the answer. So there is no other
 * state to expire or to copy, and established packets pay nothing
 * (docs/adr/0104-ftp-tftp.md).
 */
#ifndef LOXILB_HELPER_TFTP_H
#define LOXILB_HELPER_TFTP_H

#include "conntrack/conntrack.h"
#include "conntrack/expiry.h"
#include "service/opening.h"
#include "service/service.h"

/* The ports at which endpoints of services with SERVICE_TFTP listen: up to TFTP_PORTS, 16
 * bits each, in network byte order. 0: none, and packets pay nothing. Written by user. */
volatile __u32 tftp_ports SEC(".data.runtime") = 0;

/* Fills in what open.h needs: the endpoint opens a connection to its client, which sees
 * the VIP. request: the entry of replies to the client's request. */
static __always_inline bool tftp_describe(struct opening *o,
					  const struct connection *request)
{
	const struct endpoint *ep = endpoint_find(request->endpoint);

	if (!ep)
		return false;
	__builtin_memset(&o->service, 0, sizeof(o->service));
	__builtin_memset(&o->outward, 0, sizeof(o->outward));
	o->service.id = ep->service;
	o->choice.endpoint = request->endpoint;
	o->outward.is = true;
	o->outward.is_given = true;
	o->outward.keeps_port = true;
	o->outward.peer.source = request->saddr;
	o->outward.peer.addr = request->daddr;
	o->outward.peer.port = request->dport;
	o->outward.peer.service = ep->service;
	return true;
}

/* Finds the entry of replies to a request of the client, at this port of the server. */
static __noinline __maybe_unused struct connection *
tftp_find_request(const struct packet *p, __be16 port)
{
	struct connection_key key = p->tuple;
	struct connection *c;
	__u32 word;

	key.sport = port;
	c = entry_find(&key);
	if (!c)
		return NULL;
	word = state_read(c);
	if (!(word & CONN_REPLY_DIRECTION) || !(c->hop & HOP_HELPER) ||
	    word & STATE_TRAIT(CONN_SINGLE_ENTRY | CONN_ENDED) ||
	    connection_is_expired(c, IPPROTO_UDP, p->now, 0))
		return NULL;
	return c;
}

/* Reports whether the packet is a server's answer from a new port. Global (verifier:
 * globals). */
__noinline int tftp_find_service(const struct packet *p, struct opening *o)
{
	const struct connection *request;
	__u32 ports = tftp_ports;

	if (!p || !o /* verifier: null */ || p->tuple.protocol != IPPROTO_UDP ||
	    is_martian_source(p))
		return false;
	NO_UNROLL
	for (int i = 0; i < TFTP_PORTS && ports; i++, ports >>= 16) {
		request = tftp_find_request(p, (__be16)ports);
		if (request)
			return tftp_describe(o, request);
	}
	return false;
}

#endif
