/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ethernet.h - the two MAC addresses of a frame, destination first.
 */
#ifndef LOXILB_ETHERNET_H
#define LOXILB_ETHERNET_H

#include <linux/types.h>
#include "abi.h"

_Static_assert(__builtin_offsetof(struct connection, dmac) % 4 == 0 &&
		       __builtin_offsetof(struct next_hop, dmac) % 4 == 0,
	       "ABI");

/* Copies both MAC addresses between a frame and a cached next hop. By words:
 * the compiler assumes that byte arrays are unaligned, and would copy byte by
 * byte, 24 instructions in place of 6, for which the next read of the header
 * would wait. */
static __always_inline void macs_copy(void *to, const void *from)
{
	typedef __u32 __attribute__((may_alias)) word;

	for (int i = 0; i < 3; i++)
		((word *)to)[i] = ((const word *)from)[i];
}

#endif
