/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * service.h - finds the service of a packet, and checks whether its source may open a
 * connection.
 */
#ifndef LOXILB_SERVICE_H
#define LOXILB_SERVICE_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/address.h"
#include "packet/packet.h"

/* How many services have a range of ports, and how many a mark. Packets pay nothing
 * while it is 0. Written by user. */
volatile __u32 range_services SEC(".data.runtime") = 0;
volatile __u32 marked_services SEC(".data.runtime") = 0;

/* Finds a service by the packet's mark, or by a range of ports. With a mark,
 * the service of the packet's own port comes first. Of ranges, the longest
 * prefix of ports wins; ranges do not overlap, except for the range of all
 * ports, which comes last. */
static __noinline struct service *
service_find_mark_or_range(const struct packet *p, __u32 mark)
{
	struct range_key range = {
		.prefix_length = RANGE_BITS,
		.vip = p->tuple.daddr,
		.mark = mark,
		.protocol = p->tuple.protocol,
		.port = p->tuple.dport,
	};
	struct service_key key = {
		.vip = p->tuple.daddr,
		.port = p->tuple.dport,
		.protocol = p->tuple.protocol,
		.mark = mark,
	};
	struct service *svc;
	struct vip *vip;
	__u32 *first;

	if (mark) {
		svc = bpf_map_lookup_elem(&services, &key);
		if (svc || !range_services)
			return svc;
	}
	vip = bpf_map_lookup_elem(&vips, &key.vip);
	if (!vip || !vip->ranges)
		return NULL;
	first = bpf_map_lookup_elem(&service_ranges, &range);
	if (!first)
		return NULL;
	key.port = bpf_htons(*first);
	key.kind = SERVICE_RANGE;
	return bpf_map_lookup_elem(&services, &key);
}

/* Finds the service of a packet. A service with the packet's mark takes precedence over
 * services without a mark, and a service of its port over ranges. */
static __always_inline struct service *service_find(const struct packet *p,
						    __u32 mark)
{
	struct service_key key = {
		.vip = p->tuple.daddr,
		.port = p->tuple.dport,
		.protocol = p->tuple.protocol,
	};
	struct service *svc;

	if (unlikely(mark && marked_services)) {
		svc = service_find_mark_or_range(p, mark);
		if (svc)
			return svc;
	}
	svc = bpf_map_lookup_elem(&services, &key);
	if (likely(svc || !range_services))
		return svc;
	return service_find_mark_or_range(p, 0);
}

/* Reports whether a list of sources contains the packet's source. */
static __noinline __maybe_unused bool is_source_listed(const struct packet *p,
						       __u32 list)
{
	struct source_key key = {
		.prefix_length = SOURCE_BITS,
		.list = list,
		.addr = p->tuple.saddr,
	};

	return bpf_map_lookup_elem(&allowed_sources, &key);
}

/* Returns why a source may not open connections of the service, or DROP_NONE. */
static __always_inline enum drop_reason source_reason(const struct packet *p,
						      const struct service *svc)
{
	if (svc->flags & SERVICE_DENIES &&
	    is_source_listed(p, svc->id | SOURCES_DENIED))
		return DROP_SOURCE_DENIED;
	if (svc->flags & SERVICE_SOURCES && !is_source_listed(p, svc->id))
		return DROP_SOURCE_NOT_ALLOWED;
	return DROP_NONE;
}

/* How many services are on every local address; their VIP is :: or ::ffff:0.0.0.0.
 * They are looked up last, and packets pay nothing while it is 0. Written by user. */
volatile __u32 host_services SEC(".data.runtime") = 0;

static __noinline struct service *service_find_any_local(struct packet *p,
							 __u32 mark)
{
	struct ip_addr daddr = p->tuple.daddr;
	struct service *svc;

	if (!bpf_map_lookup_elem(&local_addresses, &daddr))
		return NULL;
	p->tuple.daddr.word[0] = 0;
	p->tuple.daddr.word[1] = 0;
	p->tuple.daddr.word[2] = p->ipv6 ? 0 : bpf_htonl(0xffff);
	p->tuple.daddr.word[3] = 0;
	svc = service_find(p, mark);
	p->tuple.daddr = daddr;
	return svc;
}

/* Finds the service that a packet is for, including those on all local addresses. */
static __always_inline struct service *service_find_any(struct packet *p,
							__u32 mark)
{
	struct service *svc = service_find(p, mark);

	return svc || likely(!host_services) ? svc :
					       service_find_any_local(p, mark);
}

/* Copies that service, if there is one: the row in the map may be replaced at any
 * time. */
static __noinline bool service_copy(struct packet *p, __u32 mark,
				    struct service *svc)
{
	const struct service *found = service_find_any(p, mark);

	if (!found)
		return false;
	*svc = *found;
	return true;
}

/* Returns the refusal that a dropped packet counts as. REFUSALS: none, because the
 * sender is forged, or repeats the packet. */
static __always_inline enum refusal refusal_of(enum drop_reason why)
{
	switch (why) {
	case DROP_NO_ENDPOINT:
		return REFUSAL_NO_ENDPOINT;
	case DROP_CONNTRACK_FULL:
		return REFUSAL_CONNTRACK_FULL;
	case DROP_CONNECTION_LIMIT:
		return REFUSAL_CONNECTION_LIMIT;
	case DROP_RATE_LIMIT:
		return REFUSAL_RATE_LIMIT;
	case DROP_SOURCE_NOT_ALLOWED:
		return REFUSAL_SOURCE_NOT_ALLOWED;
	case DROP_SOURCE_DENIED:
		return REFUSAL_SOURCE_DENIED;
	case DROP_HALF_OPEN_FULL:
		return REFUSAL_HALF_OPEN_FULL;
	case DROP_UNKNOWN_SOURCE:
		return REFUSAL_UNKNOWN_SOURCE;
	case DROP_SNAT_PORTS_EXHAUSTED:
		return REFUSAL_SNAT_PORTS_EXHAUSTED;
	case DROP_TUPLE_IN_USE:
		return REFUSAL_TUPLE_IN_USE;
	case DROP_NO_CONNECTION:
		return REFUSAL_NO_CONNECTION;
	case DROP_NO_MEMORY:
	case DROP_NO_ROUTE:
	case DROP_IPSEC_POLICY:
		return REFUSAL_OTHER;
	default:
		return REFUSALS;
	}
}

/* Counts a packet that a service refuses. Atomic, on a line that only refused packets
 * write: per-CPU rows would take half a gigabyte with 64 CPUs. Returns a value
 * (verifier: globals). */
static __noinline __maybe_unused int service_count_refused(__u32 service,
							   __u32 why)
{
	__u32 refusal = refusal_of(why);
	struct service_state *state =
		bpf_map_lookup_elem(&service_states, &service);

	asm volatile("" : "+r"(refusal)); /* verifier: bounds */
	if (state && refusal < REFUSALS)
		__sync_fetch_and_add(&state->refused[refusal], 1);
	return 0;
}

/* Reports whether no reply can reach the source (RFC 6890, RFC 1122 section 3.2.1.3),
 * or it is the VIP itself, so the service would talk to itself. */
static __always_inline bool is_martian_source(const struct packet *p)
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

/* Returns why a packet from its source may not open connections of the service at
 * all, or DROP_NONE. */
static __always_inline enum drop_reason
source_refusal(const struct packet *p, const struct service *svc)
{
	return is_martian_source(p) ? DROP_MARTIAN_SOURCE :
				      source_reason(p, svc);
}

#endif
