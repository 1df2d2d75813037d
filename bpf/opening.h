/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * opening.h - a new connection in the making: what the steps of opening one know
 * of it and hand on. In a map, since it would not fit the stack: 512 bytes are
 * all that the deepest chain of calls has.
 */
#ifndef LOXILB_OPENING_H
#define LOXILB_OPENING_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

/* How loaded an endpoint is: connections for its weight. */
struct load {
	__u64 active;
	__u64 weight; /* 0: of no endpoint that takes connections */
};

struct opening {
	struct service service; /* a copy */
	__u32 endpoint; /* the one chosen; valid iff the choice is made */
	bool reopened; /* its entries were there; valid iff one was opened */
	bool outwards; /* from an endpoint; then remote is valid, and endpoint the one that opens */
	struct endpoint remote; /* what it opens towards */
	struct persist_key client; /* valid iff ALGORITHM_PERSIST */
	__u32 place; /* of the least loaded slot so far; valid with it */
	struct load least; /* its load; valid iff ALGORITHM_LC */
	struct ip_addr
		source; /* of packets to the endpoint: the client's, or ours */
	__be16 source_port;
	__u16 pad;
	struct connection_key key; /* of the entry of replies */
	struct connection_key own; /* of the client's entry */
	struct connection entry; /* that, and then the one of the client's */
	__u32 hop; /* enum verdict: of the way of the client's packets; valid iff its entry is made */
	struct snat_pair pair; /* valid iff a source of ours is searched */
	struct bpf_sock_tuple socket; /* the same */
	__u32 start; /* its port: SNAT_FIRST_PORT + start + i * stride */
	__u32 stride;
	__s32 err;
};

/* 0 -> the new connection in the making on this CPU: it would not fit the
 * stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct opening);
} openings SEC(".maps");

static __always_inline struct opening *opening_of_this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&openings, &zero);
}

#endif
