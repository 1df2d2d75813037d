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

/* Both, between a frame and where a next hop is kept. As words: the compiler takes
 * addresses of bytes for unaligned and copies byte by byte, which is 24
 * instructions in place of 6, and who reads the header next waits for them. */
static __always_inline void macs_copy(void *to, const void *from)
{
	typedef __u32 __attribute__((may_alias)) word;

	for (int i = 0; i < 3; i++)
		((word *)to)[i] = ((const word *)from)[i];
}

#endif
