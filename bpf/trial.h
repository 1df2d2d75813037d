/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * trial.h - sends one new connection to an endpoint that is out of rotation, to see
 * whether it serves again. User space asks for it; the next new connection of the
 * service is the one.
 */
#ifndef LOXILB_TRIAL_H
#define LOXILB_TRIAL_H

#include "maps.h"
#include "opening.h"
#include "rows.h"

/* By the lower bits of a service's id: the service, and in the lower half the endpoint
 * plus one. 0: none. Written by user; taken by the packet path. */
volatile __u64 trials[TRIALS] SEC(".data.runtime") = {};

/* Chooses the endpoint that one connection is to try, if there is one. The client does
 * not keep it (persist.h). */
static __always_inline bool trial_take(struct opening *o)
{
	const __u32 service = o->service.id;
	volatile __u64 *place = &trials[service % TRIALS];
	__u64 wanted = *place;
	struct endpoint *ep;

	if (likely(!wanted) || wanted >> 32 != service ||
	    __sync_val_compare_and_swap(place, wanted, 0) != wanted)
		return false;
	ep = endpoint_find((__u32)wanted - 1);
	if (!ep || ep->service != service || ep->flags & ENDPOINT_REMOVED)
		return false;
	o->choice.endpoint = (__u32)wanted - 1;
	o->choice.place = 0;
	o->choice.is_held = true;
	return true;
}

#endif
