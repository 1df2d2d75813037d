/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * state.h - the state word of an entry: flags, hop, traits and generation.
 *
 * The row of a removed entry may get the next entry at once, while a packet on another
 * CPU still holds a pointer to it: there is no grace period. So anything that must not
 * reach another connection's entry is written by a compare-and-swap from a word that
 * was read before: the generation distinguishes the two.
 *
 * A packet reads the word first, and then the data for its decision. So the swap fails
 * if the row was reused in between, except once in 256: the next entry may have the
 * same number by chance (docs/adr/0003-connection-tracking.md describes the effect).
 */
#ifndef LOXILB_STATE_H
#define LOXILB_STATE_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include "abi.h"
#include "packet/packet.h"

#define STATE_ENDED STATE_TRAIT(CONN_ENDED)
/* The connection has ended, and no CPU is about to delete the entry
 * (entry_mark_leftover()). */
#define STATE_LEFTOVER (STATE_TRAIT(CONN_ENDED | CONN_RESTING) | CONN_RESET)
#define STATE_TRAITS STATE_TRAIT(0xff)
#define STATE_SENT_RST STATE_TRAIT(CONN_SENT_RST)
#define STATE_OTHER_SYN STATE_TRAIT(CONN_OTHER_SYN)
#define STATE_OTHER_SYN_SHIFT (STATE_TRAITS_SHIFT + 5)
#define STATE_TCP (STATE_SENT_RST | STATE_OTHER_SYN)
#define STATE_HOP (0xffU << STATE_HOP_SHIFT)

/* How often a swap is tried. It fails when another CPU concurrently adds a bit to the
 * same entry, and there are few bits to add. */
#define STATE_ATTEMPTS 4

static __always_inline __u32 state_read(const struct connection *c)
{
	return *(const volatile __u32 *)&c->flags;
}

/* Reads the word after all earlier reads, even on CPUs that reorder reads: an addition
 * with a result is a full barrier, and BPF before v4 has no cheaper one. */
static __always_inline __u32 state_read_after(struct connection *c)
{
	return __sync_fetch_and_add((__u32 *)&c->flags, 0);
}

/* state_read() without an order of reads. */
static __always_inline __u32 state_peek(const struct connection *c)
{
	return *(const __u32 *)&c->flags;
}

static __always_inline bool state_is_leftover(__u32 word)
{
	return (word & STATE_LEFTOVER) == STATE_LEFTOVER;
}

/* Reports whether both words belong to the same connection. A CPU numbers the
 * connections that it opens modulo 256, so words of two connections agree once in 256.
 */
static __always_inline bool state_is_same_generation(__u32 a, __u32 b)
{
	return !((a ^ b) >> STATE_GENERATION_SHIFT);
}

/* Reports whether these are the words of the two entries of one connection, neither
 * of which has ended, is being moved (grow.h), or is reused by another connection. */
static __always_inline bool states_are_of_pair(__u32 a, __u32 b)
{
	return !((a | b) & STATE_ENDED) && state_is_same_generation(a, b);
}

/* Returns the next generation, alone in a word. */
static __always_inline __u32 state_next_generation(__u32 word)
{
	return ((word >> STATE_GENERATION_SHIFT) + 1) << STATE_GENERATION_SHIFT;
}

/* Reports whether the entry still belongs to the connection whose word was read.
 * Atomic, so that all earlier writes to the entry are visible to others before. */
static __always_inline bool state_is_current(struct connection *c, __u32 word)
{
	return state_is_same_generation(
		__sync_fetch_and_or((__u32 *)&c->flags, 0), word);
}

/* Clears and sets bits of an entry, if it still belongs to the connection whose word
 * was read, and this has not ended. Returns the replaced word; with CONN_ENDED, none
 * was replaced. Global (verifier: globals). */
__noinline __maybe_unused __u32 state_change(struct connection *c, __u32 word,
					     __u32 clear, __u32 set)
{
	if (!c) /* verifier: null */
		return STATE_ENDED;
	for (int i = 0; i < STATE_ATTEMPTS; i++) {
		__u32 next = (word & ~clear) | set, found;

		if (word & STATE_ENDED)
			break;
		found = __sync_val_compare_and_swap((__u32 *)&c->flags, word,
						    next);
		if (found == word)
			return word;
		if (!state_is_same_generation(found, word))
			break;
		word = found;
	}
	return word | STATE_ENDED;
}

/* Sets bits in both entries of a connection, first in the client's. The words are as in
 * state_change(). */
static __always_inline void state_add_both(struct connection *client,
					   __u32 client_word,
					   struct connection *reply,
					   __u32 reply_word, __u32 set)
{
	state_change(client, client_word, 0, set);
	state_change(reply, reply_word, 0, set);
}

#endif
