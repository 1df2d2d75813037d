/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * proof.h - proves that a client receives at a further address, before answers go there
 * (RFC 9260 section 5.4).
 *
 * A client could otherwise forge another host's address, and direct the endpoint's data
 * there. A packet from an address without proof is answered with a HEARTBEAT, and dropped; the
 * client repeats it. The HEARTBEAT has a hash with a secret key, which HEARTBEAT ACK
 * returns. The answer is hardly larger than the smallest packet. The endpoint sees neither, by
 * whatever path the HEARTBEAT ACK comes: Linux aborts the association, as it is too short.
 *
 * A HEARTBEAT also confirms a guessed tag, and ABORT needs no proof: while wrong tags are many,
 * packets of unproven addresses are dropped without an answer.
 */
#ifndef LOXILB_SCTP_PROOF_H
#define LOXILB_SCTP_PROOF_H

#include "packet/ctx.h"
#include "packet/packet.h"

#if ONLY_SCTP
#include "conntrack/conntrack.h"
#include "limit/known.h"
#include "packet/answer_ip.h"
#include "packet/siphash.h"
#include "protocol/sctp_packet.h"
#include "sctp/paths.h"

#define SCTP_HEARTBEAT_INFO 1 /* type of a parameter */
#define SCTP_PROOF_MAGIC 0x626c786c

/* How many further addresses of an association are proven at a time. A client with any number of
 * addresses (IPv6) would otherwise evict the rows of all other associations. */
#define SCTP_PROVEN_ADDRESSES 8

/* HEARTBEAT, or HEARTBEAT ACK. */
struct sctp_proof {
	__u8 type;
	__u8 flags;
	__be16 length;
	struct sctp_parameter info;
	__u32 magic;
	__u32 hash[2];
};

/* Makes the proof for a packet's address. It holds for its association only. */
static __noinline void sctp_proof_make(const struct packet *p,
				       struct sctp_proof *proof, __u8 type)
{
	const struct secret_keys *secret = secrets_get();
	const __u32 ports = p->tuple.sport | (__u32)p->tuple.dport << 16;
	struct siphash s;
	__u64 hash;

	siphash_begin(&s, &secret->challenge);
	siphash_word(&s, ip_addr_high(&p->tuple.saddr));
	siphash_word(&s, ip_addr_low(&p->tuple.saddr));
	siphash_word(&s, (__u64)p->ack << 32 | ports);
	hash = siphash_end(&s, 24);
	proof->type = type;
	proof->flags = 0;
	proof->length = bpf_htons(sizeof(*proof));
	proof->info.type = bpf_htons(SCTP_HEARTBEAT_INFO);
	proof->info.length = bpf_htons(
		sizeof(*proof) - __builtin_offsetof(struct sctp_proof, info));
	proof->magic = SCTP_PROOF_MAGIC;
	proof->hash[0] = hash;
	proof->hash[1] = hash >> 32;
}

/* Reports whether a packet answers a HEARTBEAT of this machine, or of another node. *valid:
 * by the right hash. */
static __noinline bool sctp_is_proof(ctx_t *ctx, const struct packet *p,
				     bool *valid)
{
	struct sctp_proof got, want;

	if (p->seq_end != SCTP_HEARTBEAT_ACK ||
	    bpf_skb_load_bytes(ctx, p->l4 + sizeof(struct sctp_header), &got,
			       sizeof(got)))
		return false;
	sctp_proof_make(p, &want, SCTP_HEARTBEAT_ACK);
	*valid = got.hash[0] == want.hash[0] && got.hash[1] == want.hash[1];
	return got.length == want.length && got.info.type == want.info.type &&
	       got.info.length == want.info.length && got.magic == want.magic;
}

/* Reports whether a packet of an association's own entry answers a HEARTBEAT of this machine: the
 * client's route has changed meanwhile. */
static __always_inline bool sctp_is_stray_proof(ctx_t *ctx,
						const struct packet *p)
{
	bool valid;

	return unlikely(p->seq_end == SCTP_HEARTBEAT_ACK) &&
	       sctp_is_proof(ctx, p, &valid);
}

/* Sets p->seq to the tag of packets to the client, which may be unknown (0) until COOKIE ACK, and
 * marks the entries, so sctp_is_stray_proof() is asked. Returns false, and changes nothing, if the
 * packet has another tag than its association: such a packet moves no answers. */
static __noinline bool sctp_prepare_challenge(struct packet *p)
{
	const struct connection *peer;
	struct connection *c;

	sctp_enter_path(p);
	c = entry_find(&p->tuple);
	sctp_leave_path(p);
	peer = c && sctp_has_tag(p, c) ? connection_peer(c, IPPROTO_SCTP) :
					 NULL;
	if (!peer)
		return false;
	sctp_mark_paths(c);
	p->seq = peer->ack;
	return true;
}

/* Reports whether an address of the association with s->key has proven itself. s->key is then the
 * key of its row, or of the row to replace. */
static __noinline bool sctp_find_proof(struct sctp_scratch *s, void *paths,
				       const struct ip_addr *address)
{
	const __u32 first = bpf_ntohl(address->word[3]);
	const struct sctp_path *row;

	NO_UNROLL
	for (__u32 i = 0; i < SCTP_PROVEN_ADDRESSES; i++) {
		s->key.client.word[3] = 1 + (first + i) % SCTP_PROVEN_ADDRESSES;
		row = bpf_map_lookup_elem(paths, &s->key);
		if (!row)
			return false;
		if (same_addr(&row->client, address))
			return true;
	}
	return false;
}

/* Judges a packet that sctp_find_association() has found. CONTINUE: its client has proven its
 * address, or no answer follows from it. */
static __noinline enum verdict sctp_judge_address(ctx_t *ctx, struct packet *p)
{
	struct sctp_scratch *s = sctp_scratch_get();
	void *paths = lazy_hash_get(&sctp_paths);
	bool answers, known, valid = false;

	if (!s || !paths)
		return VERDICT_CONTINUE;
	answers = sctp_is_proof(ctx, p, &valid);
	if (!answers && same_addr(&p->tuple.saddr, &s->path.client))
		return VERDICT_CONTINUE;
	known = sctp_find_proof(s, paths, &p->tuple.saddr);
	if (answers && valid && !known) {
		s->path.client = p->tuple.saddr;
		bpf_map_update_elem(paths, &s->key, &s->path, BPF_ANY);
	}
	if (unlikely(answers || (!known && sctp_are_tags_guessed(s, p->now))))
		return drop(p, DROP_UNPROVEN_ADDRESS);
	if (known || sctp_is_last(p) || !sctp_prepare_challenge(p))
		return VERDICT_CONTINUE;
	return p->seq ? drop_and_answer(p, DROP_UNPROVEN_ADDRESS,
					ANSWER_REFUSE) :
			drop(p, DROP_UNPROVEN_ADDRESS);
}

/* Rewrites a packet into the HEARTBEAT that asks its sender for a proof. */
static __noinline bool sctp_challenge(ctx_t *ctx, struct packet *p)
{
	struct {
		struct sctp_header h;
		struct sctp_proof proof;
	} a = {
		.h.ports = p->tuple.dport | (__u32)p->tuple.sport << 16,
		.h.tag = bpf_htonl(p->seq),
	};

	sctp_proof_make(p, &a.proof, SCTP_HEARTBEAT);
	return sctp_answer(ctx, p, &a.h, sizeof(a));
}
#else
static __always_inline bool sctp_challenge(ctx_t *ctx, struct packet *p)
{
	return false;
}
#endif

#endif
