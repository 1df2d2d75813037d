/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * foreign.h - tells packets that are of no connection and of no service, by two
 * bits instead of look-ups in large tables.
 *
 * While foreign packets are many, as on machines that are not balancers alone,
 * they are told before their connection is looked up: three quarters of their
 * time are saved. Else that is asked after the look-up, and packets of
 * connections do not pay for it.
 */
#ifndef LOXILB_FOREIGN_H
#define LOXILB_FOREIGN_H

#include "config.h"
#include "filter/bloom.h"
#include "filter/rule_count.h"
#include "filter/surge.h"
#include "packet/packet.h"

/* The rest of is_foreign(), for packets that have neither of the two bits. One
 * in which parsing has found a fault takes the long way. Global (verifier: globals). */
__noinline bool is_foreign_indeed(const struct packet *p)
{
	const struct bloom *b = bloom_get();

	return p && b && !p->fault &&
	       !(b->wildcards && bloom_has_wildcard(b->bits, &p->tuple));
}

/* Is it certain that the packet is of no connection, and that no service wants
 * it? */
static __always_inline bool is_foreign(const struct packet *p)
{
	const struct bloom *b = bloom_get();

	return b && unlikely(!bloom_has(b->bits, &p->tuple)) &&
	       is_foreign_indeed(p);
}

/* The same, where a call may take its time. Global (verifier: globals). */
__noinline bool is_foreign_called(const struct packet *p)
{
	return p && is_foreign(p);
}

/* Foreign packets whose connection was looked up. */
struct surge foreign_surge SEC(".data.runtime") = {};

static __always_inline bool foreign_are_many(const struct packet *p)
{
	return (foreign_first || surge_is_on(&foreign_surge, p->now)) &&
	       !snat_rules;
}

/* Is a packet foreign whose connection was not found? */
static __always_inline bool is_foreign_after_all(const struct packet *p)
{
	if (unlikely(snat_rules) || !is_foreign_called(p))
		return false;
	surge_note(&foreign_surge, p->now);
	return true;
}

#endif
