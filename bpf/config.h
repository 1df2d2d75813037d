/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * config.h - load-time constants. User space sets them before loading; the
 * verifier then removes the branches that they make unreachable.
 *
 * Times are in jiffies (user space multiplies by CONFIG_HZ), since the packet
 * path reads the clock with bpf_jiffies64, which is inlined: 3 ns against 35
 * for bpf_ktime_get_ns on a virtual machine.
 */
#ifndef LOXILB_CONFIG_H
#define LOXILB_CONFIG_H

#include <linux/bpf.h>
#include <linux/types.h>
#include <bpf/bpf_helpers.h>

/* Whether this is a program of SCTP packets, which the other programs call (tc.bpf.c).
 * It is compiled from the same sources; a constant, so that the compiler removes TCP
 * and UDP from it, and SCTP from the others. Set by the compiler's -D
 * (internal/kernel/datapath/bpf/gen.go). */
#ifndef ONLY_SCTP
#define ONLY_SCTP 0
#endif

/* Whether this is a program that opens connections of QUIC (open/open_quic.h). */
#ifndef ONLY_QUIC
#define ONLY_QUIC 0
#endif

/* Whether this is a program of connections with a header of the PROXY protocol: it handles all
 * their segments but SYNs of clients (proxy/). */
#ifndef ONLY_PROXY
#define ONLY_PROXY 0
#endif

const volatile __u32 hz = 250;

/* Bytes from the start of a value in the maps of the connection table to the next cache
 * line: a multiple of 8. */
const volatile __u32 table_skew = 0;

/* Timeouts, in jiffies. A source port is in quarantine for timeout_snat_rest after
 * its connection. */
const volatile __u32 timeout_tcp_established = 7440 * 250;
const volatile __u32 timeout_tcp_syn = 60 * 250;
const volatile __u32 timeout_tcp_closing = 120 * 250;
const volatile __u32 timeout_tcp_closed = 10 * 250;
const volatile __u32 timeout_snat_rest = 30 * 250;
const volatile __u32 timeout_udp_unreplied = 30 * 250;
const volatile __u32 timeout_udp_replied = 300 * 250;

/* Percentage of the connection table that may be half-open, for TCP and for all
 * others each; 0: unlimited, and no timeouts shrink (pressure.h). */
const volatile __u32 half_open_percent = 0;

/* Timeouts while there is pressure (pressure.h). */
const volatile __u32 timeout_half_open_pressed = 3 * 250;
const volatile __u32 timeout_closed_pressed = 1 * 250;
const volatile __u32 timeout_snat_rest_pressed = 3 * 250;

/* How long a client stays known after it has proven that it exists. */
const volatile __u32 timeout_known = 600 * 250;

/* Read ip_summed if the kernel has the kfunc for it. Off in tests that simulate kernels
 * before 6.2. */
const volatile __u8 kfuncs = 1;
/* Key of the hash that chooses a flow's slot. Machines that must choose the same
 * endpoint for a flow have the same key. */
const volatile __u64 hash_seed = 0;

/* Nodes of a cluster that share source addresses take ports of different stripes: every
 * 2^port_stripe_bits-th port, from the port_stripe-th on. 0: all ports are this
 * machine's. */
const volatile __u32 port_stripe_bits = 0;
const volatile __u32 port_stripe = 0;

const volatile __u32 timeout_fragment = 30 * 250;

/* How many ICMP errors the load balancer may send per second and CPU; also the size
 * of a burst. */
const volatile __u32 icmp_rate = 1000;

/* How many RSTs it may send per second and CPU to segments without a connection. Enough to
 * notify the clients of a lost table soon, at 2 % of a CPU. */
const volatile __u32 reset_rate = 10000;

/* How many TCP connections per second end by RSTs to both ends after being silent for
 * too long; the others end silently. idle_ends has room for as many. */
const volatile __u32 idle_rst_rate = 0;

/* Use bpf_redirect_peer where a link allows it. */
const volatile __u8 redirect_peer = 1;

/* Check whether IPsec has decrypted a packet: set if the kernel has IPsec and a
 * helper to find out. */
const volatile __u8 sees_ipsec = 0;

/* Always check whether a packet is foreign before its connection is looked up. Set in
 * tests. */
const volatile __u8 foreign_first = 0;

/* Always decide whether to challenge a SYN before its connection is looked up. Set in
 * tests. */
const volatile __u8 challenge_first = 0;

#endif
