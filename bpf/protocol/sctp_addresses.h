/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sctp_addresses.h - the lists of addresses in INIT and INIT ACK (RFC 9260 section 3.3.2).
 *
 * A side with several addresses lists them there, and the other side then sends to all of
 * them. Packets to those would bypass this machine, and arrive from an address that their
 * receiver does not know: it would abort the association. So both sides see addresses of
 * this machine only. Listed ones become padding (RFC 4820), which every receiver skips and
 * which keeps all lengths.
 */
#ifndef LOXILB_SCTP_ADDRESSES_H
#define LOXILB_SCTP_ADDRESSES_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "packet/ctx.h"
#include "packet/packet.h"
#include "protocol/sctp.h"
#include "protocol/sctp_crc.h"

/* How many parameters are read. Linux sends 4 to 8, and one for each address. */
#define SCTP_PARAMETERS 32

enum sctp_parameter_type {
	SCTP_ADDRESS_IPV4 = 5,
	SCTP_ADDRESS_IPV6 = 6,
	SCTP_PADDING = 0x8005,
};

struct sctp_parameter {
	__be16 type;
	__be16 length; /* without padding */
};

static __always_inline bool sctp_is_address(const struct sctp_parameter *a)
{
	const __u16 type = bpf_ntohs(a->type);

	return type == SCTP_ADDRESS_IPV4 || type == SCTP_ADDRESS_IPV6;
}

/* Changes the checksum by this much. */
static __always_inline bool
sctp_check_change(ctx_t *ctx, const struct packet *p, __u32 change)
{
	const __u32 at = p->l4 + __builtin_offsetof(struct sctp_header, check);
	__u32 check;

	if (bpf_skb_load_bytes(ctx, at, &check, sizeof(check)))
		return false;
	check ^= change;
	return !ctx_store(ctx, at, &check, sizeof(check));
}

/* Makes padding of a parameter that begins this many bytes before the end. Returns the
 * change of the checksum. */
static __always_inline __u32 sctp_pad_out(ctx_t *ctx, __u32 at, __u32 behind,
					  struct sctp_parameter *a)
{
	const struct sctp_crc *t = sctp_crc_get();
	__u32 was, now;

	if (!t)
		return 0;
	__builtin_memcpy(&was, a, sizeof(was));
	a->type = bpf_htons(SCTP_PADDING);
	__builtin_memcpy(&now, a, sizeof(now));
	if (ctx_store(ctx, at, a, sizeof(*a)))
		return 0;
	return sctp_crc_change(t, was ^ now, behind);
}

#if ONLY_SCTP
/* Hides the addresses that INIT or INIT ACK lists. Parameters behind one with an impossible
 * length stay: their receiver refuses them. partial: the device computes the checksum. Global
 * (verifier: globals). */
__noinline int sctp_hide_addresses(ctx_t *ctx, const struct packet *p,
				   bool partial)
{
	__u32 at = sizeof(struct sctp_header) + SCTP_INIT_LENGTH, change = 0,
	      length, end, last;
	struct sctp_parameter a;

	if (!p) /* verifier: null */
		return false;
	end = p->length - (p->l4 - p->l3);
	last = end - p->listed;
	NO_UNROLL
	for (int i = 0; i < SCTP_PARAMETERS; i++) {
		if (at + sizeof(a) > last ||
		    bpf_skb_load_bytes(ctx, p->l4 + at, &a, sizeof(a)))
			break;
		length = bpf_ntohs(a.length);
		if (length < sizeof(a) || length > end - at)
			break;
		if (sctp_is_address(&a))
			change ^= sctp_pad_out(ctx, p->l4 + at, end - at, &a);
		at += (length + 3) & ~3U;
	}
	return partial || !change || sctp_check_change(ctx, p, change);
}
#else
static __always_inline int
sctp_hide_addresses(ctx_t *ctx, const struct packet *p, bool partial)
{
	return true;
}
#endif

#endif
