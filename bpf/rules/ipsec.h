/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ipsec.h - refuses packets that a policy of the kernel's IPsec (xfrm) blocks or
 * encrypts: packets that leave by a redirect bypass IPsec, and would leave in clear
 * text. docs/adr/0079-firewall-rules.md has the alternatives.
 *
 * Policies are checked before a connection finds its next hop: when it opens, and once
 * after each change of policies or routes. They are stored as firewall rules (rule.h),
 * in the kernel's order; the interface word holds the policy's direction (enum
 * ipsec_direction).
 */
#ifndef LOXILB_IPSEC_H
#define LOXILB_IPSEC_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "filter/rule_count.h"
#include "packet/address.h"
#include "packet/ctx.h"
#include "packet/outer.h"
#include "packet/packet.h"
#include "path/fib.h"
#include "protocol/protocol.h"
#include "rules/rule.h"
#include "table/rows.h"

/* 0 -> 0 -> the policies. Replaced as a whole by user. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct rule_set_table);
} ipsec_policies SEC(".maps");

static __always_inline const struct rule_set *ipsec_policies_get(void)
{
	__u32 zero = 0;
	void *sets = bpf_map_lookup_elem(&ipsec_policies, &zero);

	return sets ? bpf_map_lookup_elem(sets, &zero) : NULL;
}

/* Records the epoch in which policies are checked for a packet. It is stored outside
 * the packet, to save stack. */
static __always_inline void ipsec_record_epoch(__u32 epoch)
{
	struct rule_scratch *s = rule_scratch_get();

	if (s)
		s->ipsec_epoch = epoch;
}

static __always_inline __u32 ipsec_epoch(void)
{
	const struct rule_scratch *s = rule_scratch_get();

	return s ? s->ipsec_epoch : 0;
}

/* Returns the action of the first matching policy of a direction: enum rule_action.
 * ports: as in the header, the source's below; RULE_NO_PORT: none. Global (verifier:
 * globals). */
__noinline __maybe_unused __u32 ipsec_find_action(const struct ip_addr *from,
						  const struct ip_addr *to,
						  __u32 ports, __u8 protocol,
						  __u32 direction)
{
	const struct rule_set *set = ipsec_policies_get();
	struct rule_packet *k = rule_packet_get();
	const struct rule *r;

	if (!set || !k || !from || !to) /* from, to: verifier: null */
		return RULE_ALLOW;
	rule_put_address(&k->word[RULE_SADDR], from);
	rule_put_address(&k->word[RULE_DADDR], to);
	k->word[RULE_PROTOCOL] = protocol;
	k->word[RULE_INTERFACE] = direction;
	k->word[RULE_SPORT] = RULE_NO_PORT;
	k->word[RULE_DPORT] = RULE_NO_PORT;
	if (protocol_of(protocol).has_ports)
		rule_put_ports(k, ports & 0xffff, ports >> 16);
	r = rule_find(set, k, !is_mapped_ipv4(to));
	return r ? rule_action(r) : RULE_ALLOW;
}

static __always_inline __u32 ipsec_ports(__be16 sport, __be16 dport)
{
	return sport | (__u32)dport << 16;
}

/* Reports whether IPsec has decrypted the packet. */
static __always_inline bool ipsec_has_decrypted(ctx_t *ctx)
{
	struct bpf_xfrm_state x;

	return sees_ipsec && !bpf_skb_get_xfrm_state(ctx, 0, &x, sizeof(x), 0);
}

/* Reports whether a policy forbids that a packet is forwarded as it has arrived. */
static __noinline bool ipsec_stops_arrival(ctx_t *ctx, const struct packet *p)
{
	const struct connection_key *key = &p->tuple;
	__u32 action = ipsec_find_action(&key->saddr, &key->daddr,
					 ipsec_ports(key->sport, key->dport),
					 key->protocol, IPSEC_FORWARD);

	return action == RULE_DROP ||
	       (action == RULE_TRAP && !ipsec_has_decrypted(ctx));
}

/* Returns the protocol of a connection's packets as they leave. */
static __always_inline __u8 ipsec_protocol(const struct packet *p,
					   const struct connection *c)
{
	if (protocol_of(p->tuple.protocol).has_ports)
		return p->tuple.protocol;
	return icmp_protocol(!is_mapped_ipv4(&c->daddr));
}

/* Reports whether a policy forbids that a direction's packets leave after
 * translation. */
static __noinline bool ipsec_stops_departure(const struct packet *p,
					     const struct connection *c,
					     const struct ip_addr *to)
{
	const __u32 ports = ipsec_ports(c->sport, c->dport);
	const __u8 protocol = ipsec_protocol(p, c);

	return ipsec_find_action(&c->saddr, to, ports, protocol, IPSEC_OUT) ==
		       RULE_DROP ||
	       ipsec_find_action(&c->saddr, to, ports, protocol,
				 IPSEC_FORWARD) == RULE_DROP;
}

/* Reports whether a policy forbids answers to the packet. They have its tuple,
 * reversed. */
static __always_inline bool ipsec_stops_answer(const struct packet *p,
					       __u8 protocol)
{
	const struct connection_key *key = &p->tuple;

	return ipsec_find_action(&key->daddr, &key->saddr,
				 ipsec_ports(key->dport, key->sport), protocol,
				 IPSEC_OUT) == RULE_DROP;
}

/* Reports whether a policy forbids packets in the tunnel to an endpoint. Without UDP,
 * the source is an address of a prefix (outer.h). */
static __noinline bool ipsec_stops_tunnel(const struct packet *p,
					  const struct connection *c)
{
	__u32 id = c->endpoint;
	const struct endpoint *ep = endpoint_find(id);
	struct ip_addr from = { .word = { bpf_htonl(TUNNEL_PREFIX6) } };

	if (!ep)
		return false;
	if (c->hop & HOP_TUNNEL_GUE)
		return ipsec_find_action(
			       &ep->source, &ep->addr,
			       ipsec_ports(bpf_htons(GUE_FIRST_SOURCE),
					   bpf_htons(GUE_PORT)),
			       IPPROTO_UDP, IPSEC_OUT) == RULE_DROP;
	if (is_mapped_ipv4(&ep->addr))
		map_ipv4(&from, bpf_htonl(TUNNEL_PREFIX4));
	return ipsec_find_action(&from, &ep->addr, 0,
				 p->ipv6 ? IPPROTO_IPV6 : IPPROTO_IPIP,
				 IPSEC_OUT) == RULE_DROP;
}

/* Returns the address that an entry's packets are routed to, whatever their
 * destination. NULL: the endpoint no longer exists. */
static __always_inline const struct ip_addr *
next_hop_target(const struct connection *c)
{
	__u32 id = c->endpoint;
	struct endpoint *ep;

	if (!(c->traits & CONN_ONE_WAY))
		return &c->daddr;
	ep = endpoint_find(id);
	return ep ? &ep->addr : NULL;
}

/* Reports whether a policy forbids that the packets of a connection's direction
 * leave. Packets to a socket of this machine do not leave. Global (verifier:
 * globals). */
__noinline bool ipsec_stops(ctx_t *ctx, const struct packet *p,
			    const struct connection *c)
{
	const struct ip_addr *target;

	if (!p || !c) /* verifier: null */
		return true;
	target = next_hop_target(c);
	if (!target || is_local_address(target))
		return false;
	if (ipsec_stops_departure(p, c, target) ||
	    (!p->icmp_error && ipsec_stops_arrival(ctx, p)))
		return true;
	return c->traits & CONN_ONE_WAY &&
	       (ipsec_stops_departure(p, c, &c->daddr) ||
		(c->hop & HOP_TUNNELS && ipsec_stops_tunnel(p, c)));
}

/* Reports whether a policy forbids answers of an endpoint on this machine after
 * translation. The kernel has checked them before it. Global (verifier: globals). */
__noinline bool ipsec_stops_local_reply(const struct packet *p,
					const struct connection *c)
{
	if (!p || !c) /* verifier: null */
		return true;
	return ipsec_find_action(&c->saddr, &c->daddr,
				 ipsec_ports(c->sport, c->dport),
				 ipsec_protocol(p, c), IPSEC_OUT) == RULE_DROP;
}

/* Reports whether a policy forbids an ICMP error about a connection. It goes where
 * the connection's packets go, from their sender or from a router. Global (verifier:
 * globals). */
__noinline bool ipsec_stops_error(const struct packet *p,
				  const struct connection *c)
{
	__u8 protocol;

	if (!p || !c) /* verifier: null */
		return true;
	protocol = icmp_protocol(!is_mapped_ipv4(&c->daddr));
	return ipsec_find_action(&p->tuple.saddr, &c->daddr, 0, protocol,
				 IPSEC_OUT) == RULE_DROP ||
	       ipsec_find_action(&c->saddr, &c->daddr, 0, protocol,
				 IPSEC_OUT) == RULE_DROP;
}

#endif
