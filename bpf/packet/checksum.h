/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * checksum.h - ones' complement arithmetic (RFC 1071, incremental: RFC 1624): how
 * checksums change, and by how much a connection changes them. They are in network byte
 * order, which does not matter to this arithmetic.
 */
#ifndef LOXILB_CHECKSUM_H
#define LOXILB_CHECKSUM_H

#include <linux/bpf.h>
#include <linux/ip.h>
#include <linux/types.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

static __always_inline __u16 sum_fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Adds two 16-bit sums. Their sum has 17 bits, so one fold is enough. */
static __always_inline __u16 sum_add(__u16 a, __u16 b)
{
	__u32 sum = (__u32)a + b;

	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline __u16 sum_fold64(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum_fold(sum);
}

/* Returns the sum of an address, and its complement. Not folded. */
static __always_inline __u64 address_sum(const struct ip_addr *a)
{
	return (__u64)a->word[0] + a->word[1] + a->word[2] + a->word[3];
}

static __always_inline __u64 address_sum_not(const struct ip_addr *a)
{
	return 4 * 0xffffffffULL - address_sum(a);
}

/* Returns the checksum of an IPv4 header without options whose checksum field
 * is 0. */
static __always_inline __u16 ipv4_sum(const struct iphdr *ip)
{
	return ~sum_fold(bpf_csum_diff(NULL, 0, (void *)ip, sizeof(*ip), 0));
}

/* Returns the sum of the pseudo header of TCP, UDP and ICMPv6. Not folded. IPv4
 * addresses are mapped; their 0xffff does not change a sum. */
static __always_inline __u32 pseudo_sum(const struct ip_addr *src,
					const struct ip_addr *dst,
					__u8 protocol, __u32 length)
{
	__u32 sum = bpf_htons(protocol) + bpf_htons(length);

	sum = bpf_csum_diff(NULL, 0, (void *)src, sizeof(*src), sum);
	return bpf_csum_diff(NULL, 0, (void *)dst, sizeof(*dst), sum);
}

/* Returns the change of a sum when one of its words changes. */
static __always_inline __u16 sum_change(__u16 old, __u16 new)
{
	return sum_add(~old, new);
}

/* By how much a sum changes when a packet is forwarded: by the TTL, or by the hop
 * limit. The checksum of IPv4's header compensates it; IPv6 has none. */
#define TTL_CHANGE ((__u16)~bpf_htons(0x0100))
#define HOP_LIMIT_CHANGE ((__u16)~bpf_htons(0x0001))

/* Returns a checksum field after the data that it covers has changed by
 * delta. */
static __always_inline __u16 sum_replace(__u16 field, __u16 delta)
{
	return ~sum_add(~field, delta);
}

/* Adjusts a checksum by the sum of several changes. */
static __always_inline __u16 sum_replace_all(__u16 field, __u32 delta)
{
	return ~sum_fold((__u16)~field + delta);
}

/* Adjusts a field that a device will complete: the sum of the pseudo header, not
 * complemented. */
static __always_inline __u16 sum_replace_pseudo(__u16 field, __u16 delta)
{
	return sum_add(field, delta);
}

/* Returns the checksum of a datagram that has one: 0 would mean none (RFC
 * 768). */
static __always_inline __u16 sum_of_udp(__u16 sum)
{
	return sum ? sum : 0xffff;
}

/* Computes how the checksums of packets with this key change when they get the
 * tuple of c. Added up here: two calls of bpf_csum_diff took four times as
 * long. */
static __always_inline void
connection_set_sums(struct connection *c, const struct connection_key *key)
{
	__u64 sum = address_sum(&c->saddr) + address_sum(&c->daddr) +
		    address_sum_not(&key->saddr) + address_sum_not(&key->daddr);

	c->address_sum = sum_fold64(sum);
	sum += (__u32)c->sport + c->dport + (__u16)~key->sport +
	       (__u16)~key->dport;
	c->tuple_sum = sum_fold64(sum);
}

/* Returns the part of that change that is due to the ports. */
static __always_inline __u16 connection_ports_sum(const struct connection *c)
{
	return sum_change(c->address_sum, c->tuple_sum);
}

/* Undoes the change of the other direction. */
static __always_inline void connection_invert_sums(struct connection *c)
{
	c->address_sum = ~c->address_sum;
	c->tuple_sum = ~c->tuple_sum;
}

#endif
