/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * abort.h - what loxilb_reset (ends.h) does differently for SCTP.
 *
 * An end of an association gets an ABORT in place of a RST, with the verification tag of
 * the other end's packets; or that of its own and flag T (RFC 9260 section 8.5.1), if the
 * first is unknown. CRC32c covers the tag, and this program has no table for it. So the first
 * run writes the tag, user space the checksum, and the second run sends the packet if the tag
 * is still right.
 */
#ifndef LOXILB_ABORT_H
#define LOXILB_ABORT_H

#include "conntrack/conntrack.h"
#include "packet/ethernet.h"
#include "protocol/protocol.h"
#include "table/bucket.h"

/* Reports whether the tag of a direction is known. One is enough. The other one is unknown if INITs
 * were forged or repeated in the handshake (sctp/state.h). */
static __always_inline bool abort_tag_is_known(const struct connection *c,
					       const struct connection *peer)
{
	return c->ack || peer->ack;
}

/* Returns the tag of an ABORT in this direction. flags: of its chunk. */
static __always_inline __u32 abort_tag(const struct connection *c,
				       const struct connection *peer,
				       __u8 *flags)
{
	if (c->ack)
		return c->ack;
	*flags = SCTP_FLAG_T;
	return peer->ack;
}

/* Reports whether both ends of a connection with this protocol can be notified. */
static __always_inline bool ends_can_be_notified(__u8 protocol)
{
	return protocol == IPPROTO_TCP || protocol == IPPROTO_SCTP;
}

static __always_inline __u32 abort_tag_offset(const struct __sk_buff *ctx)
{
	return ETH_HLEN +
	       (ctx->protocol == bpf_htons(ETH_P_IPV6) ?
			sizeof(struct ipv6hdr) :
			sizeof(struct iphdr)) +
	       __builtin_offsetof(struct sctp_header, tag);
}

static __always_inline __u32 abort_flags_offset(const struct __sk_buff *ctx)
{
	return abort_tag_offset(ctx) + sizeof(struct sctp_header) -
	       __builtin_offsetof(struct sctp_header, tag) +
	       __builtin_offsetof(struct sctp_chunk_header, flags);
}

/* Writes the tag and the flags, for user space to compute the checksum. */
static __always_inline bool abort_write_tag(struct __sk_buff *ctx, __u32 tag,
					    __u8 flags)
{
	__be32 written = bpf_htonl(tag);

	return !bpf_skb_store_bytes(ctx, abort_tag_offset(ctx), &written,
				    sizeof(written), 0) &&
	       !bpf_skb_store_bytes(ctx, abort_flags_offset(ctx), &flags,
				    sizeof(flags), 0);
}

/* Reports whether the packet still has the right tag and flags. */
static __always_inline bool abort_has_tag(struct __sk_buff *ctx, __u32 tag,
					  __u8 flags)
{
	__be32 written;
	__u8 set;

	return !bpf_skb_load_bytes(ctx, abort_tag_offset(ctx), &written,
				   sizeof(written)) &&
	       !bpf_skb_load_bytes(ctx, abort_flags_offset(ctx), &set,
				   sizeof(set)) &&
	       written == bpf_htonl(tag) && set == flags;
}

#endif
