/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * siphash.h - SipHash-1-3 (Aumasson, Bernstein: "SipHash: a fast short-input PRF",
 * 2012): a hash that is unpredictable without its key. One round per word and three at
 * the end, as in the hash tables of Linux and Rust; the paper's 2-4 takes nearly twice
 * as long.
 *
 * Input is whole words of 8 bytes, in little-endian order.
 */
#ifndef LOXILB_SIPHASH_H
#define LOXILB_SIPHASH_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 siphash_rotate(__u64 word, const __u32 by)
{
	return word << by | word >> (64 - by);
}

static __always_inline void siphash_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v1 = siphash_rotate(s->v1, 13) ^ s->v0;
	s->v0 = siphash_rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = siphash_rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = siphash_rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = siphash_rotate(s->v1, 17) ^ s->v2;
	s->v2 = siphash_rotate(s->v2, 32);
}

static __always_inline void siphash_begin(struct siphash *s,
					  const struct siphash_key *key)
{
	s->v0 = key->first ^ 0x736f6d6570736575ULL;
	s->v1 = key->second ^ 0x646f72616e646f6dULL;
	s->v2 = key->first ^ 0x6c7967656e657261ULL;
	s->v3 = key->second ^ 0x7465646279746573ULL;
}

static __always_inline void siphash_word(struct siphash *s, __u64 word)
{
	s->v3 ^= word;
	siphash_round(s);
	s->v0 ^= word;
}

/* Returns the hash of the words so far; bytes: their total length. */
static __always_inline __u64 siphash_end(struct siphash *s, __u64 bytes)
{
	siphash_word(s, bytes << 56);
	s->v2 ^= 0xff;
	siphash_round(s);
	siphash_round(s);
	siphash_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

#endif
