/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * packet.h - properties of the current packet, and the verdicts that stages return.
 */
#ifndef LOXILB_PACKET_H
#define LOXILB_PACKET_H

#include <stdbool.h>
#include "abi.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define __maybe_unused __attribute__((unused)) /* not used by all objects */
#define unlikely(x) __builtin_expect(!!(x), 0)

/* Unrolled loops use more of the small stack. */
#define NO_UNROLL _Pragma("clang loop unroll(disable)")

/* A stage returns CONTINUE to run the next stage. Any other verdict goes straight to
 * finish(). */
enum verdict {
	VERDICT_CONTINUE,
	VERDICT_PASS, /* hand it to the kernel, untouched */
	VERDICT_DROP, /* valid iff packet.drop names the reason; DROP_NONE: it was counted as something else */
	VERDICT_REDIRECT, /* valid iff packet.action is the redirect helper's result */
	VERDICT_ANSWER, /* drop it, and answer its sender; valid iff packet.drop names the reason and packet.action holds the answer */
	VERDICT_UNCOMMON, /* parse only: an ICMP message or a later fragment, which take another path */
	VERDICT_OTHER, /* parse only: a protocol without connections; p->tuple has no ports */
	VERDICT_MISS, /* conntrack and reopen only: no live connection; enter() only: see there */
	VERDICT_AGAIN, /* conntrack only: an entry was being moved, and must be looked up again */
	VERDICT_CHALLENGE, /* admit and claim only: a SYN whose client must be challenged */
	/* open.h only: */
	VERDICT_TAKEN, /* another connection has the tuple at this endpoint, or no source port is free; packet.drop has the reason */
	VERDICT_FULL, /* there is no room for the connection; packet.drop has the reason */
	VERDICT_TWIN, /* a copy of the packet has opened the connection on another CPU */
	VERDICT_OPENED, /* the connection is open */
	VERDICT_QUIC, /* another program chooses the endpoint and opens the connection (quic/hand_over.h) */
};

/* The answer to the sender, in packet.action. */
enum answer {
	ANSWER_REFUSE, /* TCP: RST; UDP: port unreachable */
	ANSWER_TIME_EXCEEDED,
	ANSWER_TOO_BIG, /* the MTU is in the bits from ANSWER_MTU_SHIFT on */
};
#define ANSWER_MTU_SHIFT 8

/* Not cleared as a whole: that took six stores more per packet than setting only what
 * parsing does not set anyway. What packet_init() clears comes last, from a multiple of
 * 8 bytes on, so it takes few stores. */
struct packet {
	struct connection_key tuple; /* ports: valid iff !later_fragment */
	__u32 now; /* jiffies */
	__u32 length; /* of the IP packet; link-layer padding is not counted */
	__u32 seq; /* host order; valid iff TCP. SCTP: the tag that INIT or INIT ACK announces */
	__u32 ack; /* host order; valid iff TCP with ACK. SCTP: the verification tag */
	__u32 seq_end; /* seq + payload + SYN + FIN; valid iff TCP. SCTP: the first chunk, if it is HEARTBEAT or HEARTBEAT ACK, else 0 */
	__u16 l3; /* offset of the IP header: 14, or 0 on a layer 3 interface */
	__u16 l4; /* offset of the TCP or UDP header; valid iff !later_fragment */
	/* cleared: */
	__u16 fragment; /* offset in bytes, a multiple of 8, plus 1 iff more follow; 0 iff not a fragment */
	__u8 ttl; /* or hop limit */
	__u8 ipv6;
	__u8 tcp_flags; /* as in the header's 14th byte; SCTP: TCP_RST iff it must not be answered; other protocols: 0 */
	__u8 later_fragment; /* a fragment that is not the first */
	__u8 echo_reply; /* ICMP: an answer, which never opens a connection */
	__u8 icmp_error; /* an ICMP error about a connection, already translated */
	__u8 fault; /* enum drop_reason: why the packet must not be forwarded unchanged; applied once it turns out to be ours */
	__u8 pass; /* enum pass_reason */
	__u8 may_reopen; /* a SYN with the tuple of a closed connection whose entries still exist */
	__u8 priority_tag; /* a VLAN tag of id 0 that was removed (ctx_skb.h) */
	int action; /* see the verdicts */
	__u32 fragment_id; /* as in the header; valid iff fragment. PROXY_ACK_FIRST: number of the client's first byte. FTP_FURTHER: of the first new byte */
	__u16 mtu; /* of its next hop; valid iff next_hop_resolve() has found one */
	__u16 rule; /* as in struct hop_key; until attached_apply() or rule_apply() */
	__u8 drop; /* enum drop_reason; see the verdicts */
	__u8 rules_skipped; /* rules could not be checked for this packet, so rule is only that of the entry's last packet */
	__u8 direct; /* its entry is temporary (direct.h) */
	__u8 traced; /* a tracer may want it (trace.h) */
	__u8 plain_syn; /* a SYN that no endpoint drops silently (redial.h) */
	__u8 chunk; /* SCTP: the chunk that may change the state; DATA: none. TCP: enum proxy_change */
	__u8 listed; /* SCTP: bytes of VIPs that were appended to INIT ACK (sctp/list.h) */
	__u8 reflected; /* SCTP: its tag is the receiver's own (flag T) */
};
_Static_assert(__builtin_offsetof(struct packet, fragment) % 8 == 0,
	       "packet_init() clears from there on");

static __always_inline void packet_init(struct packet *p, __u32 now, __u16 l3)
{
	p->now = now;
	p->l3 = l3;
	__builtin_memset(&p->fragment, 0,
			 sizeof(*p) -
				 __builtin_offsetof(struct packet, fragment));
}

/* Sets the protocol and clears the key's padding in one store of four bytes, in
 * little-endian order, as on all supported machines. */
static __always_inline void packet_set_protocol(struct packet *p, __u8 protocol)
{
	__u32 word = protocol;

	__builtin_memcpy(&p->tuple.protocol, &word, sizeof(word));
}

/* Clears the TCP members of a packet that is not TCP. */
static __always_inline void packet_clear_sequence(struct packet *p)
{
	p->seq = 0;
	p->ack = 0;
	p->seq_end = 0;
}

/* Clears the members of a packet whose layer 4 header is parsed. */
static __always_inline void packet_clear_ports(struct packet *p)
{
	p->tuple.sport = 0;
	p->tuple.dport = 0;
	packet_clear_sequence(p);
}

/* Handles a packet that is too short for its header. A first fragment to a VIP that
 * hides its header this way is dropped (RFC 3128); other packets are left to the
 * kernel. */
static __always_inline enum verdict packet_is_short(struct packet *p)
{
	p->tuple.sport = 0;
	p->tuple.dport = 0;
	if (!p->fragment)
		return VERDICT_PASS;
	p->fault = DROP_MALFORMED;
	return VERDICT_CONTINUE;
}

static __always_inline enum verdict drop(struct packet *p, enum drop_reason why)
{
	p->drop = why;
	return VERDICT_DROP;
}

static __always_inline enum verdict
drop_and_answer(struct packet *p, enum drop_reason why, enum answer how)
{
	p->drop = why;
	p->action = how;
	return VERDICT_ANSWER;
}

#endif
