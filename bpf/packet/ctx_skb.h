/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * ctx_skb.h - access to the packet at the tc hook, an sk_buff. Included by
 * ctx.h.
 */
#ifndef LOXILB_CTX_SKB_H
#define LOXILB_CTX_SKB_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <linux/if_ether.h>
#include "config.h"
#include "packet/packet.h"

#define CTX_PACKET_HOST 0 /* PACKET_HOST: addressed to this machine's MAC */
#define CTX_PACKET_OTHERHOST 3 /* PACKET_OTHERHOST: to another one */

struct sk_buff___loxilb {
	__u8 ip_summed : 2;
	__u8 redirected : 1;
} __attribute__((preserve_access_index));

extern void *bpf_cast_to_kern_ctx(void *obj) __ksym __weak;

typedef struct __sk_buff ctx_t;

/* Returns a pointer to len bytes at offset off that may be read and written, or
 * NULL if the packet is shorter or memory ran out. Earlier pointers are invalid
 * afterwards. Data is pulled only when the linear part is too short; GRO and
 * the socket layer leave all headers in it. */
static __always_inline void *ctx_header(ctx_t *ctx, __u32 off, __u32 len)
{
	void *header;

	off &= CTX_MAX_OFFSET; /* a bound that every verifier keeps in sight */
	header = (void *)(long)ctx->data + off;
	/* The verifier knows the bounds of exactly the pointer that was compared:
	 * this keeps the compiler from computing it again. */
	asm volatile("" : "+r"(header));
	if (likely(header + len <= (void *)(long)ctx->data_end))
		return header;
	if (ctx->len < off + len || bpf_skb_pull_data(ctx, off + len))
		return NULL;
	header = (void *)(long)ctx->data + off;
	asm volatile("" : "+r"(header));
	if (header + len > (void *)(long)ctx->data_end)
		return NULL;
	return header;
}

static __always_inline __u32 ctx_length(ctx_t *ctx)
{
	return ctx->len;
}

/* Reports whether the packet is addressed to this machine's MAC address and has no
 * VLAN tag. A VLAN interface removes the tag and shows the packet again. */
static __always_inline bool ctx_is_for_us(ctx_t *ctx)
{
	return ctx->pkt_type == CTX_PACKET_HOST && !ctx->vlan_present;
}

#define CTX_TAG_TAKEN 1 /* in the saved form of a tag */
#define CTX_TAG_AD 2 /* 802.1ad */
#define CTX_TAG_PRIORITY_SHIFT 8

/* Reports whether the kernel takes a packet of this interface: it is not for another
 * host, and has no tag of a VLAN. */
static __always_inline bool ctx_is_taken(ctx_t *ctx)
{
	return ctx->pkt_type != CTX_PACKET_OTHERHOST &&
	       !(ctx->vlan_present && (ctx->vlan_tci & CTX_VLAN_ID));
}

/* Removes a priority tag from a packet for this machine, and saves it: it means
 * nothing where the packet goes. Returns false if there is none. The kernel has moved
 * the tag from the frame to the metadata before the hook. Not inlined, since few
 * packets have one. */
static __noinline __maybe_unused bool ctx_take_priority_tag(ctx_t *ctx,
							    __u8 *tag)
{
	__u32 tci = ctx->vlan_tci, type = ctx->vlan_proto;

	if (!tag || ctx->pkt_type != CTX_PACKET_HOST || !ctx->vlan_present ||
	    (tci & CTX_VLAN_ID) ||
	    (ctx->protocol != bpf_htons(ETH_P_IP) &&
	     ctx->protocol != bpf_htons(ETH_P_IPV6)) ||
	    bpf_skb_vlan_pop(ctx))
		return false;
	*tag = CTX_TAG_TAKEN | tci >> CTX_TAG_PRIORITY_SHIFT;
	if (type == bpf_htons(ETH_P_8021AD))
		*tag |= CTX_TAG_AD;
	return true;
}

/* Restores the tag of a packet that goes to the kernel. */
static __noinline __maybe_unused void ctx_put_priority_tag(ctx_t *ctx, __u8 tag)
{
	__be16 type = bpf_htons(tag & CTX_TAG_AD ? ETH_P_8021AD : ETH_P_8021Q);

	bpf_skb_vlan_push(ctx, type, (tag & 0xf0) << CTX_TAG_PRIORITY_SHIFT);
}

/* Reports whether the packet has a VLAN tag. */
static __always_inline bool ctx_is_tagged(ctx_t *ctx)
{
	return ctx->vlan_present;
}

/* Reports whether a program at ingress has redirected the packet, as this one does.
 * Always false before 6.2, as for the checksum. */
static __always_inline bool ctx_is_redirected(ctx_t *ctx)
{
	struct sk_buff___loxilb *skb;

	if (!kfuncs || !bpf_cast_to_kern_ctx)
		return false;
	skb = bpf_cast_to_kern_ctx(ctx);
	return bpf_core_field_exists(skb->redirected) &&
	       BPF_CORE_READ_BITFIELD(skb, redirected);
}

/* Returns the interface that the packet is at. */
static __always_inline __u32 ctx_interface(ctx_t *ctx)
{
	return ctx->ifindex;
}

/* Returns the Ethertype in network byte order, without reading the frame. */
static __always_inline __be16 ctx_ethertype(ctx_t *ctx, __u16 l3)
{
	return ctx->protocol;
}

/* Copies the first len bytes of the packet. Returns an error if it has fewer. */
static __always_inline long ctx_load(ctx_t *ctx, void *to, __u32 len)
{
	return bpf_skb_load_bytes(ctx, 0, to, len);
}

/* Returns the segment length if several packets travel as one; else 0. */
static __always_inline __u16 ctx_segment(ctx_t *ctx)
{
	return ctx->gso_size;
}

/* Reads the VLAN tag. Returns whether there is one. */
static __always_inline bool ctx_tag(ctx_t *ctx, __u16 *tci, __be16 *type)
{
	*tci = ctx->vlan_tci;
	*type = ctx->vlan_proto;
	return ctx->vlan_present;
}

/* Returns the mark that nftables, tc or a socket has set. */
static __always_inline __u32 ctx_mark(ctx_t *ctx)
{
	return ctx->mark;
}

static __always_inline void ctx_set_mark(ctx_t *ctx, __u32 mark)
{
	ctx->mark = mark;
}

static __always_inline __u32 ctx_now(void)
{
	return (__u32)bpf_jiffies64();
}

/* Returns the state of the checksum field. That needs bpf_cast_to_kern_ctx (6.2),
 * which the verifier turns into a load. */
static __always_inline enum ctx_checksum ctx_checksum_state(ctx_t *ctx)
{
	struct sk_buff___loxilb *skb;

	if (!kfuncs || !bpf_cast_to_kern_ctx)
		return CTX_CHECKSUM_UNKNOWN;
	skb = bpf_cast_to_kern_ctx(ctx);
	return BPF_CORE_READ_BITFIELD(skb, ip_summed);
}

/* CHECKSUM_COMPLETE: adds to skb->csum the changes of the packet that no checksum in
 * it compensates. */
static __always_inline void ctx_sum_update(ctx_t *ctx, __u32 delta)
{
	bpf_csum_update(ctx, delta);
}

/* Changes the checksum at an offset, whatever state it is in. */
static __always_inline long ctx_sum_replace(ctx_t *ctx, __u32 off, __u64 from,
					    __u64 to, __u64 flags)
{
	return bpf_l4_csum_replace(ctx, off, from, to, flags);
}

/* Reports whether the checksum at an offset is left to the sending device, on any
 * kernel: the helper changes the field unless it is. */
static __noinline __maybe_unused bool ctx_checksum_is_partial(ctx_t *ctx,
							      __u32 at)
{
	enum ctx_checksum state = ctx_checksum_state(ctx);
	__u16 before, after;

	if (state != CTX_CHECKSUM_UNKNOWN)
		return state == CTX_CHECKSUM_PARTIAL;
	if (bpf_skb_load_bytes(ctx, at, &before, sizeof(before)) ||
	    ctx_sum_replace(ctx, at, 0, 1, 2) ||
	    bpf_skb_load_bytes(ctx, at, &after, sizeof(after)))
		return false;
	bpf_skb_store_bytes(ctx, at, &before, sizeof(before), 0);
	return before == after;
}

/* Writes len bytes at an offset. Returns an error if the packet has fewer. */
static __always_inline long ctx_store(ctx_t *ctx, __u32 off, const void *from,
				      __u32 len)
{
	return bpf_skb_store_bytes(ctx, off, from, len, BPF_F_RECOMPUTE_CSUM);
}

/* Gives the packet this length. */
static __always_inline long ctx_resize(ctx_t *ctx, __u32 length)
{
	return bpf_skb_change_tail(ctx, length, 0);
}

#endif
