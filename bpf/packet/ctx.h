/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ctx.h - access to the packet, under the same names at the tc hook and at XDP, so that
 * code above it exists once. Except for trace_note.h, this is the only #if of all
 * programs.
 */
#ifndef LOXILB_CTX_H
#define LOXILB_CTX_H

/* No header is looked for at a larger offset: all bits below it are ones, so it is
 * also a mask. */
#define CTX_MAX_OFFSET 0x3fff

/* The segment length of packets that travel as one and have lengths of their own
 * (GSO_BY_FRAGS). */
#define CTX_SEGMENTS_VARY 0xffff

/* The content of the layer 4 checksum field. The first four are the kernel's values of
 * skb->ip_summed. */
enum ctx_checksum {
	CTX_CHECKSUM_NONE, /* the field is complete */
	CTX_CHECKSUM_UNNECESSARY, /* the full sum, which the card has verified */
	CTX_CHECKSUM_COMPLETE, /* the field is complete, and skb->csum is the sum of the whole packet */
	CTX_CHECKSUM_PARTIAL, /* the field holds the sum of the pseudo header only; the device adds the rest */
	CTX_CHECKSUM_UNKNOWN, /* kernel before 6.2: only the helpers can tell */
};

/* A VLAN tag: three bits of priority, one of eligibility to be dropped, twelve of
 * VLAN id. Id 0 is no VLAN: such a tag states a priority only (IEEE 802.1Q). */
#define CTX_VLAN_ID 0x0fff

#ifdef LOXILB_XDP
#include "packet/ctx_xdp.h"
#else
#include "packet/ctx_skb.h"
#endif

#endif
