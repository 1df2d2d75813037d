/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * shared.h - the variables that the programs at tc and XDP have in common: one
 * section of one layout, so they stand in one file.
 */
#ifndef LOXILB_SHARED_H
#define LOXILB_SHARED_H

#include "abi.h"
#include "surge.h"

/* Challenges (syn_flood.h). What one has challenged, the other takes the answer
 * of. */
struct surge challenge_surge SEC(".data.shared") = {};

/* What is traced (trace.h). Written by user. */
struct trace_filter trace_filters[MAX_TRACES] SEC(".data.shared") = {};

/* Until when (jiffies) somebody traces: user moves it on as long as somebody does, so
 * that programs which a process that was killed has left behind copy nothing. */
volatile __u32 trace_until SEC(".data.shared") = 0;

/* The most packets from one that is looked at to the next, in parts of a packet: any
 * number up to that is as likely, so that nothing that repeats is always met, or
 * never. */
volatile __u32 trace_turn_most SEC(".data.shared") = 0;
struct trace_turn trace_turns[TRACE_CPUS] SEC(".data.shared") = {};

#endif
