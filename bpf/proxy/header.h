/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * header.h - the header of the PROXY protocol, version 2: the client, and the address
 * and port that it has connected to. The endpoint receives it before the connection's
 * data.
 */
#ifndef LOXILB_PROXY_HEADER_H
#define LOXILB_PROXY_HEADER_H

#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include "packet/address.h"
#include "packet/packet.h"

#define PROXY_SIGNATURE { 0x0d0a0d0a, 0x000d0a51, 0x5549540a }
#define PROXY_COMMAND 0x21 /* version 2, PROXY */
#define PROXY_TCP4 0x11
#define PROXY_TCP6 0x21

struct proxy_header {
	__be32 signature[3];
	__u8 command;
	__u8 family;
	__be16 length; /* of what follows */
	union {
		struct {
			__be32 saddr, daddr;
			__be16 sport, dport;
		} v4;
		struct {
			struct ip_addr saddr, daddr;
			__be16 sport, dport;
		} v6;
	};
};

#define PROXY_PREFIX 16
#define PROXY_LENGTH4 (PROXY_PREFIX + 12)
#define PROXY_LENGTH6 (PROXY_PREFIX + 36)
_Static_assert(sizeof(struct proxy_header) == PROXY_LENGTH6, "as sent");

/* Reports whether the client of a connection uses IPv6. Its packets may leave as those of
 * the other IP version. */
static __always_inline bool proxy_client_is_ipv6(const struct connection *c)
{
	const bool leaves_as_ipv6 = !is_mapped_ipv4(&c->daddr);

	if (c->flags & CONN_REPLY_DIRECTION)
		return leaves_as_ipv6;
	return leaves_as_ipv6 != !!(c->hop & HOP_FAMILY);
}

/* Reports whether a header of the PROXY protocol precedes the client's data. */
static __always_inline bool
connection_has_proxy_header(const struct connection *c)
{
	return (c->hop & (HOP_CHANGES_STREAM | HOP_HELPER)) ==
	       HOP_CHANGES_STREAM;
}

/* Returns the length of a connection's header. */
static __always_inline __u32 proxy_length(const struct connection *c)
{
	return proxy_client_is_ipv6(c) ? PROXY_LENGTH6 : PROXY_LENGTH4;
}

/* Fills in the header for a packet of the client, as it has arrived. h is cleared. */
static __always_inline void proxy_fill(struct proxy_header *h,
				       const struct packet *p)
{
	const __u32 signature[] = PROXY_SIGNATURE;

	for (int i = 0; i < 3; i++)
		h->signature[i] = bpf_htonl(signature[i]);
	h->command = PROXY_COMMAND;
	if (p->ipv6) {
		h->family = PROXY_TCP6;
		h->length = bpf_htons(PROXY_LENGTH6 - PROXY_PREFIX);
		h->v6.saddr = p->tuple.saddr;
		h->v6.daddr = p->tuple.daddr;
		h->v6.sport = p->tuple.sport;
		h->v6.dport = p->tuple.dport;
	} else {
		h->family = PROXY_TCP4;
		h->length = bpf_htons(PROXY_LENGTH4 - PROXY_PREFIX);
		h->v4.saddr = p->tuple.saddr.word[3];
		h->v4.daddr = p->tuple.daddr.word[3];
		h->v4.sport = p->tuple.sport;
		h->v4.dport = p->tuple.dport;
	}
}

#endif
