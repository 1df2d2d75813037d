/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ethernet.h - writes the two MAC addresses of a frame, destination first.
 */
#ifndef LOXILB_ETHERNET_H
#define LOXILB_ETHERNET_H

#include <linux/types.h>
#include "abi.h"

#define ETH_ADDR_LEN 6

/* Writes the MAC addresses of a next hop into a frame, in two stores. The first has the
 * whole destination, so it is never torn. */
static __always_inline void macs_write(void *frame, const struct hop *w)
{
	typedef __u64 __attribute__((may_alias)) start;
	typedef __u32 __attribute__((may_alias)) end;

	*(start *)frame = *(volatile __u64 *)&w->macs;
	*(end *)(frame + sizeof(start)) = *(const end *)&w->key.smac[2];
}

/* Returns the first of these stores. */
static __always_inline __u64 macs_begin(const __u8 *dmac, const __u8 *smac)
{
	__u64 macs = 0;

	__builtin_memcpy(&macs, dmac, ETH_ADDR_LEN);
	__builtin_memcpy((__u8 *)&macs + ETH_ADDR_LEN, smac, 2);
	return macs;
}

/* Writes two MAC addresses into a frame. */
static __always_inline void macs_write_pair(void *frame, const __u8 *dmac,
					    const __u8 *smac)
{
	__builtin_memcpy(frame, dmac, ETH_ADDR_LEN);
	__builtin_memcpy(frame + ETH_ADDR_LEN, smac, ETH_ADDR_LEN);
}

/* Exchanges the two MAC addresses of a frame. */
static __always_inline void macs_exchange(void *frame)
{
	typedef __u32 __attribute__((may_alias)) word;
	word *mac = frame, a = mac[0], b = mac[1], c = mac[2];

	mac[0] = b >> 16 | c << 16;
	mac[1] = c >> 16 | a << 16;
	mac[2] = a >> 16 | b << 16;
}

#endif
