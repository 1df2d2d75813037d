/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ctx.h - the packet as its hook shows it, under the same names at either: what
 * is built on them is in one piece. The only #if of all programs.
 */
#ifndef LOXILB_CTX_H
#define LOXILB_CTX_H

/* Further into a packet no header is looked for: six extension headers of 2,048
 * bytes each, and what is before them, are not as long. */
#define CTX_MAX_OFFSET 0x3fff

/* Who owes the layer 4 checksum. */
enum ctx_checksum {
	CTX_CHECKSUM_NONE, /* also UNNECESSARY: the field in the packet is whole */
	CTX_CHECKSUM_UNNECESSARY,
	CTX_CHECKSUM_COMPLETE, /* skb->csum sums the whole packet */
	CTX_CHECKSUM_PARTIAL, /* the field holds the pseudo header's sum only */
	CTX_CHECKSUM_UNKNOWN, /* kernel before 6.2: only the helpers can tell */
};

#ifdef LOXILB_XDP
#include "ctx_xdp.h"
#else
#include "ctx_skb.h"
#endif

#endif
