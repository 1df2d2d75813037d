/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * xdp_send.h - which frames XDP may change and send, and by which interfaces.
 */
#ifndef LOXILB_XDP_SEND_H
#define LOXILB_XDP_SEND_H

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "protocol/protocol.h"

/* interface index -> itself, if it can send frames that XDP redirects to it.
 * Written by user. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, __u32);
} xdp_targets SEC(".maps");

/* Reports whether XDP can send to an interface, and sets the redirect target; so it
 * must be the last check. Frames that return to their interface are redirected, too: a
 * veth silently loses XDP_TX frames while its other end does not accept them. */
static __always_inline bool xdp_send_to(__u32 ifindex)
{
	return bpf_redirect_map(&xdp_targets, ifindex, XDP_PASS) ==
	       XDP_REDIRECT;
}

/* Returns the sum of the pseudo header of TCP or UDP. */
static __always_inline __u16 pseudo_header_sum(const struct packet *p)
{
	__u64 sum = bpf_htons(p->length - (p->l4 - p->l3)) +
		    bpf_htons(p->tuple.protocol);

	if (p->ipv6)
		sum += address_sum(&p->tuple.saddr) +
		       address_sum(&p->tuple.daddr);
	else
		sum += (__u64)p->tuple.saddr.word[3] + p->tuple.daddr.word[3];
	return sum_fold64(sum);
}

/* Reports whether the checksum may be left to a device (CHECKSUM_PARTIAL). A packet
 * that this machine or a guest has made, and that was on no wire yet, may have only
 * the pseudo header's sum in the field, and XDP does not get to know. One complete
 * checksum in 65,535 equals that sum; tc can distinguish them. */
static __always_inline bool may_be_partial(ctx_t *ctx, const struct packet *p)
{
	__u16 *sum = ctx_header(
		ctx, p->l4 + protocol_of(p->tuple.protocol).sum_offset, 2);

	return !sum || *sum == pseudo_header_sum(p);
}

#endif
