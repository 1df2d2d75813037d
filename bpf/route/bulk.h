/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * bulk.h - how long segments reach a namespace behind a veth.
 *
 * A segment of a sender on this machine stays charged to its socket, and is a clone of
 * the one kept for retransmission: receivers merge only segments that are not. So the
 * headers of long segments are copied, as the kernel does when it forwards. While several
 * connections send long segments, packets are also queued at the veth, and long ones are
 * released from their sockets. That costs more time for each packet, but sender and
 * receiver wake up less often: 100 streams gain 15 %. One stream would lose 6 %, small
 * packets a fifth (docs/adr/0119-long-segments.md).
 *
 * From the first queued segment until none was for BULK_TIME, all packets to peers are
 * queued: one that took the direct way would overtake those in the queue. Another CPU
 * may send the connection's next segment, so this is one state of all CPUs.
 */
#ifndef LOXILB_BULK_H
#define LOXILB_BULK_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "packet/ctx.h"
#include "packet/packet.h"
#include "path/hop.h"

/* Segments that travel as one (GSO) are longer than any MTU. */
#define BULK_LENGTH 16384

/* Jiffies: at least 3 ms, much longer than packets stay in the queue. */
#define BULK_TIME 4

/* In packet.action, beside the interface: the packet is sent by bulk_send() (finish.h).
 * Above all results of redirect helpers. */
#define BULK_ACTION (1 << 30)

/* Jiffies of the last queued segment. */
volatile __u32 bulk_queued SEC(".data.runtime") = 0;

/* The last long segment while none is queued: a hash of its tuple, and jiffies. CPUs overwrite
 * each other's, which at worst delays the queue. */
volatile __u32 bulk_connection SEC(".data.runtime") = 0;
volatile __u32 bulk_seen SEC(".data.runtime") = 0;

/* Another CPU's packet may be a jiffy later. */
static __always_inline bool bulk_is_recent(const struct packet *p,
					   __u32 jiffies)
{
	return p->now + 1 - jiffies <= BULK_TIME + 1;
}

/* Reports whether bulk_redirect() sends a packet to a peer. */
static __always_inline bool bulk_concerns(const struct packet *p)
{
	return p->length > BULK_LENGTH || bulk_is_recent(p, bulk_queued);
}

/* Records a long segment while none is queued. Returns whether another connection has
 * just sent one. Variables are written only if they change, since CPUs share them. */
static __always_inline bool bulk_begins(const struct packet *p)
{
	const __u32 connection = p->tuple.saddr.word[3] ^
				 ((__u32)p->tuple.sport << 16 | p->tuple.dport);
	bool same = bulk_connection == connection;
	bool begins = !same && bulk_is_recent(p, bulk_seen);

	if (!same)
		bulk_connection = connection;
	if (bulk_seen != p->now)
		bulk_seen = p->now;
	return begins;
}

/* Returns packet.action for a packet to a peer, for which bulk_concerns() is true. */
static __noinline int bulk_redirect(ctx_t *ctx, const struct packet *p,
				    const struct hop *w)
{
	__u32 ifindex = w->key.ifindex;
	bool queue = bulk_is_recent(p, bulk_queued);

	if (p->length > BULK_LENGTH)
		bpf_skb_change_head(ctx, 0, 0); /* copies shared headers */
	if (!w->key.queues || ifindex >= BULK_ACTION)
		return bpf_redirect_peer(ifindex, 0);
	if (p->length <= BULK_LENGTH)
		return queue ? bpf_redirect(ifindex, 0) :
			       bpf_redirect_peer(ifindex, 0);
	if (!queue && !bulk_begins(p))
		return bpf_redirect_peer(ifindex, 0);
	if (bulk_queued != p->now)
		bulk_queued = p->now;
	return ctx->sk ? BULK_ACTION | ifindex : bpf_redirect(ifindex, 0);
}

#endif
