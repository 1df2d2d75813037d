/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sctp_addresses.h - the lists of addresses in INIT and INIT ACK (RFC 9260 section 3.3.2).
 *
 * A side with several addresses lists them there, and the other side then sends to all
 * of them. Such packets would bypass this machine, and arrive from an address that is
 * unknown to their receiver, which would abort the association. So both sides see only
 * addresses of this machine. Listed ones become padding (RFC 4820), which every
 * receiver skips and which keeps all lengths. ASCONF, which adds addresses later (RFC 5061),
 * disappears from the lists of supported chunks, so neither side sends it.
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

/* How many parameters and words of SCTP_EXTENSIONS are read: more than the addresses of IPv4 that
 * fit 1,500 bytes. Linux sends 4 to 8, and one for each address. */
#define SCTP_PARAMETERS 192

enum sctp_parameter_type {
	SCTP_ADDRESS_IPV4 = 5,
	SCTP_ADDRESS_IPV6 = 6,
	SCTP_PADDING = 0x8005,
	SCTP_EXTENSIONS = 0x8008, /* chunk types that the sender supports */
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

#if ONLY_SCTP
/* A walk over the parameters of INIT or INIT ACK. Offsets count from the SCTP header. */
struct sctp_parameter_walk {
	ctx_t *ctx;
	__u32 l4;
	__u32 at; /* of the next parameter */
	__u32 last; /* where the sender's list ends */
	__u32 end; /* of the packet */
	__u32 change; /* of the checksum */
	__u32 types; /* where SCTP_EXTENSIONS ends, if it has begun */
};

/* Hides the parameter at w->at if it is an address; or ASCONF, if this is a word of a list of chunk
 * types. Returns whether none follows. */
static long sctp_hide_parameter(__u32 i, struct sctp_parameter_walk *w)
{
	const __u32 at = w->at;
	const struct sctp_crc *t;
	union {
		struct sctp_parameter parameter;
		__u8 type[4];
		__u32 all;
	} was, now;
	__u32 length;

	if (at + sizeof(was) > w->last ||
	    bpf_skb_load_bytes(w->ctx, w->l4 + at, &was, sizeof(was)))
		return true;
	now = was;
	w->at = at + sizeof(was);
	if (at < w->types) {
		for (__u32 j = 0; j < sizeof(was); j++)
			if (at + j < w->types &&
			    (was.type[j] == SCTP_ASCONF ||
			     was.type[j] == SCTP_ASCONF_ACK))
				now.type[j] = SCTP_PAD;
	} else {
		length = bpf_ntohs(was.parameter.length);
		if (length < sizeof(was) || length > w->end - at)
			return true;
		if (was.parameter.type == bpf_htons(SCTP_EXTENSIONS))
			w->types = at + length;
		else
			w->at = at + ((length + 3) & ~3U);
		if (sctp_is_address(&was.parameter))
			now.parameter.type = bpf_htons(SCTP_PADDING);
	}
	if (now.all == was.all)
		return false;
	t = sctp_crc_get();
	if (t && !ctx_store(w->ctx, w->l4 + at, &now, sizeof(now)))
		w->change ^= sctp_crc_change(t, was.all ^ now.all, w->end - at);
	return false;
}

/* Hides the addresses that INIT or INIT ACK lists. Parameters behind one with an impossible
 * length stay: their receiver refuses them. Returns why the packet must not leave, or
 * DROP_NONE: with more parameters than are read, or in later fragments, an address would reach
 * the other side.
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
	if (p->fragment)
		return DROP_NOT_TRANSLATABLE;
	/* none yet; not known to be 0 (verifier: loops) */
	w.types = p->ipv6;
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
