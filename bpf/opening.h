/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * opening.h - the state of opening one connection, which the steps hand on. It is
 * in a map, since it does not fit the stack: the deepest chain of calls has 512
 * bytes in all.
 */
#ifndef LOXILB_OPENING_H
#define LOXILB_OPENING_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"

/* How loaded an endpoint is: active connections for its weight. */
struct load {
	__u64 active;
	__u64 weight; /* 0: the endpoint takes no connections */
};

struct opening {
	struct service service; /* a copy: the row may be replaced meanwhile */
	__u32 endpoint; /* index of the chosen one; valid iff the choice is made */
	__u8 generation; /* of the last connection that this CPU has opened */
	bool egress; /* an endpoint opens it: egress_peer is valid, and endpoint is the one that opens */
	struct endpoint
		egress_peer; /* the destination, in the form of an endpoint */
	struct persist_key client; /* valid iff ALGORITHM_PERSIST */
	__u32 least_position; /* of the least loaded slot so far, in the service's table */
	struct load least_load; /* its load; both valid iff ALGORITHM_LC */
	struct ip_addr
		source; /* of packets to the endpoint: the client's, or an address of ours */
	__be16 source_port;
	__u16 pad;
	struct connection_key reply_key; /* key of the reply entry */
	struct connection_key client_key; /* key of the client's entry */
	struct connection entry; /* the reply entry, then the client's */
	__u32 hop_verdict; /* enum verdict: what next_hop_prepare() said of the first packet; valid iff the client's entry is made */
	/* The search for a source address and port of ours. Probe i is for port
	 * SNAT_FIRST_PORT + (first_probe + i * probe_stride) % SNAT_PORTS. */
	struct snat_pair snat_pair;
	struct bpf_sock_tuple snat_socket;
	__u32 first_probe;
	__u32 probe_stride;
	__s32 snat_err; /* of the last step */
	bool keeps_ports; /* the source is an address of this machine, whose sockets have ports that are not ours */
};

/* 0 -> the connection that this CPU opens. Written and read by the packet path
 * and the socket hooks. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct opening);
} openings SEC(".maps");

static __always_inline struct opening *opening_get(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&openings, &zero);
}

#endif
