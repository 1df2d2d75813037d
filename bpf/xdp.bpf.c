// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * xdp.bpf.c - the shorter way, in front of tc.bpf.c: from driver to driver.
 *
 * It forwards packets of established TCP and UDP connections that leave as plain
 * Ethernet frames, by the entries that tc.bpf.c has made, and does to them what
 * that would do. Everything else passes, to be handled there: connections are
 * opened, closed, refused, and packets dropped and answered in one place.
 *
 * It decides first and changes then: what passes is as it came, and so is its
 * connection.
 */
#define LOXILB_XDP

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "maps.h"
#include "packet.h"
#include "ctx.h"
#include "parse.h"
#include "established.h"
#include "epoch.h"
#include "ethernet.h"
#include "nat.h"
#include "stats.h"

/* interface index -> itself, if it can send frames that XDP redirects to it.
 * Written by user. */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, MAX_LINKS);
	__type(key, __u32);
	__type(value, __u32);
} xdp_targets SEC(".maps");

/* 0 -> packets forwarded, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} xdp_forwarded SEC(".maps");

/* A packet of the connection that changes nothing but how far it has come. An
 * entry that was silent for a while may be dead. */
static __always_inline bool is_established(const struct packet *p,
					   const struct connection *c)
{
	if (connection_was_silent(p, c))
		return false;
	if (p->tuple.protocol == IPPROTO_TCP)
		return tcp_is_established(c->flags) &&
		       !(p->tcp_flags & (TCP_SYN | TCP_FIN | TCP_RST));
	return p->tuple.protocol == IPPROTO_UDP && !udp_is_first_reply(c) &&
	       !(c->flags & CONN_RESET);
}

/* Its next hop is known, takes it as it is, and takes it from here. The last
 * question: the answer is where the frame goes if it is redirected. */
static __always_inline bool can_redirect(const struct packet *p,
					 const struct connection *c)
{
	return c->hop <= HOP_PEER && next_hop_is_current(p, c) &&
	       p->length <= c->mtu &&
	       bpf_redirect_map(&xdp_targets, c->ifindex, XDP_PASS) ==
		       XDP_REDIRECT;
}

/* Of all 16-bit words that TCP and UDP sum besides their own bytes. The 0xffff of
 * mapped IPv4 addresses is nothing to a sum. */
static __always_inline __u16 pseudo_header_sum(const struct packet *p)
{
	__u64 sum = bpf_htons(p->length - (p->l4 - p->l3)) +
		    bpf_htons(p->tuple.protocol);

	if (p->ipv6) {
		for (int i = 0; i < 3; i++) {
			sum += p->tuple.saddr.word[i];
			sum += p->tuple.daddr.word[i];
		}
	}
	sum += p->tuple.saddr.word[3];
	sum += p->tuple.daddr.word[3];
	return sum_fold64(sum);
}

/* Of a packet that this machine or a guest has made, and that no wire has seen,
 * the checksum may still be owed: its field holds the pseudo header's sum alone
 * (CHECKSUM_PARTIAL), and what says so is not shown to XDP. One whole sum in
 * 65,535 is that number too; tc can tell them apart. */
static __always_inline bool may_be_partial(ctx_t *ctx, const struct packet *p)
{
	__u16 *sum = ctx_header(ctx, p->l4 + sum_offset(p->tuple.protocol), 2);

	return !sum || *sum == pseudo_header_sum(p);
}

static __always_inline void count_forwarded(void)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&xdp_forwarded, &zero);

	if (n)
		(*n)++;
}

/* Native, it is loaded as a program that takes frames of several buffers, so that
 * an MTU may be larger than one; these frames pass. */
SEC("xdp")
int loxilb_xdp(struct xdp_md *ctx)
{
	struct connection *c;
	struct packet p;
	void *mac;

	packet_init(&p, ctx_now(), ETH_HLEN);
	if (parse(ctx, &p, ETH_HLEN) != VERDICT_CONTINUE || p.drop)
		return XDP_PASS;
	c = bpf_map_lookup_elem(&connections, &p.tuple);
	if (!c || !is_established(&p, c) || may_be_partial(ctx, &p) ||
	    !can_redirect(&p, c))
		return XDP_PASS;

	c->seen = p.now;
	if (p.tuple.protocol == IPPROTO_TCP)
		tcp_note_sequence(&p, c);
	count(&p, c);
	count_forwarded();
	mac = ctx_header(ctx, 0, ETH_HLEN);
	if (!mac || translate(ctx, &p, c, ETH_HLEN) != VERDICT_CONTINUE)
		return XDP_ABORTED; /* never: all headers were seen */
	macs_copy(mac, c->dmac);
	return XDP_REDIRECT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
