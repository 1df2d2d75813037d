/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * probe_answers.h - recognizes answers to probes that were redirected to a VIP
 * (probe.bpf.c), which records them. No socket of this machine is connected to the VIP,
 * so firewall rules (firewall.h) know them only by this.
 */
#ifndef LOXILB_PROBE_ANSWERS_H
#define LOXILB_PROBE_ANSWERS_H

#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "packet/clock.h"

/* The endpoint of an answer, and how long to wait for it. */
struct probe_answer {
	struct ip_addr endpoint;
	__u32 seen; /* when the probe last sent */
	__u32 wait; /* how long to wait, in jiffies */
};

/* 0 -> answer, as it arrives -> its endpoint. Written by probe_out, read by probe_in
 * and by firewall rules. Made with the first such probe, and not pinned. */
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

/* Keeps the type of rows in each object's BTF, as inner_rows in maps.h does. */
const struct {
	struct connection_key key;
	struct probe_answer answer;
} probe_types = {};

static __always_inline void *probe_answers_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&probe_answers, &zero);
}

/* Returns the row of an expected answer, or NULL. */
static __always_inline const struct probe_answer *
probe_answer_find(const struct connection_key *answer, __u32 now)
{
	void *rows = probe_answers_get();
	const struct probe_answer *a =
		rows ? bpf_map_lookup_elem(rows, answer) : NULL;

	return a && jiffies_within(a->seen, now, a->wait) ? a : NULL;
}

#endif
