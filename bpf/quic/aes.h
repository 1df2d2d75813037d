/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * aes.h - AES-128 (FIPS 197), a block at a time.
 *
 * Before Linux 6.10, the kernel has no function for programs. A round looks up a word
 * for each byte of the block, which combines SubBytes and MixColumns; user space makes
 * the tables and the keys of the rounds. A block takes about 1,900 instructions. The
 * inverse cipher is the equivalent one, so both have the same rounds.
 */
#ifndef LOXILB_AES_H
#define LOXILB_AES_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "packet/packet.h"

#define AES_ROUNDS 10

/* A block, as a little-endian machine reads its bytes. */
struct aes_block {
	__u32 column[4];
};

/* 0 -> struct quic_aes. Written by user before the programs are in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct quic_aes);
} quic_aes_tables SEC(".maps");

/* Returns byte i of a word, bounded right before its use (verifier: bounds). */
static __always_inline __u64 aes_byte(__u32 word, int i)
{
	__u64 byte = word >> (8 * i);

	asm volatile("" : "+r"(byte));
	return byte & 0xff;
}

static __always_inline __u32 aes_rotate(__u32 word, int bytes)
{
	return bytes ? word << (8 * bytes) | word >> (32 - 8 * bytes) : word;
}

/* Returns column i after a round. step: distance between the columns of two rows'
 * bytes. */
static __always_inline __u32 aes_mix(const __u32 *table,
				     const struct aes_block *b, int i,
				     const int step)
{
	__u32 mixed = 0;

#pragma clang loop unroll(full)
	for (int row = 0; row < 4; row++) {
		__u32 from = b->column[(i + row * step) % 4];

		mixed ^= aes_rotate(table[aes_byte(from, row)], row);
	}
	return mixed;
}

/* Returns column i after the last round, which does not mix. */
static __always_inline __u32 aes_substitute(const __u8 *box,
					    const struct aes_block *b, int i,
					    const int step)
{
	__u32 word = 0;

#pragma clang loop unroll(full)
	for (int row = 0; row < 4; row++) {
		__u32 from = b->column[(i + row * step) % 4];

		word |= (__u32)box[aes_byte(from, row)] << (8 * row);
	}
	return word;
}

/* Does all rounds. Columns are unrolled, or they would be in memory. */
static __always_inline void aes_run(struct aes_block *block, const __u32 *keys,
				    const __u32 *table, const __u8 *box,
				    const int step)
{
	struct aes_block b = *block, next;

#pragma clang loop unroll(full)
	for (int i = 0; i < 4; i++)
		b.column[i] ^= keys[i];
	NO_UNROLL
	for (int round = 1; round < AES_ROUNDS; round++) {
#pragma clang loop unroll(full)
		for (int i = 0; i < 4; i++)
			next.column[i] = aes_mix(table, &b, i, step) ^
					 keys[4 * round + i];
		b = next;
	}
#pragma clang loop unroll(full)
	for (int i = 0; i < 4; i++)
		block->column[i] = aes_substitute(box, &b, i, step) ^
				   keys[4 * AES_ROUNDS + i];
}

/* Encrypts a block by the keys of a configuration. Global (verifier: globals). */
__noinline int aes_encrypt(struct aes_block *b, const struct quic_config *c)
{
	__u32 zero = 0;
	const struct quic_aes *t = bpf_map_lookup_elem(&quic_aes_tables, &zero);

	if (b && c && t) /* verifier: null */
		aes_run(b, c->keys, t->forward, t->forward_box, 1);
	return 0;
}

/* Decrypts a block. */
__noinline int aes_decrypt(struct aes_block *b, const struct quic_config *c)
{
	__u32 zero = 0;
	const struct quic_aes *t = bpf_map_lookup_elem(&quic_aes_tables, &zero);

	if (b && c && t) /* verifier: null */
		aes_run(b, c->keys, t->inverse, t->inverse_box, 3);
	return 0;
}

#endif
