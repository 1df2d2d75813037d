/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * trace_filter.h - filters packets for tracers (trace.h).
 */
#ifndef LOXILB_TRACE_FILTER_H
#define LOXILB_TRACE_FILTER_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include "maps.h"
#include "shared.h"
#include "observe/trace_note.h"
#include "packet/address.h"
#include "protocol/protocol.h"

/* Reads addresses and ports of an IPv4 packet, of which left bytes were copied. */
static __always_inline void trace_key4(const __u8 *ip, __u32 left,
				       struct connection_key *key)
{
	const struct iphdr *h = (const void *)ip;
	__u32 l4 = (ip[0] & 0xf) * 4;

	map_ipv4(&key->saddr, h->saddr);
	map_ipv4(&key->daddr, h->daddr);
	key->protocol = h->protocol;
	if (!protocol_of(h->protocol).has_ports || left < l4 + 4 ||
	    h->frag_off & bpf_htons(0x1fff))
		return;
	__builtin_memcpy(&key->sport, ip + l4, 2);
	__builtin_memcpy(&key->dport, ip + l4 + 2, 2);
}

/* Reads addresses and ports of an IPv6 packet. Ports after extension headers are not
 * found. */
static __always_inline void trace_key6(const __u8 *ip, __u32 left,
				       struct connection_key *key)
{
	const struct ipv6hdr *h = (const void *)ip;

	__builtin_memcpy(&key->saddr, &h->saddr, 16);
	__builtin_memcpy(&key->daddr, &h->daddr, 16);
	key->protocol = h->nexthdr;
	if (!protocol_of(h->nexthdr).has_ports || left < sizeof(*h) + 4)
		return;
	__builtin_memcpy(&key->sport, ip + sizeof(*h), 2);
	__builtin_memcpy(&key->dport, ip + sizeof(*h) + 2, 2);
}

/* Reads addresses and ports at an offset, a constant. */
static __always_inline void trace_key_at(const struct packet_view *v,
					 const __u32 l3,
					 struct connection_key *key)
{
	const __u8 *ip = v->data + l3;
	__u32 left = v->captured - l3;

	if (ip[0] >> 4 == 4 && left >= sizeof(struct iphdr))
		trace_key4(ip, left, key);
	else if (ip[0] >> 4 == 6 && left >= sizeof(struct ipv6hdr))
		trace_key6(ip, left, key);
}

/* Reads addresses and ports of a packet that was copied: all 0 if it is not IP. */
static __noinline __maybe_unused void trace_key(const struct packet_view *v,
						struct connection_key *key)
{
	const __be16 *type = (const void *)(v->data + 2 * ETH_ALEN);

	__builtin_memset(key, 0, sizeof(*key));
	if (v->flags & TRACE_LAYER3) {
		if (v->captured)
			trace_key_at(v, 0, key);
	} else if (v->captured <= ETH_HLEN + 4) {
		return;
	} else if (type[0] == bpf_htons(ETH_P_IP) ||
		   type[0] == bpf_htons(ETH_P_IPV6)) {
		trace_key_at(v, ETH_HLEN, key);
	} else if (type[0] == bpf_htons(ETH_P_8021Q) ||
		   type[0] == bpf_htons(ETH_P_8021AD)) {
		trace_key_at(v, ETH_HLEN + 4, key);
	}
}

static __always_inline bool trace_protocol(__u8 wanted, __u8 protocol)
{
	return !wanted || wanted == protocol ||
	       (wanted == IPPROTO_ICMP && protocol == IPPROTO_ICMPV6);
}

/* Returns a bit for each tracer whose filter may match the packet that arrives. */
static __always_inline __u32 trace_choose(__u32 random, __u8 protocol)
{
	__u32 wanted = 0;

	for (__u32 i = 0; i < MAX_TRACES; i++) {
		const struct trace_filter *f = &trace_filters[i];

		if (f->on && random <= f->sample &&
		    trace_protocol(f->protocol, protocol))
			wanted |= 1 << i;
	}
	return wanted;
}

static __always_inline bool trace_host(const struct trace_filter *f,
				       const struct connection_key *key)
{
	return ip_addr_within(&key->saddr, &f->host, &f->host_mask) ||
	       ip_addr_within(&key->daddr, &f->host, &f->host_mask);
}

static __always_inline bool trace_port(const struct trace_filter *f,
				       const struct connection_key *key)
{
	return key->sport == f->port || key->dport == f->port;
}

/* Reports whether the destination is the VIP, at one of its ports. */
static __always_inline bool trace_vip(const struct trace_filter *f,
				      const struct ip_addr *a, __be16 port)
{
	__u16 n = bpf_ntohs(port);

	return ip_addr_within(a, &f->vip, &f->vip_mask) &&
	       n >= f->vip_ports[0] && n <= f->vip_ports[1];
}

/* Reports whether a packet matches a tracer's filter, now that its outcome is known.
 * A packet that no longer exists has no addresses afterwards. */
static __noinline __maybe_unused bool trace_wants(const struct trace_filter *f,
						  const struct trace_scratch *s)
{
	const struct packet_trace *t = &s->trace;
	bool there = t->after.captured;

	if (f->reason && f->reason != t->reason)
		return false;
	if (!(f->verdicts >> t->verdict & 1))
		return false;
	if (f->ifindex && f->ifindex != t->in && f->ifindex != t->out)
		return false;
	if (f->port && !trace_port(f, &s->before) && !trace_port(f, &s->after))
		return false;
	if (!trace_host(f, &s->before) && !(there && trace_host(f, &s->after)))
		return false;
	return trace_vip(f, &s->before.daddr, s->before.dport) ||
	       (there && trace_vip(f, &s->after.saddr, s->after.sport));
}

#endif
