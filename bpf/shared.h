/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * shared.h - the variables that the programs at tc and XDP share: one section with one
 * layout, so they are in one file.
 */
#ifndef LOXILB_SHARED_H
#define LOXILB_SHARED_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>
#include <stddef.h>
#include "abi.h"
#include "filter/surge.h"
#include "packet/address.h"
#include "packet/packet.h"

/* Challenges (syn_flood.h). Each program handles answers to challenges of the other. */
struct surge challenge_surge SEC(".data.shared") = SURGE_NEVER;

/* The filters of tracers (trace.h). Written by user. */
struct trace_filter trace_filters[MAX_TRACES] SEC(".data.shared") = {};

/* End of tracing, in jiffies. User extends it regularly, so programs of a killed
 * process soon stop copying packets. */
volatile __u32 trace_until SEC(".data.shared") = 0;

/* The largest distance from one sampled packet to the next, in fractions of a packet.
 * All distances up to it are equally likely, so that periodic packets are neither
 * always sampled nor never. */
volatile __u32 trace_turn_most SEC(".data.shared") = 0;
struct trace_turn trace_turns[TRACE_CPUS] SEC(".data.shared") = {};

/* By endpoint id: outcomes of connections. Written by the programs at tc and by
 * loxilb_judge, atomically; read by user as memory. In a section, as programs can
 * have only 64 maps. */
struct endpoint_outcomes outcomes[OUTCOME_ROWS] SEC(".data.shared") = {};

/* Sampled connections (sample.h). Taken by the programs at tc, released by
 * loxilb_judge. */
struct connection_sample samples[SAMPLES] SEC(".data.shared") = {};

/* Returns the row of an endpoint, or NULL. */
static __always_inline struct endpoint_outcomes *outcomes_find(__u32 endpoint)
{
	if (endpoint >= OUTCOME_ROWS)
		return NULL;
	asm volatile("" : "+r"(endpoint)); /* verifier: bounds */
	return &outcomes[endpoint & (OUTCOME_ROWS - 1)];
}

/* Returns 32 bits that identify a client: an address, for IPv6 a network of 64 bits. */
static __always_inline __u32 client_hash(const struct ip_addr *client)
{
	__u64 part = is_mapped_ipv4(client) ? ip_addr_low(client) :
					      ip_addr_high(client);

	return part * HASH_FACTOR >> 32;
}

/* When user space sweeps the connection table next, in jiffies; 0: no promise.
 * Written by user, and by reclaim.h once the promise is broken. */
volatile __u32 sweep_due SEC(".data.shared") = 0;

/* The longest promise. A due time that is further away is from before jiffies wrapped
 * around. */
#define SWEEP_PROMISE_MAX (1U << 20)

/* Until when source ports are short, in jiffies (port_pressure.h). Written by the
 * programs at tc; read by user. */
volatile __u32 port_pressure_until SEC(".data.shared") = 0;

/* By the lower bits of a service's id: the service in the upper half, and in the
 * lower half the jiffies until which its clients are challenged. Two services may
 * share a place; then snat.h challenges the clients of the earlier one. */
volatile __u64 port_pressures[PORT_PRESSURES] SEC(".data.shared") = {};

/* The pass through the table that packets make in place of the sweep. */
struct reclaim_pass reclaim_pass SEC(".data.shared") = {};

/* A bit for each watcher of connection events. Written by user; read when a connection is
 * opened, assured, closing or ended. */
volatile __u32 watchers_now SEC(".data.shared") = 0;

/* Reports whether user space has broken its promise to sweep. */
static __always_inline bool sweep_is_late(__u32 now)
{
	__u32 due = sweep_due;

	return due && due - now > SWEEP_PROMISE_MAX;
}

#endif
