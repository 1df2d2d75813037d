/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sctp_packet.h - reads, translates and answers SCTP packets (RFC 9260).
 *
 * Chunks are read by a helper: where the kernel joins packets, the first chunk is not in
 * the linear part, and pulling it there would break their segmentation.
 */
#ifndef LOXILB_SCTP_PACKET_H
#define LOXILB_SCTP_PACKET_H

#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "packet/answer_ip.h"
#include "packet/checksum.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "protocol/sctp.h"
#include "protocol/sctp_addresses.h"
#include "protocol/sctp_crc.h"
#include "protocol/tcp.h"

/* How many chunks of a packet are read. Senders put chunks that change the state first,
 * or after one SACK. */
#define SCTP_CHUNKS 8

#define SCTP_SUM_OFFSET __builtin_offsetof(struct sctp_header, check)

static __always_inline bool sctp_changes_state(__u8 type)
{
	const __u32 types = 1 << SCTP_INIT | 1 << SCTP_INIT_ACK |
			    1 << SCTP_ABORT | 1 << SCTP_SHUTDOWN |
			    1 << SCTP_SHUTDOWN_ACK | 1 << SCTP_COOKIE_ECHO |
			    1 << SCTP_COOKIE_ACK | 1 << SCTP_SHUTDOWN_COMPLETE;

	return type < 32 && types >> type & 1;
}

/* Reports whether a chunk must be the only one of its packet (RFC 9260 section 6.10). */
static __always_inline bool sctp_chunk_is_single(__u8 type)
{
	return type == SCTP_INIT || type == SCTP_INIT_ACK ||
	       type == SCTP_SHUTDOWN_COMPLETE;
}

/* Records the chunk that determines the state. rest: the bytes after its type. Returns
 * false if RFC 9260 forbids it: its receiver would drop the packet. */
static __always_inline bool sctp_record_chunk(struct packet *p,
					      const struct sctp_chunk_header *c,
					      bool first, __u32 behind)
{
	p->chunk = c->type;
	p->reflected =
		c->flags & SCTP_FLAG_T &&
		(c->type == SCTP_ABORT || c->type == SCTP_SHUTDOWN_COMPLETE);
	if (c->type == SCTP_ABORT || c->type == SCTP_SHUTDOWN_COMPLETE ||
	    c->type == SCTP_COOKIE_ACK)
		p->tcp_flags = TCP_RST;
	if (sctp_chunk_is_single(c->type) && (!first || behind))
		return false;
	if (c->type != SCTP_INIT && c->type != SCTP_INIT_ACK)
		return true;
	p->seq = bpf_ntohl(c->tag);
	return p->seq && bpf_ntohs(c->length) >= SCTP_INIT_LENGTH &&
	       (c->type == SCTP_INIT_ACK || !p->ack);
}

/* Reads the chunks up to the one that may change the state, or to DATA, which no
 * control chunk follows. Returns false if a chunk contradicts the packet's length. */
static __noinline __maybe_unused bool
sctp_read_chunks(ctx_t *ctx, struct packet *p, __u32 l4_length)
{
	__u32 at = sizeof(struct sctp_header), length, padded;
	struct sctp_chunk_header c;

	NO_UNROLL
	for (int i = 0; i < SCTP_CHUNKS; i++) {
		c.tag = 0;
		if (at + SCTP_CHUNK_MIN > l4_length)
			return i > 0;
		if (at + sizeof(c) <= l4_length ?
			    bpf_skb_load_bytes(ctx, p->l4 + at, &c, sizeof(c)) :
			    bpf_skb_load_bytes(ctx, p->l4 + at, &c,
					       SCTP_CHUNK_MIN))
			return false;
		length = bpf_ntohs(c.length);
		padded = (length + 3) & ~3U;
		if (length < SCTP_CHUNK_MIN ||
		    (padded > l4_length - at && !p->fragment))
			return false;
		if (c.type == SCTP_DATA || c.type == SCTP_I_DATA)
			return true;
		if (!i &&
		    (c.type == SCTP_HEARTBEAT || c.type == SCTP_HEARTBEAT_ACK))
			p->seq_end = c.type;
		if (sctp_changes_state(c.type))
			return sctp_record_chunk(p, &c, !i,
						 l4_length - at - padded);
		at += padded;
	}
	return true;
}

static __noinline __maybe_unused enum verdict
sctp_parse(ctx_t *ctx, struct packet *p, __u32 l4_length)
{
	struct sctp_header *h = ctx_header(ctx, p->l4, sizeof(*h));

	if (!h)
		return packet_is_short(p);
	p->tuple.sport = h->ports;
	p->tuple.dport = h->ports >> 16;
	p->ack = bpf_ntohl(h->tag);
	if (unlikely(l4_length < sizeof(*h) + SCTP_CHUNK_MIN ||
		     (!p->fragment && l4_length % 4) ||
		     !sctp_read_chunks(ctx, p, l4_length)))
		p->fault = DROP_MALFORMED;
	return VERDICT_CONTINUE;
}

/* Returns the change of the sum of a packet, as skb->csum has it, whose first word and
 * checksum change. An IPv4 header compensates its addresses; where the IP version
 * changes, family.h does. */
static __always_inline __u32 sctp_sum_change(const struct packet *p,
					     const struct connection *c,
					     __u32 before, __u32 after)
{
	__u64 sum = (__u64)(__u32)~before + after + connection_ports_sum(c);

	if (p->ipv6 && !(c->hop & HOP_FAMILY))
		sum += (__u64)c->address_sum + HOP_LIMIT_CHANGE;
	return sum_fold64(sum);
}

/* Reports whether a packet may list addresses that the other side must not see. Where the
 * endpoint answers directly, it has the VIPs itself. */
static __always_inline bool sctp_lists_addresses(const struct packet *p,
						 const struct connection *c)
{
	return (p->chunk == SCTP_INIT || p->chunk == SCTP_INIT_ACK) &&
	       !p->icmp_error && !(c->traits & CONN_ONE_WAY);
}

/* Writes the connection's ports, and corrects the checksum, unless it is left to the
 * device, which computes it later. Where ports do not change, the checksum does not
 * either. */
static __noinline __maybe_unused enum verdict
sctp_translate(ctx_t *ctx, struct packet *p, struct connection *c)
{
	const __u32 ports = c->sport | (__u32)c->dport << 16;
	enum ctx_checksum state = ctx_checksum_state(ctx);
	const struct sctp_crc *t = sctp_crc_get();
	bool partial = state == CTX_CHECKSUM_PARTIAL;
	__u32 change, before, after, why = DROP_NONE;
	struct sctp_header *h;

	if (state == CTX_CHECKSUM_UNKNOWN)
		partial = ctx_checksum_is_partial(ctx, p->l4 + SCTP_SUM_OFFSET);
	if (unlikely(sctp_lists_addresses(p, c)))
		why = sctp_hide_addresses(ctx, p, partial);
	if (unlikely(why))
		return drop(p, why);
	h = ctx_header(ctx, p->l4, sizeof(*h));
	if (!h || !t)
		return drop(p, DROP_NOT_LINEAR);
	change = h->ports ^ ports;
	before = after = h->check;
	if (change && p->fragment)
		return drop(p, DROP_NOT_TRANSLATABLE);
	if (change && !partial) {
		after = before ^
			sctp_crc_change(t, change, p->length - (p->l4 - p->l3));
		h->check = after;
	}
	h->ports = ports;
	if (state == CTX_CHECKSUM_COMPLETE || state == CTX_CHECKSUM_UNKNOWN)
		ctx_sum_update(ctx, sctp_sum_change(p, c, before, after));
	return VERDICT_CONTINUE;
}

/* Rewrites a packet into an answer to its sender, whose own checksum is 0. length: a
 * constant. */
static __always_inline bool sctp_answer(ctx_t *ctx, struct packet *p,
					struct sctp_header *answer,
					const __u32 length)
{
	__u32 l4 = p->l3 +
		   (p->ipv6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr));
	bool partial = ctx_checksum_is_partial(ctx, p->l4 + SCTP_SUM_OFFSET);
	const struct sctp_crc *t = sctp_crc_get();
	struct ip_addr src = p->tuple.daddr;

	/* the device would write the checksum to the old place */
	if (!t || (partial && l4 != p->l4) || ctx_resize(ctx, l4 + length))
		return false;
	if (!partial)
		answer->check = sctp_crc_of(t, (void *)answer, length);
	return !ctx_store(ctx, l4, answer, length) &&
	       answer_ip(ctx, p, &src, IPPROTO_SCTP, length);
}

/* Rewrites a packet into its refusal: ABORT, or SHUTDOWN COMPLETE if the sender waits
 * for it. It has the tag that INIT announces, or the packet's own tag and flag T (RFC
 * 9260 section 8.4). */
static __noinline __maybe_unused bool sctp_reset_sender(ctx_t *ctx,
							struct packet *p)
{
	bool opens = p->chunk == SCTP_INIT;
	struct {
		struct sctp_header h;
		__u8 type;
		__u8 flags;
		__be16 length;
	} a = {
		.h.ports = p->tuple.dport | (__u32)p->tuple.sport << 16,
		.h.tag = bpf_htonl(opens ? p->seq : p->ack),
		.type = p->chunk == SCTP_SHUTDOWN_ACK ? SCTP_SHUTDOWN_COMPLETE :
							SCTP_ABORT,
		.flags = opens ? 0 : SCTP_FLAG_T,
		.length = bpf_htons(SCTP_CHUNK_MIN),
	};

	return sctp_answer(ctx, p, &a.h, sizeof(a));
}

#endif
