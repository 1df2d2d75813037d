/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * option.h - changes options of TCP where a header of the PROXY protocol precedes the
 * client's data.
 *
 * In SYN+ACKs, the maximum segment size leaves room for the header, so the first segment
 * fits the path with it. Multipath TCP would count the header as data, and TCP Fast Open
 * would invite data in the next connection's SYN: both options are erased. In other
 * segments, the edges of SACK (RFC 2018) shrink like acknowledgements.
 */
#ifndef LOXILB_PROXY_OPTION_H
#define LOXILB_PROXY_OPTION_H

#include "proxy/number.h"
#include "proxy/segment.h"

#define OPTION_END 0
#define OPTION_NOP 1
#define OPTION_MSS 2
#define OPTION_SACK 5
#define OPTION_MPTCP 30
#define OPTION_FAST_OPEN 34
#define OPTIONS_LONGEST 40
#define OPTION_NOPS 0x01010101
#define MIN_MSS 64

/* Finds an option: returns its offset from the TCP header, and in the upper half its
 * length; 0: there is none. Global (verifier: globals). */
__noinline __maybe_unused __u32 option_find(ctx_t *ctx, const struct packet *p,
					    __u32 kind)
{
	__u8 options[OPTIONS_LONGEST + 4] = {};
	__u32 end, at = 0;
	__u8 offset;

	if (!p /* verifier: null */ ||
	    bpf_skb_load_bytes(ctx, p->l4 + 12, &offset, 1))
		return 0;
	end = (offset >> 4) * 4 - sizeof(struct tcphdr);
	if (end > OPTIONS_LONGEST)
		return 0;
	asm volatile("" : "+r"(end)); /* verifier: bounds */
	if (end < 4 || bpf_skb_load_bytes(ctx, p->l4 + sizeof(struct tcphdr),
					  options, end))
		return 0;
	NO_UNROLL
	for (int i = 0; i < OPTIONS_LONGEST; i++) {
		if (at >= OPTIONS_LONGEST || at + 2 > end)
			return 0;
		if (options[at] == OPTION_END)
			return 0;
		if (options[at] == OPTION_NOP) {
			at++;
			continue;
		}
		if (options[at + 1] < 2 || at + options[at + 1] > end)
			return 0;
		if (options[at] == kind)
			return (sizeof(struct tcphdr) + at) |
			       (__u32)options[at + 1] << 16;
		at += options[at + 1];
	}
	return 0;
}

#define option_at(found) ((found) & 0xffff)
#define option_length(found) ((found) >> 16)

/* Adjusts the checksum after bytes at an offset from the TCP header have changed. */
static __always_inline bool option_sum(ctx_t *ctx, const struct packet *p,
				       __u32 at, __u16 delta)
{
	/* an odd offset shifts the bytes in the words of the sum */
	return segment_sum(ctx, p, at & 1 ? __builtin_bswap16(delta) : delta);
}

/* Lowers the maximum segment size by this much. */
static __noinline __maybe_unused bool
option_lower_mss(ctx_t *ctx, const struct packet *p, __u32 by)
{
	__u32 found, at;
	__be16 old, new;

	if (!p)
		return false;
	found = option_find(ctx, p, OPTION_MSS);
	at = option_at(found) + 2;
	if (option_length(found) != 4)
		return true;
	if (bpf_skb_load_bytes(ctx, p->l4 + at, &old, sizeof(old)))
		return false;
	if (bpf_ntohs(old) < MIN_MSS + by)
		return true;
	new = bpf_htons(bpf_ntohs(old) - by);
	return !bpf_skb_store_bytes(ctx, p->l4 + at, &new, sizeof(new), 0) &&
	       option_sum(ctx, p, at, sum_change(old, new));
}

/* Replaces an option by NOPs. */
static __noinline __maybe_unused bool
option_erase(ctx_t *ctx, const struct packet *p, __u32 kind)
{
	__u32 old[OPTIONS_LONGEST / 4] = {}, new[OPTIONS_LONGEST / 4];
	__u32 found, at, length;
	__s64 sum;

	if (!p)
		return false;
	found = option_find(ctx, p, kind);
	if (!found)
		return true;
	at = option_at(found);
	length = option_length(found);
	asm volatile("" : "+r"(length)); /* verifier: bounds */
	if (length < 2 || length > OPTIONS_LONGEST)
		return false;
	__builtin_memset(new, OPTION_NOP, sizeof(new));
	if (bpf_skb_load_bytes(ctx, p->l4 + at, old, length) ||
	    bpf_skb_store_bytes(ctx, p->l4 + at, new, length, 0))
		return false;
	__builtin_memset(new, 0, sizeof(new));
	if (bpf_skb_load_bytes(ctx, p->l4 + at, new, length))
		return false;
	sum = bpf_csum_diff(old, sizeof(old), new, sizeof(new), 0);
	return option_sum(ctx, p, at, sum_fold(sum));
}

#define SACK_BLOCKS 4

struct sack {
	__u8 pad[2];
	__u8 kind;
	__u8 length;
	__be32 edges[2 * SACK_BLOCKS];
};

/* Returns an edge in numbers of the client. first: the number of its first byte, iff
 * is_first: then what lies in the header is the first byte. */
static __always_inline __be32 sack_edge(__be32 edge, __u32 by, __u32 first,
					bool is_first)
{
	const __u32 number = bpf_ntohl(edge);

	if (is_first && number - first < by)
		return bpf_htonl(first);
	return bpf_htonl(number - by);
}

/* Changes the blocks of the option, and removes blocks within the header. */
static __always_inline void sack_change(const struct sack *old,
					struct sack *new, __u32 blocks,
					const struct packet *p, __u32 by)
{
	const bool is_first = p->chunk == PROXY_ACK_FIRST;
	__u32 kept = 0;

	NO_UNROLL
	for (__u32 i = 0; i < SACK_BLOCKS; i++) {
		__be32 left, right;

		if (i >= blocks)
			break;
		left = sack_edge(old->edges[2 * i], by, p->fragment_id,
				 is_first);
		right = sack_edge(old->edges[2 * i + 1], by, p->fragment_id,
				  is_first);
		if (left == right)
			continue;
		new->edges[kept & 7] = left;
		new->edges[(kept + 1) & 7] = right;
		kept += 2;
	}
	if (kept) {
		new->kind = OPTION_SACK;
		new->length = 2 + 4 * kept;
	}
}

/* Changes the edges of SACK. Global (verifier: globals). */
__noinline __maybe_unused bool
option_shift_sack(ctx_t *ctx, const struct packet *p, __u32 by)
{
	__u32 found, at, length;
	struct sack old = {}, new;
	__s64 sum;

	if (!p) /* verifier: null */
		return false;
	found = option_find(ctx, p, OPTION_SACK);
	if (!found)
		return true;
	at = option_at(found);
	length = option_length(found);
	asm volatile("" : "+r"(length)); /* verifier: bounds */
	if (length < 10 || length > 2 + 8 * SACK_BLOCKS || (length - 2) % 8)
		return true;
	if (bpf_skb_load_bytes(ctx, p->l4 + at, &old.kind, length))
		return false;
	__builtin_memset(&new, OPTION_NOP, sizeof(new));
	sack_change(&old, &new, (length - 2) / 8, p, by);
	if (bpf_skb_store_bytes(ctx, p->l4 + at, &new.kind, length, 0))
		return false;
	__builtin_memset(&new, 0, sizeof(new));
	if (bpf_skb_load_bytes(ctx, p->l4 + at, &new.kind, length))
		return false;
	sum = bpf_csum_diff((void *)&old, sizeof(old), (void *)&new,
			    sizeof(new), 0);
	return option_sum(ctx, p, at, sum_fold(sum));
}

#endif
