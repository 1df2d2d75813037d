/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * syn_flood.h - answers the SYNs of a flood before their connections are looked
 * up.
 *
 * A SYN from a made-up address has no connection, and to find that out takes as
 * long as all else: the line of its tags is in no cache. So while challenges
 * are many, a SYN whose client would be challenged (admit.h) is so at once.
 * That a few of them are of connections does no harm. Their clients answer, and
 * the SYN that they repeat is looked up, as they are known then. And since what
 * answers a challenge may have a connection, it is taken before that is looked up.
 */
#ifndef LOXILB_SYN_FLOOD_H
#define LOXILB_SYN_FLOOD_H

#include "config.h"
#include "shared.h"
#include "filter/rule_count.h"
#include "packet/parse.h"
#include "protect/challenge.h"
#include "protect/protect.h"
#include "service/service.h"

/* Counts a challenge that is sent. */
static __always_inline void count_challenge(struct challenge_counts *n,
					    const struct packet *p)
{
	n->sent++;
	surge_note(&challenge_surge, p->now);
}

/* May the packet be part of a flood, or an answer of who was challenged in one?
 * While there are firewall rules or policies of IPsec, they are asked first, in
 * turn. */
static __always_inline bool is_of_syn_flood(const struct packet *p)
{
	return unlikely(p->tcp_flags & (TCP_SYN | TCP_RST)) &&
	       (challenge_first || surge_is_on(&challenge_surge, p->now)) &&
	       !p->fault && !rule_count && !ipsec_count;
}

/* Would the client of a SYN be challenged if that had no connection? What the
 * packet's source and its service's endpoints forbid is refused later. */
static __always_inline bool is_to_be_challenged(struct packet *p, __u32 mark)
{
	const struct service *svc;
	struct known_set *set;
	__u64 hash;

	set = known_set_find(p, &hash);
	if (!set)
		return false;
	/* in no cache: the processor reads it while the service is looked up */
	*(volatile __u64 *)&set->rows[0];
	/* not copied: a SYN that is challenged in vain comes again */
	svc = service_find_any(p, mark);
	return svc && !(svc->flags & SERVICE_SYN_OFF) && svc->slot_count &&
	       !source_refusal(p, svc) && is_protected(p, svc) &&
	       !known_set_has(set, hash, p->now);
}

#endif
