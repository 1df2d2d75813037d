/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * closing.h - whether a connection is closed, half-closed, or may be closed.
 */
#ifndef LOXILB_CLOSING_H
#define LOXILB_CLOSING_H

#include <linux/types.h>
#include <stdbool.h>
#include "abi.h"

static __always_inline bool connection_is_closed(__u8 flags)
{
	const __u8 acked = CONN_FIN_CLIENT_ACKED | CONN_FIN_ENDPOINT_ACKED;

	return (flags & CONN_RESET) || (flags & acked) == acked;
}

/* Reports whether this TCP connection may have closed unnoticed: an endpoint that
 * answers clients directly may have closed it. */
static __always_inline bool connection_may_be_closed(__u32 word)
{
	return (word & STATE_TRAIT(CONN_ONE_WAY)) && (word & CONN_FIN_CLIENT);
}

/* Reports whether exactly one side of an established connection has closed. The other
 * may continue to send for as long as it likes (RFC 9293 section 3.6). */
static __always_inline bool connection_is_half_closed(__u8 flags)
{
	const __u8 fins = CONN_FIN_CLIENT | CONN_FIN_ENDPOINT;

	return (flags & CONN_ASSURED) && (flags & fins) &&
	       (flags & fins) != fins;
}

#endif
