/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * timer.h - frees expired connections while neither user space sweeps nor packets open
 * connections.
 *
 * Packets that open connections free expired ones in place of a killed daemon
 * (reclaim.h). That alone is too late for limits and least connections: after a quiet
 * night, thousands of packets would be counted among connections that are over. So a
 * timer of the kernel visits some buckets a hundred times a second. It belongs to a
 * pinned map, and ends with it. The next daemon of any version replaces the timer's
 * program.
 */
#ifndef LOXILB_TIMER_H
#define LOXILB_TIMER_H

#include "conntrack/reclaim.h"

#define CLOCK_MONOTONIC 1

/* How long the timer waits while user space sweeps, and while it does not, in ns. */
#define TIMER_IDLE 1000000000ULL
#define TIMER_BUSY 10000000ULL

/* How many buckets it visits at a time: in 30 to 100 us, at most 1 % of a CPU. A pass
 * through the table of a million connections takes 20 to 30 s. */
#define TIMER_BUCKETS 32

struct reclaim_timer {
	struct bpf_timer timer;
};

/* 0 -> the timer. Pinned, so it runs after user space has ended. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reclaim_timer);
} reclaim_timers SEC(".maps");

static int timer_run(void *map, __u32 *key, struct reclaim_timer *t)
{
	int freed = 0;

	if (!sweep_is_late((__u32)bpf_jiffies64())) {
		bpf_timer_start(&t->timer, TIMER_IDLE, 0);
		return 0;
	}
	NO_UNROLL
	for (int n = 0; n < TIMER_BUCKETS && freed < RECLAIM_FREED; n++)
		freed += reclaim_bucket();
	bpf_timer_start(&t->timer, TIMER_BUSY, 0);
	return 0;
}

/* Starts the timer, or replaces the program of a running one. Returns 0 or an error. */
static __always_inline int timer_begin(void)
{
	__u32 zero = 0;
	struct reclaim_timer *t = bpf_map_lookup_elem(&reclaim_timers, &zero);
	int err;

	if (!t)
		return -ENOENT;
	err = bpf_timer_init(&t->timer, &reclaim_timers, CLOCK_MONOTONIC);
	if (err && err != -EBUSY) /* -EBUSY: it runs */
		return err;
	err = bpf_timer_set_callback(&t->timer, timer_run);
	return err ? err : bpf_timer_start(&t->timer, TIMER_IDLE, 0);
}

#endif
