/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * service.h - is a packet for a service, and may it open a connection there?
 */
#ifndef LOXILB_SERVICE_H
#define LOXILB_SERVICE_H

#include "maps.h"
#include "parse.h"

static __always_inline struct service *service_find(const struct packet *p)
{
	struct service_key key = {
		.vip = p->tuple.daddr,
		.port = p->tuple.dport,
		.protocol = p->tuple.protocol,
	};

	return bpf_map_lookup_elem(&services, &key);
}

static __always_inline bool is_vip(const struct ip_addr *addr)
{
	return bpf_map_lookup_elem(&vips, addr);
}

static __always_inline bool same_addr(const struct ip_addr *a,
				      const struct ip_addr *b)
{
	return a->word[3] == b->word[3] && a->word[2] == b->word[2] &&
	       a->word[1] == b->word[1] && a->word[0] == b->word[0];
}

/* A source that no reply can reach (RFC 6890, RFC 1122 section 3.2.1.3), or
 * the VIP itself, which would have the service talk to itself. */
static __always_inline bool martian_source(const struct packet *p)
{
	const struct ip_addr *a = &p->tuple.saddr;
	__u8 first = bpf_ntohl(a->word[3]) >> 24;

	if (same_addr(a, &p->tuple.daddr))
		return true;
	if (!p->ipv6)
		return first == 0 || first == 127 || first >= 224;
	if ((bpf_ntohl(a->word[0]) >> 24) == 0xff)
		return true;
	/* :: and ::1, and IPv4 addresses that no IPv6 packet may carry */
	return !a->word[0] && !a->word[1] &&
	       (a->word[2] == bpf_htonl(0xffff) ||
		(!a->word[2] && bpf_ntohl(a->word[3]) <= 1));
}

/* CONTINUE if the packet may open a connection of a service. */
static __always_inline enum verdict service_admit(struct packet *p)
{
	const __u8 opens = TCP_SYN | TCP_ACK | TCP_RST | TCP_FIN;

	if (p->drop) /* found while parsing */
		return VERDICT_DROP;
	if (p->tuple.protocol == IPPROTO_TCP &&
	    (p->tcp_flags & opens) != TCP_SYN)
		return drop(p, DROP_NO_CONNECTION);
	if (martian_source(p))
		return drop(p, DROP_MARTIAN_SOURCE);
	return VERDICT_CONTINUE;
}

#endif
