/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * lease.h - stops the kernel from answering for VIPs that another node may own by now, and
 * at interfaces whose networks do not hold them.
 *
 * The kernel answers ARP and neighbor discovery for VIPs, whether or not the daemon
 * runs. Where two nodes elect the owner, the other one takes over when this daemon is
 * silent. So the daemon renews a lease for each elected instance while it sends, which
 * ends no later than the other node takes over. Requests for VIPs without a valid lease
 * are dropped (docs/adr/0086-roles-by-bfd.md).
 *
 * By default, the kernel answers ARP at all interfaces for each address of the machine.
 * Neighbor discovery needs no check: a VIP is an address of these interfaces only.
 */
#ifndef LOXILB_LEASE_H
#define LOXILB_LEASE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "maps.h"
#include "packet/address.h"
#include "packet/ctx.h"

#define ARP_REQUEST 1
#define NEIGHBOR_SOLICITATION 135 /* RFC 4861, 4.3 */

/* ARP of IPv4 over Ethernet (RFC 826). */
struct arp_packet {
	__be16 hardware;
	__be16 protocol;
	__u8 hardware_size;
	__u8 protocol_size;
	__be16 operation;
	__u8 sender_mac[ETH_ALEN];
	__be32 sender;
	__u8 target_mac[ETH_ALEN];
	__be32 target;
} __attribute__((packed));

/* A solicitation without extension headers, as every host sends it. */
struct solicitation {
	struct ipv6hdr ip;
	__u8 type;
	__u8 code;
	__be16 check;
	__be32 reserved;
	struct ip_addr target;
};

/* Reads the address that a packet asks for. Returns false if it does not ask for one. */
static __always_inline bool lease_read_target(ctx_t *ctx,
					      struct ip_addr *target)
{
	struct solicitation *s;
	struct arp_packet *arp;

	switch (ctx_ethertype(ctx, ETH_HLEN)) {
	case bpf_htons(ETH_P_ARP):
		arp = ctx_header(ctx, ETH_HLEN, sizeof(*arp));
		if (!arp || arp->operation != bpf_htons(ARP_REQUEST))
			return false;
		map_ipv4(target, arp->target);
		return true;
	case bpf_htons(ETH_P_IPV6):
		s = ctx_header(ctx, ETH_HLEN, sizeof(*s));
		if (!s || s->ip.nexthdr != IPPROTO_ICMPV6 ||
		    s->type != NEIGHBOR_SOLICITATION)
			return false;
		__builtin_memcpy(target, &s->target, sizeof(*target));
		return true;
	default:
		return false;
	}
}

/* Reports whether the lease of an instance is over. One that is not elected has no
 * lease, and needs none. */
static __always_inline bool lease_is_over(void *table, __u64 instance,
					  __u64 now)
{
	struct lease_key key = { .instance = instance };
	const struct lease *lease = bpf_map_lookup_elem(table, &key);

	return lease && now >= lease->until;
}

/* Reports whether the interface is a port of a bridge. The bridge shows the packet
 * again if it is for this machine, and forwards it to hosts behind its other ports. */
static __always_inline bool is_bridge_port(ctx_t *ctx)
{
	__u32 interface = ctx_interface(ctx);
	const __u32 *flags = bpf_map_lookup_elem(&links, &interface);

	return flags && (*flags & LINK_BRIDGE_PORT);
}

/* Reports whether this node owns a VIP no longer: its leases are all over. */
static __always_inline bool leases_are_over(void *table,
					    const struct lease *vip)
{
	__u64 now = bpf_ktime_get_boot_ns();

	NO_UNROLL
	for (int i = 0; i < LEASE_INSTANCES && vip->instances[i]; i++)
		if (!lease_is_over(table, vip->instances[i], now))
			return false;
	return vip->instances[0];
}

/* Reports whether other interfaces answer for a VIP, but not this one. */
static __always_inline bool lease_is_of_other_links(ctx_t *ctx,
						    const struct lease *vip)
{
	NO_UNROLL
	for (int i = 0; i < LEASE_LINKS && vip->links[i]; i++)
		if (vip->links[i] == ctx_interface(ctx))
			return false;
	return vip->links[0];
}

/* Returns why an Ethernet frame that asks for a VIP gets no answer; 0: it gets one, or
 * does not ask for a VIP. Global (verifier: globals). */
__noinline int lease_refuses(ctx_t *ctx)
{
	struct lease_key key = {};
	const struct lease *vip;
	__u32 zero = 0;
	void *table = bpf_map_lookup_elem(&leases, &zero);

	if (!table || !ctx_is_taken(ctx) || !lease_read_target(ctx, &key.vip))
		return 0;
	vip = bpf_map_lookup_elem(table, &key);
	if (!vip || is_bridge_port(ctx))
		return 0;
	if (leases_are_over(table, vip))
		return DROP_LEASE_ENDED;
	return lease_is_of_other_links(ctx, vip) ? DROP_OTHER_NETWORK : 0;
}

#endif
