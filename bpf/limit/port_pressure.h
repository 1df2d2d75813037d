/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * port_pressure.h - detects a shortage of source ports.
 *
 * A pool of source ports belongs to one source address and one endpoint (snat.h). Its
 * last eighth is reserved for known clients (known.h). A connection that arrives when
 * only the reserve is left puts pressure on ports, for PORT_PRESSURE_SECONDS:
 *
 *	on the service: unknown clients are challenged before anything is looked up
 *	(protect.h)
 *	on the machine: half-open connections give their ports back early (expiry.h)
 *
 * Several services may share a pool, so the second pressure is the machine's
 * (docs/adr/0068-source-ports.md).
 */
#ifndef LOXILB_PORT_PRESSURE_H
#define LOXILB_PORT_PRESSURE_H

#include <stdbool.h>
#include "config.h"
#include "shared.h"

/* Reports whether pressure until this time is on; 0: there was none yet. An impossibly
 * distant time is from before jiffies wrapped around. */
static __always_inline bool port_pressure_lasts(__u32 until, __u32 now)
{
	return until && until - now - 1 < PORT_PRESSURE_SECONDS * hz;
}

/* Reports whether half-open connections release their source port early. */
static __always_inline bool port_pressure_is_on(__u32 now)
{
	return port_pressure_lasts(port_pressure_until, now);
}

/* Reports whether a pool of the service was recently short of ports. */
static __always_inline bool port_pressure_is_on_service(__u32 service,
							__u32 now)
{
	__u64 word = port_pressures[service & (PORT_PRESSURES - 1)];

	return word >> 32 == service && port_pressure_lasts(word, now);
}

#endif
