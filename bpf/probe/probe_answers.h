/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * probe_answers.h - tells answers to probes that were led to a VIP
 * (probe.bpf.c), which notes them. No socket of this machine is connected to the
 * VIP, so firewall rules (firewall.h) know them by this alone.
 */
#ifndef LOXILB_PROBE_ANSWERS_H
#define LOXILB_PROBE_ANSWERS_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "packet/clock.h"

/* Whose answer it is, and until when one is waited for. */
struct probe_answer {
	struct ip_addr endpoint;
	__u32 seen; /* when the probe sent last */
	__u32 wait; /* for how long its answer is one, in jiffies */
};

/* 0 -> answer, as it arrives -> whose it is. Written by probe_out, read by
 * probe_in and by firewall rules. Made with the first such probe, and not pinned. */
struct probe_answer_rows {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct connection_key);
	__type(value, struct probe_answer);
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct probe_answer_rows);
} probe_answers SEC(".maps");

/* Keeps in each object's BTF what rows are made of, as inner_rows in maps.h does. */
const struct {
	struct connection_key key;
	struct probe_answer answer;
} probe_types = {};

static __always_inline void *probe_answers_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&probe_answers, &zero);
}

/* Returns the row of an answer that a probe still waits for, or NULL. */
static __always_inline const struct probe_answer *
probe_answer_find(const struct connection_key *answer, __u32 now)
{
	void *rows = probe_answers_get();
	const struct probe_answer *a =
		rows ? bpf_map_lookup_elem(rows, answer) : NULL;

	return a && jiffies_within(a->seen, now, a->wait) ? a : NULL;
}

#endif
