/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * rule_count.h - the number of firewall rules and of IPsec policies. Packets pay
 * nothing for them while there are none.
 */
#ifndef LOXILB_RULE_COUNT_H
#define LOXILB_RULE_COUNT_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Written by user, after the rules. */
volatile __u32 rule_count SEC(".data.runtime") = 0;

/* Number of rules that translate sources. With such rules, packets of any address may
 * belong to a connection (foreign.h). */
volatile __u32 snat_rules SEC(".data.runtime") = 0;

/* How many IPsec policies the packet path checks (ipsec.h). Written by user, after
 * the policies. */
volatile __u32 ipsec_count SEC(".data.runtime") = 0;

#endif
