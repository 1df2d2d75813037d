// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * tc.bpf.c - the load balancer at the tc ingress hook (tcx, or clsact).
 *
 *	parse -> conntrack find -> (miss: service lookup -> select -> create)
 *	      -> translate -> forward -> finish
 *
 * Each stage answers with a verdict; finish() alone counts drops and speaks tc.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "maps.h"
#include "packet.h"
#include "ctx_skb.h"
#include "parse.h"
#include "conntrack.h"
#include "open.h"
#include "nat.h"
#include "forward.h"
#include "stats.h"

/* Return codes. NEXT lets other programs at the hook, and then the kernel,
 * have the packet; the numbers are the same for tcx and clsact. */
#define TC_NEXT (-1)
#define TC_SHOT 2

/* For an entry that was silent for a while: is its connection dead? Ends it if
 * so. Out of line: asked once a second of a connection at most. */
static __noinline bool connection_expired(struct packet *p,
					  struct connection *c)
{
	if (!connection_dead(c, p->tuple.protocol, p->now, 0))
		return false;
	connection_end(&p->tuple, c);
	return true;
}

/* MISS: the connection was dead, or closed and this packet opens another. */
static __always_inline enum verdict connection_update(struct packet *p,
						      struct connection *c)
{
	if (unlikely(p->drop))
		return VERDICT_DROP;
	if (unlikely((__s32)(p->now - c->seen) > (__s32)hz) &&
	    connection_expired(p, c))
		return VERDICT_MISS;
	if (p->tuple.protocol == IPPROTO_TCP)
		return tcp_update(p, c);
	return udp_update(p, c);
}

static __always_inline enum verdict balance(ctx_t *ctx, struct packet *p)
{
	enum verdict v = VERDICT_MISS;
	struct connection *c;

	c = bpf_map_lookup_elem(&connections, &p->tuple);
	if (likely(c))
		v = connection_update(p, c);
	if (v == VERDICT_MISS) {
		v = connection_open(p);
		if (v != VERDICT_CONTINUE)
			return v;
		c = bpf_map_lookup_elem(&connections, &p->tuple);
		if (!c)
			return drop(p, DROP_CONNECTION_RACE);
	}
	if (v != VERDICT_CONTINUE)
		return v;
	c->packets++;
	c->bytes += p->length;
	count_traffic(p, c);
	v = translate(ctx, p, c);
	if (v != VERDICT_CONTINUE)
		return v;
	return forward(ctx, p, c);
}

static __always_inline int finish(struct packet *p, enum verdict v)
{
	switch (v) {
	case VERDICT_REDIRECT:
		return p->action;
	case VERDICT_DROP:
		count_drop(p->drop);
		return TC_SHOT;
	default:
		if (unlikely(p->pass))
			count_pass(p->pass);
		return TC_NEXT;
	}
}

static __always_inline int handle(ctx_t *ctx, __u16 l3)
{
	struct packet p = { .now = ctx_now() };
	enum verdict v;

	v = parse(ctx, &p, l3);
	if (v == VERDICT_CONTINUE)
		v = balance(ctx, &p);
	return finish(&p, v);
}

/* Interfaces with Ethernet headers. */
SEC("tc")
int loxilb_ether(struct __sk_buff *ctx)
{
	return handle(ctx, ETH_HLEN);
}

/* Interfaces without a link-layer header: tun, wireguard. */
SEC("tc")
int loxilb_layer3(struct __sk_buff *ctx)
{
	return handle(ctx, 0);
}

/* Keeps in the object's BTF the enums of abi.h that only their values name, so
 * that Go gets them too. */
const struct {
	enum connection_flag connection;
	enum endpoint_flag endpoint;
	enum link_flag link;
	enum drop_reason drop;
	enum pass_reason pass;
} abi_enums = {};

char _license[] SEC("license") = "Dual BSD/GPL";
