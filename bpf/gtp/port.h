/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * port.h - the ports of GTP-U: its own, and those that stand for tunnels
 * (gtp/source_port.h).
 */
#ifndef LOXILB_GTP_PORT_H
#define LOXILB_GTP_PORT_H

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/udp.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "packet/ctx.h"

#define GTP_PORT 2152
#define GTP_FIRST_SOURCE 0xc000 /* and 16,383 more: dynamic ports (RFC 6335) */

/* Reports whether a client's port, of a connection whose entry has these flags, stands for a
 * tunnel. The port that it replaces is not kept: base stations send from GTP_PORT. */
static __always_inline bool gtp_port_is_of_tunnel(__u8 protocol, __u8 hop,
						  __be16 port)
{
	return unlikely(hop & HOP_NO_XDP) && protocol == IPPROTO_UDP &&
	       bpf_ntohs(port) >= GTP_FIRST_SOURCE;
}

/* Writes the source port of a UDP header. A checksum of 0 stays: there is none. */
static __always_inline bool gtp_write_source(ctx_t *ctx, __u32 at, __be16 check,
					     __be16 old, __be16 new)
{
	const __u32 field = __builtin_offsetof(struct udphdr, check);

	if (check && bpf_l4_csum_replace(ctx, at + field, old, new,
					 sizeof(new) | BPF_F_MARK_MANGLED_0))
		return false;
	/* otherwise the checksum would compensate the changed port */
	return !bpf_skb_store_bytes(ctx, at, &new, sizeof(new),
				    check ? 0 : BPF_F_RECOMPUTE_CSUM);
}

#endif
