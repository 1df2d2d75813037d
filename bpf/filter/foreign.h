/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * foreign.h - recognizes foreign packets, without connection and service, by two bits
 * instead of lookups in large tables.
 *
 * While foreign packets are many, as on machines that are not only load balancers, the
 * check comes before the connection lookup and saves three quarters of their time.
 * Otherwise it comes after a failed lookup, so that packets of connections do not pay
 * for it.
 */
#ifndef LOXILB_FOREIGN_H
#define LOXILB_FOREIGN_H

#include "config.h"
#include "filter/bloom.h"
#include "filter/rule_count.h"
#include "filter/surge.h"
#include "packet/packet.h"

/* The slow path of is_foreign(), for packets that have neither of the two bits. A
 * packet with a parsing fault is never foreign here. Global (verifier: globals). */
__noinline bool is_foreign_slow(const struct packet *p)
{
	const struct bloom *b = bloom_get();

	return p && b && !p->fault &&
	       !(b->wildcards && bloom_has_wildcard(b->bits, &p->tuple));
}

/* Reports whether the packet certainly belongs to no connection and no service. */
static __always_inline bool is_foreign(const struct packet *p)
{
	const struct bloom *b = bloom_get();

	return b && unlikely(!bloom_has(b->bits, &p->tuple)) &&
	       is_foreign_slow(p);
}

/* is_foreign() as a call, where code size matters more than time. Global (verifier:
 * globals). */
__noinline bool is_foreign_noinline(const struct packet *p)
{
	return p && is_foreign(p);
}

/* Counts foreign packets whose connection was looked up in vain. */
struct surge foreign_surge SEC(".data.runtime") = SURGE_NEVER;

static __always_inline bool foreign_are_many(const struct packet *p)
{
	return (foreign_first || surge_is_on(&foreign_surge, p->now)) &&
	       !snat_rules;
}

/* Reports whether a packet is foreign, after its connection was not found. */
static __always_inline bool is_foreign_after_miss(const struct packet *p)
{
	if (unlikely(snat_rules) || !is_foreign_noinline(p))
		return false;
	surge_count(&foreign_surge, p->now);
	return true;
}

#endif
