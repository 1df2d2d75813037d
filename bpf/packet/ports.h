/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ports.h - writes a connection's ports into a header that begins with them, and
 * corrects its checksum, if that is the Internet's, with a pseudo header.
 *
 * A checksum changes by what changed. It is never computed from the data, so
 * the receiver still sees that a packet was damaged on its way here.
 *
 *   CHECKSUM_NONE, UNNECESSARY  the field is complete: add addresses and ports
 *   CHECKSUM_PARTIAL            the field is the sum of the pseudo header, not
 *                               complemented, without ports: add addresses
 *   CHECKSUM_COMPLETE           as NONE, and skb->csum is the sum of the packet.
 *                               IPv6: the layer 4 checksum balances the
 *                               addresses; add the hop limit. IPv4: the header's
 *                               checksum balances the addresses; add the change
 *                               of the layer 4 field
 *   unknown (before 6.2)        the helpers know; 30 ns each
 */
#ifndef LOXILB_PORTS_H
#define LOXILB_PORTS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"

/* CHECKSUM_COMPLETE: updates skb->csum. none: the packet has no checksum, so nothing
 * compensates its ports and addresses. */
static __noinline void ports_sum_complete(ctx_t *ctx, struct packet *p,
					  struct connection *c, bool none)
{
	__u16 ports = connection_ports_sum(c);

	if (p->ipv6)
		ctx_sum_update(ctx,
			       (none ? c->tuple_sum : 0) + HOP_LIMIT_CHANGE);
	else
		ctx_sum_update(ctx, none ? ports : (__u16)~c->address_sum);
}

/* Length of a header whose checksum is optional: UDP's. */
#define PORTS_AND_SUM 8

/* For kernels that do not show ip_summed: two helper calls, which check it
 * themselves. Ports first: that call does not change PARTIAL. */
static __noinline enum verdict
ports_translate_slowly(ctx_t *ctx, struct packet *p, struct connection *c,
		       __u32 sum_offset, bool optional)
{
	__u64 flags = optional ? BPF_F_MARK_MANGLED_0 : 0;
	__u32 field = p->l4 + sum_offset;
	__u16 ports = connection_ports_sum(c);
	__be16 *l4;

	if (ctx_sum_replace(ctx, field, 0, ports, flags) ||
	    ctx_sum_replace(ctx, field, 0, c->address_sum,
			    flags | BPF_F_PSEUDO_HDR))
		return drop(p, DROP_NOT_LINEAR);
	l4 = ctx_header(ctx, p->l4, PORTS_AND_SUM);
	if (!l4)
		return drop(p, DROP_NOT_LINEAR);
	l4[0] = c->sport;
	l4[1] = c->dport;
	/* IPv6: the helper wrongly subtracts the addresses from skb->csum. IPv4:
	 * nothing compensates the ports of a packet without a checksum. */
	if (p->ipv6)
		ctx_sum_update(ctx, c->address_sum + HOP_LIMIT_CHANGE);
	else if (optional && !l4[PORTS_AND_SUM / 2 - 1])
		ctx_sum_update(ctx, ports);
	return VERDICT_CONTINUE;
}

/* Writes the ports. sum_offset: of the checksum in the header. optional: a field of 0
 * means that there is none. Both are constants, so the compiler removes unneeded code.
 */
static __always_inline enum verdict
ports_translate(ctx_t *ctx, struct packet *p, struct connection *c,
		const __u32 sum_offset, const bool optional)
{
	__be16 *l4 = ctx_header(ctx, p->l4, sum_offset + 2);
	enum ctx_checksum state;
	__u16 *check, old, sum;

	if (!l4)
		return drop(p, DROP_NOT_LINEAR);
	state = ctx_checksum_state(ctx);
	if (unlikely(state == CTX_CHECKSUM_UNKNOWN))
		return ports_translate_slowly(ctx, p, c, sum_offset, optional);
	check = (void *)l4 + sum_offset;
	l4[0] = c->sport;
	l4[1] = c->dport;
	old = *check;
	if (state == CTX_CHECKSUM_PARTIAL) {
		*check = sum_replace_pseudo(old, c->address_sum);
		return VERDICT_CONTINUE;
	}
	if (optional && !old) /* the datagram has no checksum */
		goto complete;
	sum = sum_replace(old, c->tuple_sum);
	*check = optional ? sum_of_udp(sum) : sum;
complete:
	if (unlikely(state == CTX_CHECKSUM_COMPLETE))
		ports_sum_complete(ctx, p, c, optional && !old);
	return VERDICT_CONTINUE;
}

#endif
