/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ctx_xdp.h - access to the packet at XDP: a frame in the driver's memory,
 * before there is an sk_buff. Included by ctx.h.
 */
#ifndef LOXILB_CTX_XDP_H
#define LOXILB_CTX_XDP_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "packet/packet.h"

typedef struct xdp_md ctx_t;

struct link_address {
	__u8 mac[ETH_ALEN];
	__u8 pad[2];
} __attribute__((aligned(2)));

/* Length of a VLAN tag in a frame, between addresses and Ethertype. */
#define VLAN_HLEN 4

/* interface index -> its MAC address. Written by user; read for every frame, since
 * XDP has no packet type. An array, since its lookup takes five instructions;
 * interfaces with a higher index have no XDP. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, struct link_address);
} xdp_addresses SEC(".maps");

/* Returns a pointer to len bytes at offset off that may be read and written, or
 * NULL if they are not in the frame's first buffer. */
static __always_inline void *ctx_header(ctx_t *ctx, __u32 off, __u32 len)
{
	void *header;

	off &= CTX_MAX_OFFSET; /* a bound that every verifier keeps in sight */
	header = (void *)(long)ctx->data + off;
	/* see ctx_skb.h */
	asm volatile("" : "+r"(header));
	if (header + len > (void *)(long)ctx->data_end)
		return NULL;
	return header;
}

/* Returns the length of the first buffer. A packet in several buffers is longer, and so
 * is passed on. */
static __always_inline __u32 ctx_length(ctx_t *ctx)
{
	return ctx->data_end - ctx->data;
}

static __always_inline bool ctx_is_for_us(ctx_t *ctx)
{
	const __u16 *to = ctx_header(ctx, 0, ETH_HLEN), *own;
	__u32 index = ctx->ingress_ifindex;

	own = bpf_map_lookup_elem(&xdp_addresses, &index);
	return to && own && to[0] == own[0] && to[1] == own[1] &&
	       to[2] == own[2];
}

/* Returns the Ethertype, which is in front of the IP header; of a frame with a VLAN
 * tag, in front of l3 after the tag. */
static __always_inline __be16 ctx_ethertype(ctx_t *ctx, __u16 l3)
{
	const __be16 *type = ctx_header(ctx, l3 - sizeof(*type), sizeof(*type));

	return type ? *type : 0;
}

/* Reports whether the frame has a priority tag. */
static __always_inline bool ctx_has_priority_tag(ctx_t *ctx)
{
	const __be16 *tag = ctx_header(ctx, 2 * ETH_ALEN, VLAN_HLEN);

	return tag &&
	       (tag[0] == bpf_htons(ETH_P_8021Q) ||
		tag[0] == bpf_htons(ETH_P_8021AD)) &&
	       !(tag[1] & bpf_htons(CTX_VLAN_ID));
}

/* Tags are looked for only when nothing else is found (xdp.bpf.c). */
static __always_inline bool ctx_take_priority_tag(ctx_t *ctx, __u8 *tag)
{
	return false;
}

/* Returns the interface that the packet is at. */
static __always_inline __u32 ctx_interface(ctx_t *ctx)
{
	return ctx->ingress_ifindex;
}

/* Copies the first len bytes of the packet. Returns an error if it has fewer. */
static __always_inline long ctx_load(ctx_t *ctx, void *to, __u32 len)
{
	return bpf_xdp_load_bytes(ctx, 0, to, len);
}

/* XDP never sees joined segments. */
static __always_inline __u16 ctx_segment(ctx_t *ctx)
{
	return 0;
}

/* XDP finds a VLAN tag in the frame, not in metadata. */
static __always_inline bool ctx_tag(ctx_t *ctx, __u16 *tci, __be16 *type)
{
	return false;
}

static __always_inline __u32 ctx_now(void)
{
	return (__u32)bpf_jiffies64();
}

/* Frames with a partial checksum are passed on (xdp.bpf.c), and there is no sk_buff to
 * update. */
static __always_inline enum ctx_checksum ctx_checksum_state(ctx_t *ctx)
{
	return CTX_CHECKSUM_NONE;
}

static __always_inline void ctx_sum_update(ctx_t *ctx, __u32 delta)
{
}

static __always_inline long ctx_sum_replace(ctx_t *ctx, __u32 off, __u64 from,
					    __u64 to, __u64 flags)
{
	return -1;
}

static __always_inline bool ctx_checksum_is_partial(ctx_t *ctx, __u32 at)
{
	return false;
}

/* The only answers here are challenges of the same length. */
static __always_inline long ctx_store(ctx_t *ctx, __u32 off, const void *from,
				      __u32 len)
{
	return -1;
}

static __always_inline long ctx_resize(ctx_t *ctx, __u32 length)
{
	return -1;
}

#endif
