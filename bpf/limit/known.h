/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * known.h - known clients: they have recently completed a handshake or answered a
 * challenge (challenge.h), which proves that they exist at their address. Under a flood
 * from forged addresses they are served first.
 *
 * A client without TCP that sends again after an answer is known for a quarter of that
 * time, and not for TCP: a forger can do as much blindly, at the price of a flow that
 * an endpoint answers. Such rows have another hash, and are replaced first.
 *
 * A client is an address, or for IPv6 a /64, which usually belongs to one client. It is
 * a row of 8 bytes in one of a few places that a keyed hash gives. No lock or removal
 * is needed: an expired row counts as free, and in a full set the row that expires
 * first is replaced. A row that two CPUs write at once has one of the two values.
 */
#ifndef LOXILB_KNOWN_H
#define LOXILB_KNOWN_H

#include <linux/in.h>
#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include "config.h"
#include "maps.h"
#include "packet/address.h"
#include "packet/packet.h"
#include "packet/siphash.h"
#include "protocol/protocol.h"

static __always_inline const struct secret_keys *secrets_get(void)
{
	const struct secret_keys *keys = &secret_value;

	asm volatile("" : "+r"(keys)); /* as table_state_get() */
	return keys;
}

/* Returns the hash of the packet's source: the second half of a mapped IPv4 address,
 * the first half of an IPv6 address. They cannot be equal, as no IPv6 network begins
 * with 0:ffff. */
static __always_inline __u64 known_hash(const struct packet *p,
					const struct secret_keys *secret)
{
	struct siphash s;

	siphash_begin(&s, &secret->known);
	siphash_word(&s, p->ipv6 ? ip_addr_high(&p->tuple.saddr) :
				   ip_addr_low(&p->tuple.saddr));
	return siphash_end(&s, 8);
}

/* Turns the hash of a source into the hash of its row of answers. */
#define KNOWN_BY_ANSWER 0x9e3779b97f4a7c15ULL

static __always_inline struct known_set *known_set_of(__u64 hash)
{
	__u32 index = hash % KNOWN_SETS;

	return bpf_map_lookup_elem(&known_clients, &index);
}

/* Returns the set of the packet's source, and its hash. */
static __always_inline struct known_set *known_set_find(const struct packet *p,
							__u64 *hash)
{
	*hash = known_hash(p, secrets_get());
	return known_set_of(*hash);
}

/* A row: the hash's upper half, and the jiffies when it ends. */
static __always_inline bool known_row_is(__u64 row, __u64 hash)
{
	return row >> 32 == hash >> 32;
}

/* Returns for how many jiffies a row is still valid; 0: it is expired. A row that seems
 * valid for longer than timeout_known is from before jiffies wrapped around. An empty
 * row would also seem valid shortly before jiffies reach 0, which they first do five
 * minutes after the boot. */
static __always_inline __u32 known_row_remaining(__u64 row, __u32 now)
{
	__u32 left = (__u32)row - now;

	return row && left <= timeout_known ? left : 0;
}

static __always_inline bool known_set_has(const struct known_set *set,
					  __u64 hash, __u32 now)
{
	for (int i = 0; i < KNOWN_WAYS; i++) {
		__u64 row = set->rows[i];

		if (known_row_is(row, hash) && known_row_remaining(row, now))
			return true;
	}
	return false;
}

/* Reports whether the packet's source is a known client. Global (verifier: globals). */
__noinline bool source_is_known(struct packet *p)
{
	struct known_set *set;
	__u64 hash;

	if (!p) /* verifier: null */
		return false;
	set = known_set_find(p, &hash);
	if (!set)
		return false;
	if (known_set_has(set, hash, p->now))
		return true;
	if (protocol_of(p->tuple.protocol).has_handshake)
		return false;
	hash ^= KNOWN_BY_ANSWER;
	set = known_set_of(hash);
	return set && known_set_has(set, hash, p->now);
}

/* Stores a row in the set for this many jiffies. A client's row is written only once a
 * second, so CPUs can share the row of a client with many connections. */
static __always_inline void known_set_put(struct known_set *set, __u64 hash,
					  __u32 now, __u32 lasts)
{
	const __u64 own = (hash >> 32) << 32 | (__u32)(now + lasts);
	__u32 least = ~0U, place = 0;

	for (int i = 0; i < KNOWN_WAYS; i++) {
		__u64 row = set->rows[i];
		__u32 left = known_row_remaining(row, now);

		if (known_row_is(row, hash)) {
			if (left + hz > lasts)
				return;
			left = 0;
		}
		if (left < least) {
			least = left;
			place = i;
		}
		if (known_row_is(row, hash))
			break;
	}
	if (least <= lasts) /* otherwise all other rows last longer */
		set->rows[place % KNOWN_WAYS] = own;
}

/* Marks the packet's source as a known client: after a handshake or a challenge or, for
 * other protocols, after a packet that follows an answer. Returns false if it could
 * not. Global (verifier: globals). */
__noinline bool source_mark_known(struct packet *p)
{
	__u32 lasts = timeout_known;
	struct known_set *set;
	__u64 hash;

	if (!p) /* verifier: null */
		return false;
	set = known_set_find(p, &hash);
	if (!set)
		return false;
	if (!protocol_of(p->tuple.protocol).has_handshake) {
		lasts /= 4;
		hash ^= KNOWN_BY_ANSWER;
		set = known_set_of(hash);
		if (!set)
			return false;
	}
	known_set_put(set, hash, p->now, lasts);
	return true;
}

#endif
