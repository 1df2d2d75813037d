/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * segment.h - changes the numbers, the data and the length of a TCP segment, and adjusts
 * its checksums. It is not translated yet.
 */
#ifndef LOXILB_PROXY_SEGMENT_H
#define LOXILB_PROXY_SEGMENT_H

#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/length.h"
#include "packet/packet_sum.h"
#include "protocol/tcp.h"
#include "proxy/header.h"

#define TCP_PSH 0x08
#define TCP_SEQ_AT __builtin_offsetof(struct tcphdr, seq)
#define TCP_ACK_AT __builtin_offsetof(struct tcphdr, ack_seq)

/* Adjusts the TCP checksum after the segment has changed by delta. */
static __noinline __maybe_unused bool
segment_sum(ctx_t *ctx, const struct packet *p, __u16 delta)
{
	const enum ctx_checksum state = ctx_checksum_state(ctx);
	__u16 *check;

	if (!p)
		return false;
	if (state == CTX_CHECKSUM_PARTIAL)
		return true;
	if (state == CTX_CHECKSUM_UNKNOWN)
		return !ctx_sum_replace(ctx, p->l4 + TCP_SUM_OFFSET, 0, delta,
					0);
	check = ctx_header(ctx, p->l4 + TCP_SUM_OFFSET, sizeof(*check));
	if (!check)
		return false;
	*check = sum_replace(*check, delta);
	return true;
}

/* Adjusts it after the segment's length has grown by this much. */
static __always_inline bool
segment_sum_length(ctx_t *ctx, const struct packet *p, __u16 growth)
{
	return !ctx_sum_replace(ctx, p->l4 + TCP_SUM_OFFSET, 0,
				bpf_htons(growth), BPF_F_PSEUDO_HDR);
}

/* Writes a number of the header: at is TCP_SEQ_AT or TCP_ACK_AT. */
static __noinline __maybe_unused bool
segment_number(ctx_t *ctx, const struct packet *p, __u32 at, __u32 number)
{
	__be32 old, new = bpf_htonl(number);

	if (!p || bpf_skb_load_bytes(ctx, p->l4 + at, &old, sizeof(old)))
		return false;
	if (old == new)
		return true;
	return !bpf_skb_store_bytes(ctx, p->l4 + at, &new, sizeof(new), 0) &&
	       segment_sum(ctx, p, sum_fold64((__u64)(__be32)~old + new));
}

/* Returns the length of the TCP header. */
static __always_inline __u32 segment_header(ctx_t *ctx, const struct packet *p)
{
	__u8 offset;

	if (bpf_skb_load_bytes(ctx, p->l4 + 12, &offset, sizeof(offset)))
		return 0;
	return (offset >> 4) * 4;
}

/* Removes the data of a segment, and its FIN. Its checksum is computed, as the data's part
 * of it is not known. Global (verifier: globals). */
__noinline __maybe_unused bool segment_cut(ctx_t *ctx, struct packet *p)
{
	__u32 header, length, sum;
	__u16 check = 0;
	bool partial;
	__u8 flags;

	if (!p) /* verifier: null */
		return false;
	header = segment_header(ctx, p);
	length = p->l4 - p->l3 + header;
	if (header < sizeof(struct tcphdr) || length > p->length)
		return false;
	if (length == p->length)
		return true;
	partial = ctx_checksum_is_partial(ctx, p->l4 + TCP_SUM_OFFSET);
	flags = p->tcp_flags & ~(TCP_FIN | TCP_PSH);
	if (ctx_resize(ctx, p->l4 + header) ||
	    bpf_skb_store_bytes(ctx, p->l4 + 13, &flags, sizeof(flags), 0) ||
	    bpf_skb_store_bytes(ctx, p->l4 + TCP_SUM_OFFSET, &check,
				sizeof(check), 0))
		return false;
	sum = pseudo_sum(&p->tuple.saddr, &p->tuple.daddr, IPPROTO_TCP, header);
	check = partial ?
			sum_fold(sum) :
			~sum_add(sum_fold(sum), packet_sum(ctx, p->l4, header));
	return !bpf_skb_store_bytes(ctx, p->l4 + TCP_SUM_OFFSET, &check,
				    sizeof(check), 0) &&
	       packet_set_length(ctx, p, length);
}

/* Moves the end of urgent data beyond the header: otherwise the endpoint would miss an
 * urgent byte within the header. Linux treats 0 as 1. */
static __always_inline bool
segment_move_urgent(ctx_t *ctx, const struct packet *p, __u32 growth)
{
	const __u32 at = p->l4 + __builtin_offsetof(struct tcphdr, urg_ptr);
	__be16 old, new;
	__u32 end;

	if (!(p->tcp_flags & TCP_URG))
		return true;
	if (bpf_skb_load_bytes(ctx, at, &old, sizeof(old)))
		return false;
	end = (bpf_ntohs(old) ?: 1) + growth;
	new = bpf_htons(end < 0xffff ? end : 0xffff);
	return !bpf_skb_store_bytes(ctx, at, &new, sizeof(new), 0) &&
	       segment_sum(ctx, p, sum_change(old, new));
}

#define SEGMENT_CHUNK 64
#define SEGMENT_CHUNKS 144 /* PROXY_DATA_MAX in chunks */

/* Moves length bytes at an offset by this many bytes, towards the end. Global (verifier:
 * globals). */
__noinline __maybe_unused bool segment_move(ctx_t *ctx, __u32 at, __u32 length,
					    __u32 by)
{
	__u8 chunk[SEGMENT_CHUNK];
	__u32 last;

	NO_UNROLL
	for (int i = 0; i < SEGMENT_CHUNKS && length >= SEGMENT_CHUNK; i++) {
		length -= SEGMENT_CHUNK;
		if (bpf_skb_load_bytes(ctx, at + length, chunk,
				       SEGMENT_CHUNK) ||
		    bpf_skb_store_bytes(ctx, at + length + by, chunk,
					SEGMENT_CHUNK, 0))
			return false;
	}
	if (!length)
		return true;
	last = length - 1;
	/* 1 to SEGMENT_CHUNK, both bounds visible (verifier: bounds) */
	asm volatile("" : "+r"(last));
	if (last >= SEGMENT_CHUNK)
		return false;
	return !bpf_skb_load_bytes(ctx, at, chunk, last + 1) &&
	       !bpf_skb_store_bytes(ctx, at + by, chunk, last + 1, 0);
}

/* Makes room for bytes at an offset. The packet becomes linear before it grows; padding
 * of the frame is removed. The headers stay in place: adjusting the room after them
 * would not move skb->csum_start. */
static __always_inline bool
segment_make_room(ctx_t *ctx, const struct packet *p, __u32 at, __u32 growth)
{
	const __u32 end = p->l3 + p->length;

	return !bpf_skb_pull_data(ctx, ctx->len) &&
	       !ctx_resize(ctx, end + growth) &&
	       segment_move(ctx, at, end - at, growth);
}

/* Puts the header of the PROXY protocol in front of the data. Global (verifier:
 * globals). */
__noinline __maybe_unused bool segment_insert(ctx_t *ctx, struct packet *p)
{
	struct proxy_header h = {};
	__u32 at, growth;

	if (!p) /* verifier: null */
		return false;
	growth = p->ipv6 ? PROXY_LENGTH6 : PROXY_LENGTH4;
	at = p->l4 + segment_header(ctx, p);
	if (at == p->l4 || !segment_make_room(ctx, p, at, growth))
		return false;
	proxy_fill(&h, p);
	if (p->ipv6 ? bpf_skb_store_bytes(ctx, at, &h, PROXY_LENGTH6, 0) :
		      bpf_skb_store_bytes(ctx, at, &h, PROXY_LENGTH4, 0))
		return false;
	return segment_move_urgent(ctx, p, growth) &&
	       segment_sum(ctx, p,
			   sum_fold(bpf_csum_diff(NULL, 0, (void *)&h,
						  sizeof(h), 0))) &&
	       segment_sum_length(ctx, p, growth) &&
	       packet_set_length(ctx, p, p->length + growth);
}

#endif
