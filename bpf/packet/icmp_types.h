/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * icmp_types.h - messages of ICMP and ICMPv6 other than echoes, by type.
 */
#ifndef LOXILB_ICMP_TYPES_H
#define LOXILB_ICMP_TYPES_H

#include <stdbool.h>
#include <linux/types.h>

/* The types that matter here. The kernel's header with them includes the C
 * library's socket header. */
#define ICMP_DEST_UNREACH 3
#define ICMP_HOST_UNREACH 1
#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12
#define ICMPV6_DEST_UNREACH 1
#define ICMPV6_ADDR_UNREACH 3
#define ICMPV6_PORT_UNREACH 4
#define ICMPV6_PKT_TOOBIG 2
#define ICMPV6_TIME_EXCEED 3
#define ICMPV6_PARAMPROB 4

/* The header of an ICMP error, in both IP versions. The quote follows it. */
struct icmp_header {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__be32 info; /* too big: the MTU (IPv4: in the lower half) */
};

/* Reports whether it is an error. Redirects are left to the kernel: they are about
 * the route, not about the packet. */
static __always_inline bool icmp_is_error(bool ipv6, __u8 type)
{
	if (ipv6)
		return type >= ICMPV6_DEST_UNREACH && type <= ICMPV6_PARAMPROB;
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED ||
	       type == ICMP_PARAMETERPROB;
}

#endif
