/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sctp_addresses.h - the lists of addresses in INIT and INIT ACK (RFC 9260 section 3.3.2).
 *
 * A side with several addresses lists them there, and the other side then sends to all
 * of them. Such packets would bypass this machine, and arrive from an address that is
 * unknown to their receiver, which would abort the association. So both sides see only
 * addresses of this machine. Listed ones become padding (RFC 4820), which every
 * receiver skips and which keeps all lengths.
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

/* How many parameters are read: more than the addresses of IPv4 that fit 1,500 bytes. Linux
 * sends 4 to 8, and one for each address. */
#define SCTP_PARAMETERS 192

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
/* A walk over the parameters of INIT or INIT ACK. Offsets count from the SCTP header. */
struct sctp_parameter_walk {
	ctx_t *ctx;
	__u32 l4;
	__u32 at; /* of the next parameter */
	__u32 last; /* where the sender's list ends */
	__u32 end; /* of the packet */
	__u32 change; /* of the checksum */
};

/* Hides the parameter at w->at if it is an address. Returns whether none follows. */
static long sctp_hide_parameter(__u32 i, struct sctp_parameter_walk *w)
{
	const __u32 at = w->at;
	struct sctp_parameter a;
	__u32 length;

	if (at + sizeof(a) > w->last ||
	    bpf_skb_load_bytes(w->ctx, w->l4 + at, &a, sizeof(a)))
		return true;
	length = bpf_ntohs(a.length);
	if (length < sizeof(a) || length > w->end - at)
		return true;
	if (sctp_is_address(&a))
		w->change ^= sctp_pad_out(w->ctx, w->l4 + at, w->end - at, &a);
	w->at = at + ((length + 3) & ~3U);
	return false;
}

/* Hides the addresses that INIT or INIT ACK lists. Parameters behind one with an impossible
 * length stay: their receiver refuses them. Returns why the packet must not leave, or
 * DROP_NONE: with more parameters than are read, an address would reach the other side.
 * partial: the device computes the checksum. By bpf_loop(), as Linux 6.1 verifies an
 * ordinary loop turn by turn, in each of its states. Global (verifier: globals). */
__noinline int sctp_hide_addresses(ctx_t *ctx, const struct packet *p,
				   bool partial)
{
	struct sctp_parameter_walk w = {
		.ctx = ctx,
		.at = sizeof(struct sctp_header) + SCTP_INIT_LENGTH,
	};

	if (!p) /* verifier: null */
		return DROP_NOT_LINEAR;
	w.l4 = p->l4;
	w.end = p->length - (p->l4 - p->l3);
	w.last = w.end - p->listed;
	if (bpf_loop(SCTP_PARAMETERS, sctp_hide_parameter, &w, 0) ==
		    SCTP_PARAMETERS &&
	    w.at + sizeof(struct sctp_parameter) <= w.last)
		return DROP_NOT_TRANSLATABLE;
	return partial || !w.change || sctp_check_change(ctx, p, w.change) ?
		       DROP_NONE :
		       DROP_NOT_LINEAR;
}
#else
static __always_inline int
sctp_hide_addresses(ctx_t *ctx, const struct packet *p, bool partial)
{
	return DROP_NONE;
}
#endif

#endif
