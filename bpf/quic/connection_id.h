/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * connection_id.h - reads the destination connection ID of a QUIC packet, and the server
 * ID in it (RFC 8999, RFC 9000, draft-ietf-quic-load-balancers-21).
 *
 *	first octet        configuration in 3 bits, the others do not matter
 *	server ID, nonce   as they are, encrypted as one block of 16 bytes, or encrypted in
 *	                   four passes over their halves, of which a byte in the middle has
 *	                   four bits each
 *
 * A client chooses the ID of its first packets itself. So long headers count only if the
 * packet certainly has an ID of the server: Handshake packets of versions 1 and 2.
 */
#ifndef LOXILB_CONNECTION_ID_H
#define LOXILB_CONNECTION_ID_H

#include <linux/bpf.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "packet/ctx.h"
#include "packet/packet.h"
#include "quic/aes.h"

#define QUIC_LONG_HEADER 0x80
#define QUIC_VERSION_1 1
#define QUIC_VERSION_2 0x6b3343cf
#define QUIC_HANDSHAKE_1 2 /* its type in version 1 (RFC 9000 section 17.2.4) */
#define QUIC_HANDSHAKE_2 3 /* ... and in version 2 (RFC 9369 section 3.2) */
#define QUIC_BODY_MAX (QUIC_CID_MAX - 1)
#define QUIC_CONFIG_SHIFT 5

struct quic_long_header {
	__u8 first;
	__u8 version[4]; /* in network byte order */
	__u8 cid_length;
};

/* A connection ID, and its decrypted form. */
struct quic_scratch {
	__u64 body
		[5]; /* server ID and nonce, then zeros: a half may be read from any byte on */
	struct aes_block left;
	struct aes_block right;
	struct aes_block block;
	struct quic_config_key config;
	struct quic_server_key server;
	__u32 length; /* of body */
};

/* 0 -> struct quic_scratch, per CPU: it does not fit the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct quic_scratch);
} quic_scratches SEC(".maps");

/* Returns the length of the datagram's data in this packet: a first fragment has only
 * some of it, and data beyond the datagram's length does not count. */
static __always_inline int quic_data_length(ctx_t *ctx, const struct packet *p)
{
	int in_packet = (int)p->length - (p->l4 - p->l3), stated;
	__be16 length = 0;

	if (bpf_skb_load_bytes(ctx,
			       p->l4 + __builtin_offsetof(struct udphdr, len),
			       &length, sizeof(length)))
		return 0;
	stated = bpf_ntohs(length);
	return (stated < in_packet ? stated : in_packet) -
	       (int)sizeof(struct udphdr);
}

/* Reports whether the ID in a long header certainly is the server's. */
static __always_inline bool
quic_id_is_of_server(const struct quic_long_header *h)
{
	__u8 type = h->first >> 4 & 3;
	__be32 version;

	__builtin_memcpy(&version, h->version, sizeof(version));
	return (version == bpf_htonl(QUIC_VERSION_1) &&
		type == QUIC_HANDSHAKE_1) ||
	       (version == bpf_htonl(QUIC_VERSION_2) &&
		type == QUIC_HANDSHAKE_2);
}

/* Finds the connection ID, at offset *at. Returns its length, or for a short header its
 * maximum; 0: there is none. */
static __always_inline int quic_find_id(ctx_t *ctx, const struct packet *p,
					__u32 *at)
{
	int data = quic_data_length(ctx, p), length;
	struct quic_long_header h;

	*at = p->l4 + sizeof(struct udphdr);
	if (data < 2 || bpf_skb_load_bytes(ctx, *at, &h.first, 1))
		return 0;
	if (!(h.first & QUIC_LONG_HEADER)) {
		*at += 1;
		return data - 1 < QUIC_CID_MAX ? data - 1 : QUIC_CID_MAX;
	}
	if (data < (int)sizeof(h) ||
	    bpf_skb_load_bytes(ctx, *at, &h, sizeof(h)))
		return 0;
	length = h.cid_length;
	*at += sizeof(h);
	return quic_id_is_of_server(&h) && length <= QUIC_CID_MAX &&
			       length <= data - (int)sizeof(h) ?
		       length :
		       0;
}

/* Reads the connection ID. */
static __always_inline bool quic_read_id(ctx_t *ctx, const struct packet *p,
					 struct quic_scratch *s)
{
	__u8 first = 0;
	__u32 at;
	int n;

	n = quic_find_id(ctx, p, &at) - 1;
	__builtin_memset(s->body, 0, sizeof(s->body));
	asm volatile("" : "+r"(n)); /* verifier: bounds */
	if (n < 1 || n > QUIC_BODY_MAX ||
	    bpf_skb_load_bytes(ctx, at, &first, 1) ||
	    bpf_skb_load_bytes(ctx, at + 1, s->body, n))
		return false;
	s->length = n;
	s->config.config = first >> QUIC_CONFIG_SHIFT;
	return true;
}

static __always_inline void aes_mask(struct aes_block *to, const void *from,
				     const __u64 mask[2])
{
	__u64 words[2];

	__builtin_memcpy(words, from, sizeof(words));
	words[0] &= mask[0];
	words[1] &= mask[1];
	__builtin_memcpy(to, words, sizeof(words));
}

/* Adds the encrypted half "of" to the other one. */
static __always_inline void quic_pass(struct quic_scratch *s,
				      const struct quic_config *c,
				      struct aes_block *to,
				      const struct aes_block *of,
				      const __u64 mask[2], const int pass)
{
	s->block = *of;
	s->block.column[3] |= (__u32)c->length << 16 | (__u32)pass << 24;
	aes_encrypt(&s->block, c);
	aes_mask(&s->block, &s->block, mask);
	for (int i = 0; i < 4; i++)
		to->column[i] ^= s->block.column[i];
}

/* Undoes the passes, the last one first, until the server ID is complete in s->body. */
static __always_inline void quic_undo_passes(struct quic_scratch *s,
					     const struct quic_config *c)
{
	__u8 *bytes = (__u8 *)s->body;
	__u64 right = c->right;

	asm volatile("" : "+r"(right)); /* verifier: bounds */
	right &= 15;
	aes_mask(&s->left, s->body, c->left_mask);
	aes_mask(&s->right, bytes + right, c->right_mask);
	quic_pass(s, c, &s->left, &s->right, c->left_mask, 4);
	quic_pass(s, c, &s->right, &s->left, c->right_mask, 3);
	quic_pass(s, c, &s->left, &s->right, c->left_mask, 2);
	__builtin_memset(s->body, 0, sizeof(s->body));
	__builtin_memcpy(s->body, &s->left, sizeof(s->left));
	if (c->cipher != QUIC_FOUR_PASSES)
		return;
	quic_pass(s, c, &s->right, &s->left, c->right_mask, 1);
	NO_UNROLL
	for (int i = 0; i < QUIC_CID_MAX / 2; i++)
		bytes[right + i] |= ((__u8 *)&s->right)[i];
}

/* Finds the server ID in the connection ID. */
static __always_inline void quic_decode(struct quic_scratch *s,
					const struct quic_config *c)
{
	if (c->cipher == QUIC_SINGLE_PASS)
		aes_decrypt((struct aes_block *)s->body, c);
	else if (c->cipher != QUIC_PLAINTEXT)
		quic_undo_passes(s, c);
	s->server.id[0] = s->body[0] & c->id_mask[0];
	s->server.id[1] = (s->body[1] & c->id_mask[1]) | (__u64)c->id_length
								 << 56;
}

#endif
