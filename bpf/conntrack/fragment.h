/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * fragment.h - fragments of IP packets (RFC 791, RFC 8200 section 4.5).
 *
 * Only the first fragment has ports. It is balanced like any packet, and leaves a
 * record by which later fragments find its connection. Nothing is reassembled: the
 * receiver sees gaps and overlaps, and refuses them. A fragment that arrives before the
 * first one is dropped, not held: attackers could fill the memory for held fragments,
 * and senders send the first fragment first.
 *
 * A record ends when all bytes have been seen, after 30 s, or when its place is needed:
 * the map evicts the least recently used records. A source may begin only a limited
 * number of datagrams without completing them, so that it cannot take all records
 * (docs/adr/0012-ip-versions.md).
 */
#ifndef LOXILB_FRAGMENT_H
#define LOXILB_FRAGMENT_H

#include <linux/errno.h>
#include "conntrack/conntrack.h"
#include "conntrack/direct.h"
#include "conntrack/expiry.h"
#include "packet/clock.h"
#include "parse/parse.h"
#include "table/bucket.h"

/* Length of a TCP header without options. A later fragment must not overlap it
 * (RFC 1858, RFC 3128). */
#define FRAGMENT_TCP_HEADER 20

static __always_inline void fragment_make_key(const struct packet *p,
					      struct fragment_key *key)
{
	key->saddr = p->tuple.saddr;
	key->daddr = p->tuple.daddr;
	key->id = p->fragment_id;
	/* IPv6: the next header of a later fragment may be that of an extension
	 * header */
	key->protocol = p->ipv6 ? 0 : p->tuple.protocol;
	__builtin_memset(key->pad, 0, sizeof(key->pad));
}

static __always_inline bool fragment_expired(const struct fragment *f,
					     __u32 now)
{
	return !jiffies_within(f->since, now, timeout_fragment);
}

/* Returns the key of the budget of a datagram's source: its address, or for IPv6 its
 * /64. */
static __always_inline struct ip_addr fragment_source(const struct packet *p)
{
	struct ip_addr source = p->tuple.saddr;

	if (p->ipv6) {
		source.word[2] = 0;
		source.word[3] = 0;
	}
	return source;
}

/* Reports whether the source may begin another fragmented datagram. Not inlined: the
 * stack has no room for both keys at once. */
static __noinline bool fragment_source_begins(const struct packet *p)
{
	const struct token_bucket first = {
		.since = p->now,
		.tokens = (FRAGMENTED_PER_SOURCE - 1) * hz,
	};
	struct ip_addr source = fragment_source(p);
	struct token_bucket *b =
		bpf_map_lookup_elem(&fragment_sources, &source);

	if (b)
		return bucket_take(b, FRAGMENTED_PER_SOURCE,
				   FRAGMENTED_PER_SOURCE, p->now);
	bpf_map_update_elem(&fragment_sources, &source, &first, BPF_ANY);
	return true;
}

/* Gives the budget of a completed datagram back to its source. */
static __noinline void fragment_source_completes(const struct packet *p)
{
	struct ip_addr source = fragment_source(p);
	struct token_bucket *b =
		bpf_map_lookup_elem(&fragment_sources, &source);

	if (b && b->tokens < FRAGMENTED_PER_SOURCE * hz)
		b->tokens += hz;
}

/* Records the arrival of a fragment. Returns false if a fragment with its offset has
 * arrived before. Offsets are multiples of the first fragment's length, since all but
 * the last have the same length. Otherwise, or if there are more offsets than bits,
 * some fragments count as repeated, and the record lasts until it expires. */
static __always_inline bool fragment_is_new(const struct packet *p,
					    struct fragment *f)
{
	__u32 place = (p->fragment & ~FRAGMENT_MORE) / f->unit;
	__u64 bit = 1ULL << (place % 64);

	if (place >= FRAGMENT_PLACES)
		return false;
	return !(__sync_fetch_and_or(&f->seen[place / 64], bit) & bit);
}

/* Counts the bytes of a fragment. The record ends with the last of them. */
static __always_inline void fragment_count_bytes(const struct packet *p,
						 struct fragment_key *key,
						 struct fragment *f)
{
	__u32 offset = p->fragment & ~FRAGMENT_MORE;
	__u32 bytes = p->length - (p->l4 - p->l3);
	__u32 received;

	if (!(p->fragment & FRAGMENT_MORE))
		f->total = offset + bytes;
	if (!fragment_is_new(p, f))
		return;
	received = __sync_fetch_and_add(&f->received, bytes) + bytes;
	if (f->total && received >= f->total &&
	    !bpf_map_delete_elem(&fragments, key))
		fragment_source_completes(p);
}

/* Records the first fragment of a datagram. foreign: all of its fragments are left to
 * the kernel. */
static __noinline enum verdict fragment_record(struct packet *p, bool foreign)
{
	struct fragment_key key;
	struct fragment f = {
		.sport = p->tuple.sport,
		.dport = p->tuple.dport,
		.since = p->now,
		.seen = { 1 },
		.received = p->length - (p->l4 - p->l3),
		.unit = p->length - (p->l4 - p->l3),
		.protocol = p->tuple.protocol,
		.foreign = foreign,
	}, *old;
	int err;

	fragment_make_key(p, &key);
	old = bpf_map_lookup_elem(&fragments, &key);
	if (old && !fragment_expired(old, p->now)) {
		if (old->sport == f.sport && old->dport == f.dport &&
		    old->protocol == f.protocol)
			return VERDICT_CONTINUE;
		return drop(p, DROP_FRAGMENT_OVERLAP);
	}
	if (old)
		bpf_map_delete_elem(&fragments, &key);
	if (!fragment_source_begins(p))
		return drop(p, DROP_FRAGMENTS_FULL);
	err = bpf_map_update_elem(&fragments, &key, &f, BPF_NOEXIST);
	if (err && err != -EEXIST)
		return drop(p, DROP_NO_MEMORY);
	return VERDICT_CONTINUE;
}

/* Handles a packet in which parsing has found a fault, once it is known to belong to
 * a connection or a service. Returns CONTINUE for a first fragment, after recording
 * it. */
static __noinline enum verdict packet_handle_fault(struct packet *p)
{
	if (p->ttl <= 1 &&
	    (p->fault == DROP_FRAGMENT || p->fault == DROP_TTL_EXPIRED))
		return drop_and_answer(p, DROP_TTL_EXPIRED,
				       ANSWER_TIME_EXCEEDED);
	if (p->fault != DROP_FRAGMENT || p->later_fragment)
		return drop(p, p->fault);
	p->fault = DROP_NONE;
	return fragment_record(p, false);
}

/* Checks any packet that is known to be ours for a fault, and handles it. */
static __always_inline enum verdict packet_check_fault(struct packet *p)
{
	return likely(!p->fault) ? VERDICT_CONTINUE : packet_handle_fault(p);
}

/* Reports whether the packet is addressed to a VIP. The key is copied (verifier:
 * memory). */
static __noinline bool is_to_vip(const struct packet *p)
{
	struct ip_addr daddr = p->tuple.daddr;

	return bpf_map_lookup_elem(&vips, &daddr);
}

/* Finds the connection of a later fragment, and returns CONTINUE with *c. PASS: it is
 * left to the kernel; its ports are set if the first fragment was recorded. */
static __noinline __maybe_unused enum verdict
fragment_find_connection(struct packet *p, struct connection **c)
{
	struct fragment_key key;
	struct fragment *f;

	if (!p->ipv6 && !protocol_has_connections(p))
		return VERDICT_PASS;
	fragment_make_key(p, &key);
	f = bpf_map_lookup_elem(&fragments, &key);
	if (!f || fragment_expired(f, p->now))
		return is_to_vip(p) ? drop(p, p->fault) : VERDICT_PASS;
	p->tuple.protocol = f->protocol;
	p->tuple.sport = f->sport;
	p->tuple.dport = f->dport;
	if (f->foreign) {
		fragment_count_bytes(p, &key, f);
		return VERDICT_PASS;
	}
	if ((p->fragment & ~FRAGMENT_MORE) <
	    protocol_of(p->tuple.protocol).header)
		return drop(p, DROP_FRAGMENT_OVERLAP);
	*c = entry_or_direct_answer(p);
	if (!*c || connection_is_expired(*c, p->tuple.protocol, p->now, 0))
		return drop(p, p->fault);
	/* no ICMP error is sent about a later fragment (RFC 1122) */
	if (p->ttl <= 1)
		return drop(p, DROP_TTL_EXPIRED);
	fragment_count_bytes(p, &key, f);
	p->fault = DROP_NONE;
	return VERDICT_CONTINUE;
}

#endif
