/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fib.h - queries the kernel's routing table.
 */
#ifndef LOXILB_FIB_H
#define LOXILB_FIB_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/address.h"
#include "packet/packet.h"

#define AF_INET 2
#define AF_INET6 10
#define LOOPBACK_IFINDEX 1

/* Fills in a route look-up as if the packet came from loopback. Then only that
 * interface's forwarding sysctl counts, and the machine need not forward on all
 * interfaces to be a load balancer. */
static __always_inline void fib_addresses(struct bpf_fib_lookup *fib, bool ipv6,
					  const struct ip_addr *src,
					  const struct ip_addr *dst)
{
	fib->ifindex = LOOPBACK_IFINDEX;
	fib->family = ipv6 ? AF_INET6 : AF_INET;
	if (ipv6) {
		__builtin_memcpy(fib->ipv6_src, src, 16);
		__builtin_memcpy(fib->ipv6_dst, dst, 16);
	} else {
		fib->ipv4_src = src->word[3];
		fib->ipv4_dst = dst->word[3];
	}
}

/* Reports whether a lookup has found a next hop. FRAG_NEEDED is about that packet
 * only, and a missing neighbour will be resolved. */
static __always_inline bool fib_found(long code)
{
	return code == BPF_FIB_LKUP_RET_SUCCESS ||
	       code == BPF_FIB_LKUP_RET_NO_NEIGH ||
	       code == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

/* Drops a packet without a next hop, with the reason that the code gives. */
static __always_inline enum verdict fib_drop(struct packet *p, long code)
{
	switch (code) {
	case BPF_FIB_LKUP_RET_BLACKHOLE:
	case BPF_FIB_LKUP_RET_UNREACHABLE:
	case BPF_FIB_LKUP_RET_PROHIBIT:
		return drop(p, DROP_ROUTE_UNREACHABLE);
	case BPF_FIB_LKUP_RET_FWD_DISABLED:
		return drop(p, DROP_FORWARDING_OFF);
	case BPF_FIB_LKUP_RET_UNSUPP_LWT:
		return drop(p, DROP_ROUTE_ENCAP);
	default:
		return drop(p, DROP_NO_ROUTE);
	}
}

/* Stores the gateway that a look-up has found, or the target itself. */
static __always_inline void fib_gateway(const struct bpf_fib_lookup *fib,
					struct ip_addr *gateway)
{
	if (fib->family == AF_INET6)
		__builtin_memcpy(gateway, fib->ipv6_dst, 16);
	else
		map_ipv4(gateway, fib->ipv4_dst);
}

/* Reports whether it is an address of this machine, except for VIPs that only the
 * load balancer has added. */
static __noinline __maybe_unused bool
is_local_address(const struct ip_addr *target)
{
	struct ip_addr addr = *target;

	return bpf_map_lookup_elem(&local_addresses, &addr);
}

#endif
