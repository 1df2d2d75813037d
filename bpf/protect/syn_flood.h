/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * syn_flood.h - challenges the SYNs of a flood before their connections are looked up.
 *
 * A SYN from a forged address has no connection, and the lookup takes half of the time:
 * its tags are not cached. So during a surge of challenges, a SYN whose client would be
 * challenged (admit.h) is challenged without a lookup. A few of these SYNs belong to
 * connections, which does no harm: their clients answer, are known afterwards, and
 * repeat the SYN, which is then looked up. An answer to a challenge may also have a
 * connection, so it is handled before the lookup.
 */
#ifndef LOXILB_SYN_FLOOD_H
#define LOXILB_SYN_FLOOD_H

#include "config.h"
#include "shared.h"
#include "filter/rule_count.h"
#include "protect/challenge.h"
#include "protect/protect.h"
#include "protocol/protocol.h"
#include "service/service.h"

/* Counts a challenge that was sent. */
static __always_inline void count_challenge(struct challenge_counts *n,
					    const struct packet *p)
{
	n->sent++;
	surge_count(&challenge_surge, p->now);
}

/* Reports whether the packet may be part of a flood, or the answer of a challenged
 * client. Not while there are firewall rules or IPsec policies, which must be checked
 * first. */
static __always_inline bool may_be_syn_flood(const struct packet *p)
{
	return !ONLY_SCTP && unlikely(p->tcp_flags & (TCP_SYN | TCP_RST)) &&
	       (challenge_first || surge_is_on(&challenge_surge, p->now)) &&
	       !p->fault && !rule_count && !ipsec_count;
}

/* Reports whether the client of a SYN would be challenged if it had no connection.
 * The packet's source and the state of its endpoints are checked later. */
static __always_inline bool would_be_challenged(struct packet *p, __u32 mark)
{
	const struct service *svc;
	struct known_set *set;
	__u64 hash;

	set = known_set_find(p, &hash);
	if (!set)
		return false;
	/* not cached: the processor reads it while the service is looked up */
	*(volatile __u64 *)&set->rows[0];
	/* not copied: a SYN that is challenged needlessly is sent again */
	svc = service_find_any(p, mark);
	return svc && !(svc->flags & SERVICE_SYN_OFF) && svc->slot_count &&
	       !source_refusal(p, svc) && is_protected(p, svc) &&
	       !known_set_has(set, hash, p->now);
}

#endif
