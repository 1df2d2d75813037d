/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * sctp_crc.h - CRC32c, SCTP's checksum (RFC 9260 appendix A).
 *
 * It is linear: when the first word of a packet changes by d (exclusive or), the
 * checksum changes by the CRC of d followed by zeros, d * x^(8 * length) modulo the
 * polynomial. User space computes the powers of x in advance. One multiplication
 * without carries then costs the same for every length, a tenth of the time that
 * reading 1,500 bytes takes (docs/adr/0093-sctp.md). Like an incremental sum, it does
 * not hide earlier damage of a packet.
 */
#ifndef LOXILB_SCTP_CRC_H
#define LOXILB_SCTP_CRC_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"

#if ONLY_SCTP
/* 0 -> struct sctp_crc. Written by user before the programs are in use. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sctp_crc);
} sctp_crcs SEC(".maps");

static __always_inline const struct sctp_crc *sctp_crc_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sctp_crcs, &zero);
}
#else
static __always_inline const struct sctp_crc *sctp_crc_get(void)
{
	return NULL;
}
#endif

/* Returns a row of a table by the lowest byte of i. The register is bounded right before its
 * use (verifier: bounds). */
static __always_inline __u32 sctp_crc_row(const __u32 *table, __u32 i)
{
	__u64 row = i;

	asm volatile("" : "+r"(row));
	row &= 0xff;
	return table[row];
}

/* Every fourth bit, from bit i on. */
#define EVERY_FOURTH(i) (0x1111111111111111ULL << (i))

/* Multiplies without carries. Ordinary products of numbers with every fourth bit add at
 * most 8 ones in a place, whose carries end before the next one. */
static __always_inline __u64 carryless_product(__u64 a, __u64 b)
{
	const __u64 a0 = a & EVERY_FOURTH(0), a1 = a & EVERY_FOURTH(1),
		    a2 = a & EVERY_FOURTH(2), a3 = a & EVERY_FOURTH(3),
		    b0 = b & EVERY_FOURTH(0), b1 = b & EVERY_FOURTH(1),
		    b2 = b & EVERY_FOURTH(2), b3 = b & EVERY_FOURTH(3);
	const __u64 p0 = (a0 * b0) ^ (a1 * b3) ^ (a2 * b2) ^ (a3 * b1),
		    p1 = (a0 * b1) ^ (a1 * b0) ^ (a2 * b3) ^ (a3 * b2),
		    p2 = (a0 * b2) ^ (a1 * b1) ^ (a2 * b0) ^ (a3 * b3),
		    p3 = (a0 * b3) ^ (a1 * b2) ^ (a2 * b1) ^ (a3 * b0);

	return (p0 & EVERY_FOURTH(0)) | (p1 & EVERY_FOURTH(1)) |
	       (p2 & EVERY_FOURTH(2)) | (p3 & EVERY_FOURTH(3));
}

/* Returns by how much the checksum changes when the first word of a packet of this many
 * bytes changes by d. length: a multiple of 4, less than 65,536. The upper half of the
 * product is reduced already; the lower half is a word that 4 bytes follow. */
static __always_inline __u32 sctp_crc_change(const struct sctp_crc *t, __u32 d,
					     __u32 length)
{
	__u64 words = length / 4, product;
	__u32 low;

	asm volatile("" : "+r"(words)); /* verifier: bounds */
	words &= SCTP_CRC_WORDS - 1;
	product = carryless_product(d, t->power[words]) << 1;
	low = product;
	return (__u32)(product >> 32) ^ sctp_crc_row(t->shift[0], low) ^
	       sctp_crc_row(t->shift[1], low >> 8) ^
	       sctp_crc_row(t->shift[2], low >> 16) ^
	       sctp_crc_row(t->shift[3], low >> 24);
}

/* Returns the checksum of a short packet whose own field is 0. */
static __always_inline __u32 sctp_crc_of(const struct sctp_crc *t,
					 const __u8 *packet, const __u32 length)
{
	__u32 crc = ~0U;

	for (__u32 i = 0; i < length; i++)
		crc = crc >> 8 ^ sctp_crc_row(t->byte, crc ^ packet[i]);
	return ~crc;
}

#endif
