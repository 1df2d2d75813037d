// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/*
 * xdp.bpf.c - the fast path in front of tc.bpf.c, from driver to driver.
 *
 * It forwards packets of established TCP and UDP connections that leave as plain
 * Ethernet frames. It uses the entries that tc.bpf.c has made, and has the same
 * effects. It challenges or drops SYNs if tc.bpf.c certainly would (xdp_syn.h). All
 * other packets pass on to tc.bpf.c, which alone opens, closes and refuses connections.
 *
 * It decides before it changes anything: a packet that passes is unchanged, and so is
 * its connection.
 */
#define LOXILB_XDP

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "abi.h"
#include "config.h"
#include "maps.h"
#include "conntrack/silence.h"
#include "forward/xdp_send.h"
#include "limit/attached_port.h"
#include "observe/stats.h"
#include "observe/trace.h"
#include "packet/ctx.h"
#include "packet/ethernet.h"
#include "packet/packet.h"
#include "parse/parse.h"
#include "path/hop.h"
#include "protect/xdp_syn.h"
#include "protocol/protocol.h"
#include "table/table.h"
#include "translate/nat.h"

/* 0 -> packets forwarded, per CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} xdp_forwarded SEC(".maps");

/* Reports whether the packet belongs to an established connection and changes only
 * counters and sequence numbers. An entry that was silent for a while may be expired. */
static __always_inline bool is_established(const struct packet *p,
					   const struct connection *c)
{
	if (connection_was_silent(p, c))
		return false;
	return protocol_of(p->tuple.protocol).is_in_xdp &&
	       protocol_is_settled(p, state_read(c));
}

/* Forwards a packet of an established connection, and handles SYNs that open one. l3:
 * the offset of the IP header, after a VLAN tag if there is one. */
static __always_inline int forward_frame(ctx_t *ctx, struct packet *p,
					 const __u16 l3)
{
	struct connection *c;
	const struct hop *w;
	bool opens;
	void *mac;
	int action;

	if (parse(ctx, p, l3) != VERDICT_CONTINUE || p->fault)
		return XDP_PASS;
	opens = is_opening_syn(p) && l3 == ETH_HLEN;
	if (unlikely(opens && may_be_syn_flood(p))) {
		action = syn_flood_challenge(ctx, p);
		if (action != XDP_PASS)
			return action;
	}
	c = entry_find_established(&p->tuple, opens);
	if (!c)
		return opens ? handle_syn(ctx, p) : XDP_PASS;
	if (!is_established(p, c) || may_be_partial(ctx, p))
		return XDP_PASS;
	w = hop_of(c);
	if (!hop_is_common(p, c, w) || !xdp_send_to(w->key.ifindex))
		return XDP_PASS;

	c->seen = p->now;
	protocol_record(p, c);
	/* the tag ends here: the header moves up to the IP header */
	if (translate(ctx, p, c, l3) != VERDICT_CONTINUE ||
	    (l3 != ETH_HLEN && bpf_xdp_adjust_head(ctx, l3 - ETH_HLEN)))
		return XDP_ABORTED; /* never happens: all headers were read before */
	mac = ctx_header(ctx, 0, ETH_HLEN);
	if (!mac)
		return XDP_ABORTED; /* never happens */
	count(p, c);
	count_one(&xdp_forwarded, 0);
	macs_write(mac, w);
	trace_out(p, w->key.ifindex);
	return XDP_REDIRECT;
}

/* Sends a packet's trace to its tracers, unless it passes: then tc.bpf.c traces it. */
static __always_inline void trace_end(ctx_t *ctx, const struct packet *p,
				      int action)
{
	if (!TRACING || likely(!p->traced))
		return;
	if (action == XDP_REDIRECT)
		trace_leaving(ctx, TRACE_FORWARD, 0, false);
	else if (action == XDP_PASS)
		trace_discard();
	else
		trace_leaving(ctx, TRACE_DROP, p->drop, false);
}

static __always_inline int handle(ctx_t *ctx, const __u16 l3)
{
	struct packet p;
	int action;

	if (unlikely(ports_attached) && port_attachments(ctx->ingress_ifindex))
		return XDP_PASS;
	packet_init(&p, ctx_now(), l3);
	trace_begin(ctx, &p, TRACE_XDP);
	action = forward_frame(ctx, &p, l3);
	trace_end(ctx, &p, action);
	return action;
}

/* Handles frames with a priority tag. Global (verifier: globals). */
__noinline int handle_tagged(ctx_t *ctx)
{
	return handle(ctx, ETH_HLEN + VLAN_HLEN);
}

/* In native mode it is loaded as a program that accepts frames of several buffers, so
 * that the MTU may be larger than a buffer. Those frames pass. */
SEC("xdp")
int loxilb_xdp(struct xdp_md *ctx)
{
	int action = handle(ctx, ETH_HLEN);

	if (action == XDP_PASS && ctx_has_priority_tag(ctx))
		return handle_tagged(ctx);
	return action;
}

char _license[] SEC("license") = "Dual BSD/GPL";
