/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * trial.h - sends one new connection to an endpoint that is out of rotation, to test
 * whether it serves again. User space requests it; the next new connection of a known
 * client (known.h) is used. A SYN from a forged address would leave the endpoint out
 * for another ten seconds. Without a known client for a while, any client is used: a
 * service may see each client only once.
 */
#ifndef LOXILB_TRIAL_H
#define LOXILB_TRIAL_H

#include <linux/bpf.h>
#include "config.h"
#include "maps.h"
#include "limit/known.h"
#include "packet/packet.h"
#include "service/opening.h"
#include "table/rows.h"

/* By the lower bits of a service's id: the service in the upper half, and its
 * endpoint plus one in the lower half. 0: none. Written by user; cleared by the
 * packet path. */
volatile __u64 trials[TRIALS] SEC(".data.runtime") = {};

/* When an unknown client first met the trial, in jiffies; 0: none has. Cleared when
 * the trial is used. */
volatile __u32 trial_met[TRIALS] SEC(".data.runtime") = {};

/* Reports whether the packet's client may be used for the trial. Not inline: it is
 * rare. */
static __noinline bool trial_allows(struct packet *p, __u32 place)
{
	volatile __u32 *met = &trial_met[place % TRIALS];
	__u32 since;

	if (source_is_known(p))
		return true;
	since = *met;
	if (!since)
		*met = since = p->now ?: 1;
	return p->now - since >= TRIAL_WAIT * hz;
}

/* Chooses the endpoint under trial, if there is one. The client does not keep it
 * (persist.h). */
static __always_inline bool trial_choose(struct packet *p, struct opening *o)
{
	const __u32 service = o->service.id;
	volatile __u64 *place = &trials[service % TRIALS];
	__u64 wanted = *place;
	struct endpoint *ep;

	if (likely(!wanted) || wanted >> 32 != service ||
	    !trial_allows(p, service) ||
	    __sync_val_compare_and_swap(place, wanted, 0) != wanted)
		return false;
	trial_met[service % TRIALS] = 0;
	ep = endpoint_find((__u32)wanted - 1);
	if (!ep || ep->service != service || ep->flags & ENDPOINT_REMOVED)
		return false;
	o->choice.endpoint = (__u32)wanted - 1;
	o->choice.place = 0;
	o->choice.is_held = true;
	return true;
}

#endif
